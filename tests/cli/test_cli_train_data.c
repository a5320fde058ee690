/* `tegula train` on every kind of data: a model that learns ten answers by heart, rows that resume
 * bit for bit, ids that are as good as their text, and what is said and refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "cli_training.h"
#include "small_tokenizer.h"

enum { kAnswers = 10 };

static const char *const questions[kAnswers] = {
    "How high is the tower?", "Who wrote the play?", "What is green?",     "Two and two?",
    "Which river is long?",   "Where do bees live?", "When does it snow?", "What do cats chase?",
    "Name a metal.",          "How do you say yes?"};
static const char *const answers[kAnswers] = {
    "300 metres.", "A poet of Stratford.", "The leaves of May.", "Four.", "The Nile.",
    "In a hive.",  "In winter.",           "Mice, mostly.",      "Iron.", "Oui."};

static const char *base;  /* a small model that has a chat template */
static const char *chats; /* ten conversations of a question and an answer */
static const char *cache;

static void write_in(const char *directory, const char *name, const char *content)
{
  char path[SCRATCH_PATH * 2];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  write_text(path, content);
}

static void write_tokenizer(const char *directory)
{
  static const char flags[] = "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                              "\"normalized\": false, \"special\": true";
  char added[1024];
  snprintf(added, sizeof added,
           "[{\"id\": 256, \"content\": \"<|endoftext|>\", %s}, "
           "{\"id\": 257, \"content\": \"<|im_start|>\", %s}, "
           "{\"id\": 258, \"content\": \"<|im_end|>\", %s}]",
           flags, flags, flags);
  char *tokenizer = small_tokenizer_text(&(small_tokenizer){.added = added});
  write_in(directory, "tokenizer.json", tokenizer);
  free(tokenizer);
  write_in(directory, "tokenizer_config.json",
           "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"eos_token\": \"<|im_end|>\"}");
  write_in(directory, "generation_config.json", "{\"eos_token_id\": [258]}");
  write_in(directory, "chat_template.jinja",
           "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor "
           "%}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
}

/* A model of random weights, and the data. */
static int set_up(void **state)
{
  make_text(state);
  cache = strdup(scratch_file(&dir, "cache"));
  base = strdup(scratch_file(&dir, "base"));
  chats = strdup(scratch_file(&dir, "ten.jsonl"));
  setenv("TEGULA_CACHE_DIR", cache, 1);
  expect(TRAIN(base, "--steps", "1", "--vocab-size", "264", "--val-fraction", "0"), 0, "all 1");
  write_tokenizer(base);
  char lines[kAnswers * 256], *at = lines;
  for (int i = 0; i < kAnswers; i++) {
    at += sprintf(at,
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, "
                  "{\"role\": \"assistant\", \"content\": \"%s\"}]}\n",
                  questions[i], answers[i]);
  }
  write_text(chats, lines);
  return 0;
}

/* `tegula train` of the model with the data, and more arguments (ended by NULL). */
static cli_result tune(const char *out, const char *file, const char *const *more)
{
  command c = {.count = 0};
  add(&c, MORE("train", "--model", base, "--train-file", file, "--out", out, "--batch", "4",
               "--threads", "1", "--val-fraction", "0"));
  add(&c, more);
  return run(c);
}

#define TUNE(out, file, ...) tune(out, file, MORE(__VA_ARGS__))

/* ---- the whole path ---- */

static void ten_answers_are_learnt_by_heart(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "heart"), *question = scratch_file(&dir, "question.json");
  cli_result r = TUNE(out, chats, "--steps", "130", "--seq", "128", "--lr", "0.003", "--warmup",
                      "5", "--weight-decay", "0");
  assert_non_null(strstr(r.err, "conversations (JSONL), 10 documents, "));
  assert_non_null(strstr(r.err, "train: 10 pieces of documents in 5 rows of 128, "));
  expect(r, 0, "all 130 steps are done");
  for (int i = 0; i < kAnswers; i++) {
    cli_result answer =
        CLI("chat", out, "-p", questions[i], "--temperature", "0", "-n", "40", "--threads", "1");
    assert_int_equal(answer.code, 0);
    answer.out[strcspn(answer.out, "\n")] = '\0';
    assert_string_equal(answer.out, answers[i]);
    cli_free(&answer);
  }
  /* The same by template and generate, which see no turn's end but the token's. */
  write_text(question, "[{\"role\": \"user\", \"content\": \"Two and two?\"}]");
  cli_result prompt = CLI("template", out, "--file", question, "--add-generation-prompt");
  assert_int_equal(prompt.code, 0);
  cli_result answer =
      CLI("generate", out, prompt.out, "--temperature", "0", "-n", "40", "--threads", "1");
  assert_int_equal(answer.code, 0);
  assert_string_equal(answer.out, "Four.\n");
  assert_non_null(strstr(answer.err, "ended: end of text"));
  cli_free(&prompt);
  cli_free(&answer);
}

/* ---- the same again ---- */

static void every_packing_resumes_bit_for_bit(void **state)
{
  (void)state;
  static const char *const packings[] = {"off", "concat", "documents"};
  for (int i = 0; i < 3; i++) {
    char whole_name[32], parts_name[32];
    snprintf(whole_name, sizeof whole_name, "whole-%s", packings[i]);
    snprintf(parts_name, sizeof parts_name, "parts-%s", packings[i]);
    const char *whole = scratch_file(&dir, whole_name), *parts = scratch_file(&dir, parts_name);
    /* Four rows a step: ten steps are several epochs, but for the stream. */
    expect(TUNE(whole, chats, "--steps", "10", "--seq", "64", "--schedule", "constant", "--warmup",
                "0", "--pack", packings[i], "--template-arg", "a=1"),
           0, "all 10 steps are done");
    expect(TUNE(parts, chats, "--steps", "3", "--seq", "64", "--schedule", "constant", "--warmup",
                "0", "--pack", packings[i], "--template-arg", "a=1"),
           0, "all 3 steps are done");
    expect(RESUME(parts, "--pack", packings[(i + 1) % 3]), 1, "--pack: expected ");
    expect(RESUME(parts, "--template-arg", "a=2"), 1, "--template-arg: expected a=1");
    expect(RESUME(parts, "--steps", "10", "--no-cache"), 0, "all 10 steps are done");
    expect_same_weights(whole, parts);
  }
}

/* Text, its ids in either format, and its ids in two files are one stream. */
static void ids_train_what_their_text_trains(void **state)
{
  (void)state;
  const char *of_text = scratch_file(&dir, "of-text"), *ids = scratch_file(&dir, "ids.bin");
  expect(TUNE(of_text, text, "--steps", "4", "--seq", "32"), 0, ": text, 1 documents, 6000 tokens");
  EXPECT_CLI(0, "", "tokenize", base, "-f", text, "--out", ids);
  expect(TUNE(scratch_file(&dir, "of-ids"), ids, "--steps", "4", "--seq", "32"), 0, ": tokens, ");
  expect_same_weights(of_text, scratch_file(&dir, "of-ids"));
  size_t size;
  char *bytes = read_file(text, &size);
  write_file(scratch_file(&dir, "half1.txt"), bytes, 2500);
  write_file(scratch_file(&dir, "half2.txt"), bytes + 2500, size - 2500);
  free(bytes);
  for (int i = 1; i <= 2; i++) {
    char name[32];
    snprintf(name, sizeof name, "half%d.txt", i);
    const char *half = scratch_file(&dir, name);
    snprintf(name, sizeof name, "shard%d.bin", i);
    EXPECT_CLI(0, "", "tokenize", base, "-f", half, "--out", scratch_file(&dir, name), "--format",
               "tegula");
  }
  expect(TUNE(scratch_file(&dir, "of-shards"), scratch_file(&dir, "shard*.bin"), "--steps", "4",
              "--seq", "32"),
         0, ": tokens in 2 files, 6000 tokens");
  expect_same_weights(of_text, scratch_file(&dir, "of-shards"));
}

/* ---- what is said ---- */

static void what_is_left_out_is_counted(void **state)
{
  (void)state;
  const char *file = scratch_file(&dir, "strange.jsonl"), *out = scratch_file(&dir, "odd");
  char line[1024], long_text[400];
  memset(long_text, 'x', sizeof long_text);
  long_text[sizeof long_text - 1] = '\0';
  snprintf(line, sizeof line,
           "{\"messages\": [{\"role\": \"user\", \"content\": \"nobody answers\"}]}\n"
           "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
           "{\"role\": \"assistant\", \"content\": \"%s\"}]}\n"
           "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
           "{\"role\": \"assistant\", \"content\": \"a\"}]}\n",
           long_text);
  write_text(file, line);
  cli_result r = TUNE(out, file, "--steps", "1", "--seq", "64", "--pack", "off");
  assert_non_null(strstr(r.err, "2 documents, "));
  assert_non_null(strstr(r.err, "; 1 documents without targets are left out"));
  assert_non_null(strstr(r.err, "train: 1 documents longer than a row are cut at their end ("));
  expect(r, 0, "all 1 steps are done");
  expect(TUNE(scratch_file(&dir, "odd2"), file, "--steps", "1", "--seq", "64"), 0,
         "train: 1 documents longer than a row are split (0 tokens left out)");
  expect(TUNE(scratch_file(&dir, "odd3"), file, "--seq", "64", "--long-documents", "error"), 1,
         "--long-documents: expected documents of at most 65 tokens (--seq and one more), got "
         "document 1 of ");
  write_text(file, "{\"messages\": [{\"role\": \"user\", \"content\": \"nobody answers\"}]}\n");
  expect(TUNE(scratch_file(&dir, "odd3"), file, "--seq", "64"), 1,
         "expected documents with targets to train on, got none");
  write_text(file, "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}\n{\"messages\": \n");
  expect(TUNE(scratch_file(&dir, "odd3"), file, "--seq", "64"), 1, "strange.jsonl: line 2: byte ");
  assert_false(file_exists(scratch_file(&dir, "odd3")));
}

static void the_cache_is_said(void **state)
{
  (void)state;
  const char *file = scratch_file(&dir, "cached.txt");
  write_text(file, "some words that are cached, again and again, and again and again.");
  expect(TUNE(scratch_file(&dir, "c1"), file, "--steps", "1", "--seq", "16"), 0, "cache: wrote ");
  expect(TUNE(scratch_file(&dir, "c2"), file, "--steps", "1", "--seq", "16"), 0, "cache: read ");
  cli_result r = TUNE(scratch_file(&dir, "c3"), file, "--steps", "1", "--seq", "16", "--no-cache");
  assert_null(strstr(r.err, "cache: "));
  expect(r, 0, "all 1 steps are done");
  expect_same_weights(scratch_file(&dir, "c1"), scratch_file(&dir, "c2"));
  expect_same_weights(scratch_file(&dir, "c1"), scratch_file(&dir, "c3"));
}

static void documents_are_shown(void **state)
{
  (void)state;
  cli_result r = CLI("train", "--model", base, "--train-file", chats, "--show-data", "2");
  assert_int_equal(r.code, 0);
  assert_int_equal(count(r.out, "\n"), 2);
  assert_non_null(strstr(r.out, "{\"document\":1,\"text\":\"<|im_start|>user\\nHow high is the "
                                "tower?<|im_end|>\\n<|im_start|>assistant\\n300 metres.<|im_end|>"
                                "\\n\",\"targets\":[\"300 metres.<|im_end|>\"],\"ids\":[257,"));
  cli_free(&r);
}

static void validation_has_rows_of_its_own(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "val");
  expect(TUNE(out, chats, "--steps", "2", "--seq", "64", "--val-file", chats), 0,
         "validation: 10 pieces of documents in ");
  expect(TUNE(scratch_file(&dir, "val3"), chats, "--steps", "1", "--seq", "64", "--val-fraction",
              "0.1", "--eval-tokens", "5"),
         0, "validation: 1 pieces of documents in 1 rows of 64");
  expect(TUNE(scratch_file(&dir, "val2"), chats, "--steps", "2", "--seq", "64", "--val-fraction",
              "0.3"),
         0, "| validation loss ");
}

static void a_chosen_template_is_kept(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "kept"), *own = scratch_file(&dir, "own.jinja");
  const char *question = scratch_file(&dir, "hello.json");
  write_text(own, "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
                  "{% if add_generation_prompt %}assistant: {% endif %}");
  write_text(question, "[{\"role\": \"user\", \"content\": \"Hello.\"}]");
  expect(TUNE(out, chats, "--steps", "1", "--seq", "128", "--template", own), 0, "all 1");
  unlink(own); /* the checkpoint does without it */
  cli_result r = CLI("template", out, "--file", question, "--add-generation-prompt");
  assert_int_equal(r.code, 0);
  assert_string_equal(r.out, "user: Hello.<|im_end|>assistant: ");
  cli_free(&r);
}

static void bad_options(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "never");
  expect(TUNE(out, chats, "--pack", "rows"), 2, "--pack: expected off, concat or documents, got");
  expect(TUNE(out, chats, "--long-documents", "keep"), 2, "expected cut, split or error, got keep");
  expect(TUNE(out, chats, "--template-arg", "x"), 2, "--template-arg: expected KEY=JSON, got x");
  expect(TUNE(out, chats, "--template", scratch_file(&dir, "none")), 1, "No such file");
  expect(TRAIN(out, "--train-file", chats), 1, "expected a chat template for conversations");
  /* The log of --out ten would be ten.jsonl. */
  expect(TUNE(scratch_file(&dir, "ten"), chats, "--seq", "64"), 1,
         "/ten.jsonl: expected data in another file than the log, got the log");
  expect(TUNE(out, scratch_file(&dir, "t?n.jsonl"), "--log", chats), 1, "got the log");
  size_t size;
  char *kept = read_file(chats, &size);
  assert_int_equal(count(kept, "\n"), kAnswers);
  free(kept);
  assert_false(file_exists(out));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ten_answers_are_learnt_by_heart),
      cmocka_unit_test(every_packing_resumes_bit_for_bit),
      cmocka_unit_test(ids_train_what_their_text_trains),
      cmocka_unit_test(what_is_left_out_is_counted),
      cmocka_unit_test(the_cache_is_said),
      cmocka_unit_test(documents_are_shown),
      cmocka_unit_test(validation_has_rows_of_its_own),
      cmocka_unit_test(a_chosen_template_is_kept),
      cmocka_unit_test(bad_options),
  };
  return cmocka_run_group_tests(tests, set_up, remove_text);
}
