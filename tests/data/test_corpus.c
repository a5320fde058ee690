/* Files of every kind as tokens, what is refused by file and line, and the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "data/corpus.h"
#include "data/token_file.h"
#include "expect.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static scratch dir;
static tg_tokenizer *tokenizer; /* of bytes; <|endoftext|> is 256 */

static int set_up(void **state)
{
  (void)state;
  tg_error error;
  dir = scratch_make();
  return tg_tokenizer_create_bytes(&tokenizer, &error);
}

static int tear_down(void **state)
{
  (void)state;
  tg_tokenizer_destroy(tokenizer);
  scratch_remove(&dir);
  return 0;
}

static tgi_corpus_options options(void)
{
  return (tgi_corpus_options){.tokenizer = tokenizer,
                              .vocab_size = 257,
                              .template_source = "chatml",
                              .date = "2026-11-27",
                              .documents = true};
}

static tgi_corpus load(const char *pattern, const tgi_corpus_options *o)
{
  tgi_corpus corpus;
  tg_error error;
  EXPECT_OK(tgi_corpus_load(pattern, o, &corpus, &error), error);
  return corpus;
}

/* Loads a text under this name. */
static tgi_corpus load_text(const char *name, const char *text)
{
  const tgi_corpus_options o = options();
  const char *path = scratch_file(&dir, name);
  write_text(path, text);
  return load(path, &o);
}

/* Whether the corpus has these ids; -1 ends a document and -2 all of them. */
static void expect_ids(const tgi_corpus *corpus, const int32_t *ids)
{
  int64_t at = 0, documents = 0;
  for (; *ids != -2; ids++) {
    if (*ids == -1) {
      assert_int_equal(corpus->store.ends[documents++], at);
    } else {
      int32_t got;
      assert_true(at < corpus->store.count);
      tgi_store_read(&corpus->store, at++, 1, &got);
      assert_int_equal(got, *ids);
    }
  }
  assert_int_equal(corpus->store.count, at);
  assert_int_equal(corpus->store.num_documents, documents);
}

#define EXPECT_CORPUS(corpus, ...) expect_ids(corpus, (const int32_t[]){__VA_ARGS__, -2})

static void text_is_cut_behind_end_tokens(void **state)
{
  (void)state;
  tgi_corpus c = load_text("a.txt", "hi<|endoftext|>yo<|endoftext|>\n");
  assert_int_equal(c.kind, TGI_DATA_TEXT);
  EXPECT_CORPUS(&c, 'h', 'i', 256, -1, 'y', 'o', 256, -1, '\n', -1);
  assert_null(c.store.counted);
  tgi_corpus_close(&c);
  c = load_text("braces", "{ is no JSON\n"); /* a name without an ending */
  assert_int_equal(c.kind, TGI_DATA_TEXT);
  tgi_corpus_close(&c);
  c = load_text("b.txt", "{\"text\": \"a\"}");
  assert_int_equal(c.kind, TGI_DATA_TEXT); /* .txt says so */
  tgi_corpus_close(&c);
}

static void documents_end_with_the_end_token(void **state)
{
  (void)state;
  tgi_corpus c = load_text("a.jsonl", "{\"text\": \"hi\"}\r\n\n  \n{\"text\": \"<|endoftext|>\"}\n"
                                      "{\"id\": 1, \"text\": \"\\u0000z<|endoftext|>\"}");
  assert_int_equal(c.kind, TGI_DATA_DOCUMENTS);
  EXPECT_CORPUS(&c, 'h', 'i', 256, -1, 0, 'z', 256, -1);
  assert_int_equal(c.left_out, 1); /* one token has no target */
  tgi_corpus_close(&c);
  c = load_text("lines", "{\"text\": \"hi\"}\n"); /* found by its first line */
  assert_int_equal(c.kind, TGI_DATA_DOCUMENTS);
  tgi_corpus_close(&c);
}

static void ids_come_from_either_format(void **state)
{
  (void)state;
  const int32_t ids[] = {1, 256, 2, 3};
  const tgi_token_format formats[] = {TGI_TOKENS_LLMC, TGI_TOKENS_TEGULA};
  tg_error error;
  for (int c = 0; c < 4; c++) {
    const int32_t vocab_size = c % 2 ? 70000 : 257;
    tgi_corpus_options o = options();
    o.vocab_size = vocab_size;
    const char *one = scratch_file(&dir, "s1.bin"), *two = scratch_file(&dir, "s2.bin");
    EXPECT_OK(tgi_token_file_write(one, formats[c / 2], ids, 4, vocab_size, &error), error);
    EXPECT_OK(tgi_token_file_write(two, formats[c / 2], ids, 2, vocab_size, &error), error);
    tgi_corpus corpus = load(scratch_file(&dir, "s?.bin"), &o);
    assert_int_equal(corpus.kind, TGI_DATA_TOKENS);
    assert_int_equal(corpus.num_files, 2);
    EXPECT_CORPUS(&corpus, 1, 256, -1, 2, 3, 1, 256, -1);
    tgi_corpus_close(&corpus);
    o.documents = false;
    corpus = load(one, &o);
    assert_null(corpus.store.ends);
    tgi_corpus_close(&corpus);
  }
}

/* ---- refusals ---- */

static void expect_refusal(const char *name, const char *text, tg_status status, const char *part)
{
  const tgi_corpus_options o = options();
  const char *path = scratch_file(&dir, name);
  tgi_corpus corpus;
  tg_error error;
  write_text(path, text);
  EXPECT_ERROR(tgi_corpus_load(path, &o, &corpus, &error), status, part, error);
  EXPECT_ERROR(tgi_corpus_load(path, &o, &corpus, &error), status, name, error);
  assert_null(corpus.store.maps);
}

static void damaged_lines_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *text, *part;
  } cases[] = {
      {"{\"text\": \"a\"}\n{\"text\": \"b\"\n", "line 2: byte "},
      {"{\"text\": \"a\"}\nno\n", "line 2: byte "},
      {"{\"text\": \"a\"}\n[1]\n", "line 2: expected a JSON object, got [1]"},
      {"{\"text\": \"a\"}\n\n{\"txt\": 1}\n", "line 3: expected an object with \"text\" or"},
      {"{\"text\": \"a\"}\n{\"text\": 5}\n", "line 2: text: expected a text, got 5"},
      {"{\"text\": \"a\"}\n{\"text\": \"a\", \"messages\": []}\n",
       "line 2: expected an object with"},
      {"{\"text\": \"a\"}\n{\"messages\": []}\n", "line 2: expected \"text\" as in the first line"},
      {"{\"text\": \"a\"}\n{\"text\": \"\xff\"}\n", "line 2: byte "},
      {"{\"text\": \"a\"}\n{\"text\": \"a\", \"text\": \"b\"}\n", "line 2: byte "},
      {"{\"text\": \"a\"}\n{\"text\": \"\\ud800\"}\n", "line 2: byte "},
      {"{\"messages\": 1}\n", "line 1: messages: expected a list of objects, got 1"},
      {"{\"messages\": []}\n", "line 1: "},
      {"{\"messages\": [1]}\n", "line 1: "},
      {"{\"messages\": [{\"role\": \"user\"}], \"tools\": 3}\n",
       "line 1: tools: expected a list of objects, got 3"},
      {"{\"messages\": [{\"role\": \"user\"}], \"chat_template_kwargs\": []}\n",
       "line 1: chat_template_kwargs: expected an object, got []"},
      {"{\"messages\": [{\"role\": \"user\"}], \"add_generation_prompt\": true}\n", "line 1: "},
      {" \n\n", "expected lines of JSON, got white space alone"},
      {"", "expected text, got an empty file"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    expect_refusal("damaged.jsonl", cases[i].text, TG_BAD_FILE, cases[i].part);
  }
  expect_refusal("list.json", "[{\"text\": \"a\"}]", TG_BAD_FILE,
                 "line 1: expected a JSON object, got [");
  expect_refusal("damaged.txt", "abc\xff", TG_BAD_FILE, "byte 3: expected UTF-8");
  expect_refusal("damaged.bin", "abc", TG_BAD_FILE, "expected ids as llm.c or tegula");
}

static void damaged_ids_are_named(void **state)
{
  (void)state;
  const char *path = scratch_file(&dir, "ids.bin");
  const int32_t ids[] = {1, 2, 300};
  tgi_corpus_options o = options();
  tgi_corpus corpus;
  tg_error error;
  EXPECT_OK(tgi_token_file_write(path, TGI_TOKENS_LLMC, ids, 3, 257, &error), error);
  EXPECT_ERROR(tgi_corpus_load(path, &o, &corpus, &error), TG_BAD_FILE,
               "expected ids below the vocabulary's 257, got 300 at index 2", error);
  EXPECT_OK(tgi_token_file_write(path, TGI_TOKENS_TEGULA, ids, 2, 1000, &error), error);
  EXPECT_ERROR(tgi_corpus_load(path, &o, &corpus, &error), TG_BAD_FILE,
               "vocabulary of 257, got one of 1000", error);
  EXPECT_OK(tgi_token_file_write(path, TGI_TOKENS_TEGULA, ids, 2, 257, &error), error);
  size_t size;
  char *bytes = read_file(path, &size);
  for (size_t cut = 4; cut < size; cut += 11) {
    write_file(path, bytes, cut);
    const tg_status status = tgi_corpus_load(path, &o, &corpus, &error);
    assert_int_equal(status, TG_BAD_FILE);
  }
  bytes[8] = 9;
  write_file(path, bytes, size);
  EXPECT_ERROR(tgi_corpus_load(path, &o, &corpus, &error), TG_BAD_FILE,
               "byte 8: expected version 1, got 9", error);
  bytes[8] = 1;
  bytes[22] = 1; /* 2^48 ids more */
  write_file(path, bytes, size);
  EXPECT_ERROR(tgi_corpus_load(path, &o, &corpus, &error), TG_BAD_FILE, "got 260", error);
  free(bytes);
  write_text(scratch_file(&dir, "m1.txt"), "text");
  write_text(scratch_file(&dir, "m2.txt.jsonl"), "{\"text\": \"a\"}");
  EXPECT_ERROR(tgi_corpus_load(scratch_file(&dir, "m*"), &o, &corpus, &error), TG_BAD_FILE,
               "expected text as in ", error);
  EXPECT_ERROR(tgi_corpus_load(scratch_file(&dir, "none*"), &o, &corpus, &error), TG_IO, "none",
               error);
  o.template_source = NULL;
  write_text(scratch_file(&dir, "m3.jsonl"), "{\"messages\": []}");
  EXPECT_ERROR(tgi_corpus_load(scratch_file(&dir, "m3.jsonl"), &o, &corpus, &error), TG_BAD_FILE,
               "expected a chat template for conversations", error);
}

/* ---- the cache ---- */

static void the_cache_is_used_and_never_trusted(void **state)
{
  (void)state;
  const char *path = scratch_file(&dir, "c.jsonl"), *cache = scratch_file(&dir, "cache/deep");
  tgi_corpus_options o = options();
  o.cache_directory = cache;
  write_text(path, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                   "{\"role\": \"assistant\", \"content\": \"b\"}]}");
  tgi_corpus first = load(path, &o), second = load(path, &o);
  assert_false(first.was_cached);
  assert_true(second.was_cached);
  assert_string_equal(first.cache, second.cache);
  assert_true(tgi_hash_equal(first.hash, second.hash));
  assert_int_equal(first.store.count, second.store.count);
  tgi_corpus_close(&second);

  size_t size;
  char *bytes = read_file(first.cache, &size);
  bytes[40] ^= 1;
  write_file(first.cache, bytes, size);
  free(bytes);
  second = load(path, &o);
  assert_false(second.was_cached);
  assert_non_null(strstr(second.note, "made again: "));
  assert_true(tgi_hash_equal(first.hash, second.hash));
  tgi_corpus_close(&second);
  second = load(path, &o);
  assert_true(second.was_cached);
  tgi_corpus_close(&second);

  /* Whatever tokens depend on names another file; what they do not depend on names the same. */
  o.date = "2027-01-01";
  second = load(path, &o);
  assert_true(second.was_cached); /* chatml asks for no date */
  tgi_corpus_close(&second);
  for (int i = 0; i < 4; i++) {
    tgi_corpus_options other = o;
    other.trust = i == 0;
    other.join = i == 1;
    other.template_source = i == 2 ? "llama3" : "chatml";
    json_t *arguments = json_pack("{s:b}", "x", 1);
    other.template_arguments = i == 3 ? arguments : NULL;
    second = load(path, &other);
    assert_false(second.was_cached);
    assert_string_not_equal(first.cache, second.cache);
    tgi_corpus_close(&second);
    json_decref(arguments);
  }
  assert_int_equal(count_entries(cache), 5);
  tgi_corpus_close(&first);
}

/* A line that is damaged behind others that were written leaves no file. */
static void damage_leaves_no_cache(void **state)
{
  (void)state;
  const char *path = scratch_file(&dir, "e.jsonl"), *cache = scratch_file(&dir, "clean");
  tgi_corpus_options o = options();
  tgi_corpus corpus;
  tg_error error;
  o.cache_directory = cache;
  write_text(path, "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\"}");
  EXPECT_ERROR(tgi_corpus_load(path, &o, &corpus, &error), TG_BAD_FILE, "line 3: byte ", error);
  assert_int_equal(count_entries(cache), 0);
}

static void without_a_cache_tokens_are_in_memory(void **state)
{
  (void)state;
  tgi_corpus_options o = options();
  const char *path = scratch_file(&dir, "d.txt"), *file = scratch_file(&dir, "file");
  write_text(path, "text");
  write_text(file, "not a directory");
  o.cache_directory = file;
  tgi_corpus corpus = load(path, &o);
  assert_string_equal(corpus.cache, "");
  assert_non_null(strstr(corpus.note, "no cache, tokens are kept in memory: "));
  EXPECT_CORPUS(&corpus, 't', 'e', 'x', 't', -1);
  tgi_corpus_close(&corpus);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_is_cut_behind_end_tokens),
      cmocka_unit_test(documents_end_with_the_end_token),
      cmocka_unit_test(ids_come_from_either_format),
      cmocka_unit_test(damaged_lines_are_named),
      cmocka_unit_test(damaged_ids_are_named),
      cmocka_unit_test(the_cache_is_used_and_never_trusted),
      cmocka_unit_test(damage_leaves_no_cache),
      cmocka_unit_test(without_a_cache_tokens_are_in_memory),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
