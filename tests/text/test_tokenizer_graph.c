/* Which tokenizer.json, vocab.json and merges.txt are read, and what the refusals of others say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/utf8.h"
#include "small_tokenizer.h"
#include "text/bpe/byte_alphabet.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static tg_error error;

#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"
#define SPLIT(pattern) SPLIT_AS(pattern, "Isolated")
#define SPLIT_AS(pattern, how)                                                                     \
  "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern "\"}, \"behavior\": \"" how "\"}"
#define SEQUENCE(parts) "{\"type\": \"Sequence\", \"pretokenizers\": [" parts "]}"
#define TEMPLATE(single)                                                                           \
  "{\"type\": \"TemplateProcessing\", \"single\": " single                                         \
  ", \"special_tokens\": {\"a\": {\"ids\": [97]}, \"far\": {\"ids\": [256]}, \"x\": 1}}"
#define TEXT "{\"Sequence\": {\"id\": \"A\"}}"
#define SPECIAL(name) "{\"SpecialToken\": {\"id\": \"" name "\"}}"

/** The text loads, or is refused with a message that begins with the file and holds `part`. */
static void check_text(const scratch *dir, const char *text, tg_status status, const char *part)
{
  tg_tokenizer *t = NULL;
  write_text(scratch_file(dir, "tokenizer.json"), text);
  if (status == TG_OK) {
    EXPECT_OK(tg_tokenizer_load(dir->path, &t, &error), error);
  } else {
    EXPECT_ERROR(tg_tokenizer_load(dir->path, &t, &error), status, part, error);
    assert_null(t);
    if (!strstr(error.text, "/tokenizer.json: ")) {
      fail_msg("expected the file, got %s", error.text);
    }
  }
  tg_tokenizer_destroy(t);
}

static void check(const small_tokenizer *s, tg_status status, const char *part)
{
  const scratch dir = scratch_make();
  char *text = small_tokenizer_text(s);
  check_text(&dir, text, status, part);
  free(text);
  scratch_remove(&dir);
}

typedef struct stage_case {
  const char *text;
  tg_status status;
  const char *part;
} stage_case;

static void normalisers_are_nfc_or_none(void **state)
{
  (void)state;
  static const stage_case cases[] = {
      {"{\"type\": \"NFC\"}", TG_OK, ""},
      {"{\"type\": \"Sequence\", \"normalizers\": []}", TG_OK, ""},
      {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}", TG_OK, ""},
      {"{\"type\": \"NFKC\"}", TG_UNSUPPORTED,
       "normalizer: expected NFC or none, got {\"type\":\"NFKC\"}"},
      {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
       "\"Lowercase\"}]}",
       TG_UNSUPPORTED, "normalizer: normalizers[1]: expected NFC or none, got {"},
      {"7", TG_UNSUPPORTED, "normalizer: expected NFC or none, got 7"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    check(&(small_tokenizer){.normalizer = cases[i].text}, cases[i].status, cases[i].part);
  }
}

static void pre_tokenizers_end_with_bytes(void **state)
{
  (void)state;
  static const stage_case cases[] = {
      {BYTE_LEVEL, TG_OK, ""},
      {"{\"type\": \"ByteLevel\"}", TG_OK, ""},
      {SEQUENCE(BYTE_LEVEL), TG_OK, ""},
      {SEQUENCE(SPLIT("a+") "," SPLIT("\\\\p{L}+") "," BYTE_LEVEL), TG_OK, ""},
      {"null", TG_UNSUPPORTED,
       "pre_tokenizer: expected ByteLevel, or a Sequence that ends with it, got null"},
      {"{\"type\": \"Whitespace\"}", TG_UNSUPPORTED, "pre_tokenizer: expected ByteLevel, or"},
      {"{\"type\": \"ByteLevel\", \"add_prefix_space\": true}", TG_UNSUPPORTED,
       "pre_tokenizer: add_prefix_space: expected false, got true"},
      {"{\"type\": \"ByteLevel\", \"use_regex\": 1}", TG_BAD_FILE,
       "pre_tokenizer: use_regex: expected true or false, got 1"},
      {SEQUENCE(""), TG_UNSUPPORTED, "pre_tokenizer: expected Split any number of times"},
      {SEQUENCE(SPLIT("a")), TG_UNSUPPORTED,
       "pre_tokenizer: pretokenizers[0]: expected ByteLevel at the end, got {"},
      {SEQUENCE("{\"type\": \"Digits\"}," BYTE_LEVEL), TG_UNSUPPORTED,
       "pre_tokenizer: pretokenizers[0]: expected Split, got {\"type\":\"Digits\"}"},
      {SEQUENCE(SPLIT_AS("a", "Removed") "," BYTE_LEVEL), TG_UNSUPPORTED,
       "pre_tokenizer: pretokenizers[0]: behavior: expected \"Isolated\" and no invert, got "
       "\"Removed\""},
      {SEQUENCE("{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}}," BYTE_LEVEL),
       TG_UNSUPPORTED, "pre_tokenizer: pretokenizers[0]: pattern: expected {\"Regex\": ...}, got"},
      {SEQUENCE(SPLIT("a|(?<b>c)") "," BYTE_LEVEL), TG_UNSUPPORTED,
       "pre_tokenizer: pretokenizers[0]: pattern: Regex: byte 2 of the pattern: expected"},
      {SEQUENCE(SPLIT("a") "," SPLIT("a") "," SPLIT("a") "," SPLIT("a") "," SPLIT("a") "," SPLIT(
           "a") "," SPLIT("a") "," SPLIT("a") "," SPLIT("a") "," BYTE_LEVEL),
       TG_UNSUPPORTED, "pretokenizers[8]: pattern: Regex: expected at most 8 patterns"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    check(&(small_tokenizer){.pre_tokenizer = cases[i].text}, cases[i].status, cases[i].part);
  }
}

static void post_processors_put_tokens_around(void **state)
{
  (void)state;
  static const stage_case cases[] = {
      {"{\"type\": \"ByteLevel\", \"trim_offsets\": false}", TG_OK, ""},
      {TEMPLATE("[" TEXT "]"), TG_OK, ""},
      {TEMPLATE("[" SPECIAL("a") "," SPECIAL("a") "," TEXT "," SPECIAL("a") "]"), TG_OK, ""},
      {"{\"type\": \"BertProcessing\"}", TG_UNSUPPORTED,
       "post_processor: expected ByteLevel and one TemplateProcessing, or none, got {"},
      {"{\"type\": \"Sequence\", \"processors\": [" TEMPLATE("[" TEXT "]") "," TEMPLATE("[" TEXT
                                                                                        "]") "]}",
       TG_UNSUPPORTED, "post_processor: processors[1]: expected ByteLevel and one"},
      {TEMPLATE("7"), TG_BAD_FILE, "post_processor: single: expected an array, got 7"},
      {TEMPLATE("[]"), TG_UNSUPPORTED, "post_processor: single: expected the text, got []"},
      {TEMPLATE("[" TEXT "," TEXT "]"), TG_UNSUPPORTED, "single[1]: expected the text once"},
      {TEMPLATE("[" SPECIAL("b") "," TEXT "]"), TG_BAD_FILE,
       "post_processor: single[0]: expected a Sequence, or a SpecialToken with ids"},
      {TEMPLATE("[" SPECIAL("x") "," TEXT "]"), TG_BAD_FILE, "single[0]: expected a Sequence, or"},
      {TEMPLATE("[" SPECIAL("far") "," TEXT "]"), TG_BAD_FILE,
       "single[0]: expected an id of the vocabulary, got 256"},
      {TEMPLATE("[" SPECIAL("a") "," SPECIAL("a") "," SPECIAL("a") "," SPECIAL("a") "," SPECIAL(
           "a") "," SPECIAL("a") "," SPECIAL("a") "," SPECIAL("a") "," SPECIAL("a") "," TEXT "]"),
       TG_UNSUPPORTED, "single[8]: expected at most 8 tokens at each end"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    check(&(small_tokenizer){.post_processor = cases[i].text}, cases[i].status, cases[i].part);
  }
}

#define TOKEN(id, content) "{\"id\": " id ", \"content\": \"" content "\"}"

static void added_tokens_are_numbered_in_turn(void **state)
{
  (void)state;
  static const stage_case cases[] = {
      {"null", TG_BAD_FILE, "added_tokens: expected an array, got null"},
      {"[" TOKEN("256", "x1") "," TOKEN("257", "x2") "," TOKEN("97", "a") "]", TG_OK, ""},
      {"[7]", TG_BAD_FILE, "added_tokens[0]: expected an added token with id and content, got 7"},
      {"[" TOKEN("256", "") "]", TG_BAD_FILE, "added_tokens[0]: expected an added token with id"},
      {"[" TOKEN("\"256\"", "x") "]", TG_BAD_FILE, "added_tokens[0]: expected an added token"},
      {"[" TOKEN("257", "xy") "]", TG_BAD_FILE,
       "added_tokens[0]: id: expected 256 (the next, as Hugging Face's library numbers them), got "
       "257"},
      {"[" TOKEN("256", "a") "]", TG_BAD_FILE,
       "added_tokens[0]: id: expected 97 (as the vocabulary has it), got 256"},
      {"[" TOKEN("256", "xy") "," TOKEN("256", "xz") "]", TG_BAD_FILE,
       "added_tokens[1]: id: expected 257"},
      {"[" TOKEN("256", "xy") "," TOKEN("256", "xy") "]", TG_BAD_FILE,
       "added_tokens[1]: expected each content once, got {"},
      {"[{\"id\": 256, \"content\": \"xy\", \"single_word\": true}]", TG_UNSUPPORTED,
       "added_tokens[0]: expected an added token that is found within words too, got {"},
      {"[{\"id\": 256, \"content\": \"xy\", \"lstrip\": 0}]", TG_BAD_FILE,
       "added_tokens[0]: lstrip: expected true or false, got 0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    check(&(small_tokenizer){.added = cases[i].text}, cases[i].status, cases[i].part);
  }
}

static void models_are_bpe_over_all_bytes(void **state)
{
  (void)state;
  static const struct {
    small_tokenizer s;
    tg_status status;
    const char *part;
  } cases[] = {
      {{.model = ", \"dropout\": null, \"unk_token\": \"a\", \"byte_fallback\": true"}, TG_OK, ""},
      {{.model = ", \"dropout\": 0.1"}, TG_UNSUPPORTED, "model: dropout: expected none, got 0.1"},
      {{.model = ", \"end_of_word_suffix\": \"</w>\""},
       TG_UNSUPPORTED,
       "model: expected no subword prefix or suffix"},
      {{.model = ", \"ignore_merges\": \"yes\""},
       TG_BAD_FILE,
       "model: ignore_merges: expected true or false, got \"yes\""},
      {{.tokens = ", \"a\": 256"},
       TG_BAD_FILE,
       "model: vocab: expected each name once, got \"a\": "},
      {{.tokens = ", \"\\u0061\": 256"}, TG_BAD_FILE, "model: vocab: expected each name once"},
      {{.tokens = ", \"xy\": 97"}, TG_BAD_FILE, "expected a name for an id that no other has, got"},
      {{.tokens = ", \"xy\": -1"},
       TG_BAD_FILE,
       "model: vocab: expected an integer from 0 to 4194303"},
      {{.tokens = ", \"xy\": 4194304"}, TG_BAD_FILE, "expected an integer from 0 to 4194303"},
      {{.tokens = ", \"xy\": 256.0"}, TG_BAD_FILE, "expected an integer from 0 to 4194303"},
      {{.tokens = ", \"\": 256"}, TG_BAD_FILE, "model: vocab: expected names that are not empty"},
      {{.tokens = ", \"xy\" 256"}, TG_BAD_FILE, "model: vocab: expected a colon, got 256}"},
      {{.tokens = ", \"xy\": 256, "}, TG_BAD_FILE, "model: vocab: expected a string, got }"},
      {{.tokens = ", \"xy\": 300"}, TG_OK, ""},
      {{.merges = "[\"a b\"]"},
       TG_BAD_FILE,
       "model: merges: expected a pair that makes a token of the vocabulary, got \"a b\"]"},
      {{.tokens = ", \"ab\": 256", .merges = "[\"a b\", [\"a\", \"b\"]]"}, TG_OK, ""},
      {{.tokens = ", \"abc\": 256", .merges = "[\"ab c\"]"},
       TG_BAD_FILE,
       "model: merges: expected a pair of tokens of the vocabulary, got \"ab c\"]"},
      {{.merges = "[\"a b c\"]"}, TG_BAD_FILE, "model: merges: expected two names in the byte"},
      {{.merges = "[\"a\"]"},
       TG_BAD_FILE,
       "model: merges: expected two names in the byte alphabet"},
      {{.merges = "[[\"a\", \"\\u20ac\"]]"},
       TG_BAD_FILE,
       "expected two names in the byte alphabet"},
      {{.merges = "[[\"a\"]]"}, TG_BAD_FILE, "model: merges: expected two names, got ]]"},
      {{.merges = "[[\"a\", \"b\", \"c\"]]"},
       TG_BAD_FILE,
       "model: merges: expected two names, got ,"},
      {{.merges = "[7]"}, TG_BAD_FILE, "model: merges: expected a string, got 7]"},
      {{.merges = "{}"}, TG_BAD_FILE, "model: merges: expected an array, got {}"},
      {{.merges = "null"}, TG_BAD_FILE, "model: merges: expected an array, got null"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    check(&cases[i].s, cases[i].status, cases[i].part);
  }
}

/** The usual text with `from` replaced by `to`. */
static void check_changed(const char *from, const char *to, tg_status status, const char *part)
{
  const scratch dir = scratch_make();
  char *good = small_tokenizer_text(&(small_tokenizer){0});
  char *at = strstr(good, from);
  assert_non_null(at);
  char *changed = malloc(strlen(good) + strlen(to) + 1);
  sprintf(changed, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
  check_text(&dir, changed, status, part);
  free(changed);
  free(good);
  scratch_remove(&dir);
}

static void other_documents_are_refused(void **state)
{
  (void)state;
  check_changed("\"type\": \"BPE\", ", "", TG_OK, ""); /* as old files have it */
  check_changed("\"BPE\"", "\"WordPiece\"", TG_UNSUPPORTED,
                "model: type: expected BPE, got \"WordPiece\"");
  check_changed("\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"Fuse\"",
                TG_UNSUPPORTED, "decoder: expected ByteLevel, got {\"type\":\"Fuse\"}");
  check_changed("\"A\": 65, ", "", TG_UNSUPPORTED,
                "model: vocab: expected a token for every byte, got none for 0x41");
  check_changed("\"model\": {", "\"model\": 3, \"x\": {", TG_BAD_FILE,
                "model: expected an object, got 3");
  check_changed("\"model\"", "\"m\"", TG_BAD_FILE, "model: expected an object, got none");
  check_changed("\"vocab\"", "\"v\"", TG_BAD_FILE, "model: vocab: expected an object, got none");
  check_changed("\"merges\"", "\"m\"", TG_BAD_FILE, "model: merges: expected an array, got none");
  check_changed("\"vocab\": ", "\"vocab\": 5, \"v\": ", TG_BAD_FILE,
                "model: vocab: expected an object, got 5");
  check_changed("\"merges\"", "\"vocab\"", TG_BAD_FILE, "duplicate object key");
  check_changed("{", "[{", TG_BAD_FILE, "expected JSON, got this error: ']' expected near end of");
  check_changed("}}\n", "}", TG_BAD_FILE, "expected JSON, got this error: '}' expected near end");
  check_changed("}}\n", "}} x", TG_BAD_FILE, "expected JSON, got this error: end of file expected");
  const scratch dir = scratch_make();
  check_text(&dir, "[]", TG_BAD_FILE, "expected an object, got []");
  check_text(&dir, "", TG_BAD_FILE, "byte 0: expected JSON");
  scratch_remove(&dir);
}

/** Where a text is not to blame, the message names the path and no byte. */
static void places_without_a_tokenizer_are_named(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_tokenizer *none;
  char text[SCRATCH_PATH + 100];
  snprintf(text, sizeof text, "%s/tokenizer.json: expected to open it for reading (or vocab.json",
           dir.path);
  EXPECT_ERROR(tg_tokenizer_load(dir.path, &none, &error), TG_IO, text, error);
  mkdir(scratch_file(&dir, "tokenizer.json"), 0777);
  EXPECT_ERROR(tg_tokenizer_load(dir.path, &none, &error), TG_BAD_FILE,
               "/tokenizer.json: expected a regular file, got a directory", error);
  write_text(scratch_file(&dir, "file"), "");
  EXPECT_ERROR(tg_tokenizer_load(scratch_file(&dir, "file"), &none, &error), TG_BAD_FILE,
               "/file: expected a directory, got a file", error);
  scratch_remove(&dir);
  EXPECT_ERROR(tg_tokenizer_load(dir.path, &none, &error), TG_IO,
               ": expected to find this directory, got No such file", error);
}

/* ---- vocab.json and merges.txt ---- */

static void write_pair(const scratch *dir, const char *tokens, const char *merges)
{
  char *whole = small_tokenizer_text(&(small_tokenizer){.tokens = tokens});
  char *begin = strstr(whole, "\"vocab\": ") + strlen("\"vocab\": ");
  *(strstr(begin, ", \"merges\": []")) = '\0';
  write_text(scratch_file(dir, "vocab.json"), begin);
  write_text(scratch_file(dir, "merges.txt"), merges);
  free(whole);
}

static tg_tokenizer *load_pair(const scratch *dir, const char *settings)
{
  tg_tokenizer *t = NULL;
  write_text(scratch_file(dir, "tokenizer_config.json"), settings);
  EXPECT_OK(tg_tokenizer_load(dir->path, &t, &error), error);
  return t;
}

static const char kTokens[] = ", \"th\": 256, \"the\": 257, \"12\": 258";
static const char kMerges[] = "#version: 0.2\nt h\r\n1 2\nth e\n";

static void pairs_of_files_have_their_classes_graph(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  write_pair(&dir, kTokens, kMerges);
  tg_tokenizer *t = load_pair(&dir, "{\"tokenizer_class\": \"GPT2Tokenizer\"}");
  EXPECT_IDS(t, "the 12<|endoftext|>", 0, 257, ' ', 258, 259);
  EXPECT_IDS(t, "e\xcc\x81", 0, 'e', 0xcc, 0x81);
  tg_tokenizer_destroy(t);
  t = load_pair(&dir, "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"eos_token\": \"<|end|>\", "
                      "\"added_tokens_decoder\": {\"260\": {\"content\": \"<|end|>\", \"special\": "
                      "true}, \"259\": {\"content\": \"<|begin|>\", \"special\": true}}}");
  EXPECT_IDS(t, "the 12<|end|><|begin|>", 0, 257, ' ', '1', '2', 260, 259);
  EXPECT_IDS(t, "e\xcc\x81", 0, 0xc3, 0xa9);
  assert_int_equal(tg_tokenizer_special(t, "eos_token"), 260);
  tg_tokenizer_destroy(t);
  /* without a class: by the model */
  write_text(scratch_file(&dir, "config.json"), "{\"model_type\": \"qwen3\"}");
  t = load_pair(&dir, "{\"model_max_length\": 1000000000000000019884624838656}");
  EXPECT_IDS(t, "12", 0, '1', '2');
  tg_tokenizer_destroy(t);
  remove(scratch_file(&dir, "tokenizer_config.json"));
  EXPECT_OK(tg_tokenizer_load(dir.path, &t, &error), error);
  tg_tokenizer_destroy(t);
  scratch_remove(&dir);
}

static void check_pair(const scratch *dir, tg_status status, const char *part)
{
  tg_tokenizer *t;
  EXPECT_ERROR(tg_tokenizer_load(dir->path, &t, &error), status, part, error);
  assert_null(t);
}

static void broken_pairs_are_refused(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *settings = scratch_file(&dir, "tokenizer_config.json");
  write_pair(&dir, kTokens, kMerges);
  check_pair(&dir, TG_IO, "/config.json: expected to open it");
  write_text(scratch_file(&dir, "config.json"), "{\"model_type\": \"bert\"}");
  check_pair(&dir, TG_UNSUPPORTED, "/config.json: model_type: expected gpt2, qwen2 or");
  write_text(settings, "{\"tokenizer_class\": \"BertTokenizer\"}");
  check_pair(&dir, TG_UNSUPPORTED,
             "/tokenizer_config.json: tokenizer_class: expected GPT2Tokenizer or");
  write_text(settings,
             "{\"tokenizer_class\": \"GPT2Tokenizer\", \"added_tokens_decoder\": {\"258\": "
             "{\"content\": \"<x>\"}}}");
  check_pair(&dir, TG_BAD_FILE, "/tokenizer_config.json: added_tokens[0]: id: expected 259");
  write_text(settings,
             "{\"tokenizer_class\": \"GPT2Tokenizer\", \"added_tokens_decoder\": {\"a\": {}}}");
  check_pair(&dir, TG_BAD_FILE, "added_tokens[0]: expected an added token with id and content");
  write_text(settings, "{\"tokenizer_class\": \"GPT2Tokenizer\"}");
  write_pair(&dir, kTokens, "t h\n\nth e\n");
  check_pair(&dir, TG_BAD_FILE, "/merges.txt: byte 4: expected two names in the byte alphabet of");
  write_pair(&dir, kTokens, "t h\nt\xff h\n");
  check_pair(&dir, TG_BAD_FILE, "/merges.txt: byte 5: expected UTF-8, got \\xff h");
  write_pair(&dir, kTokens, "t h\nh t");
  check_pair(&dir, TG_BAD_FILE, "/merges.txt: byte 4: expected a pair that makes a token");
  write_pair(&dir, kTokens, "");
  write_text(scratch_file(&dir, "vocab.json"), "{\"a\": 0}");
  check_pair(&dir, TG_UNSUPPORTED,
             "/vocab.json: expected a token for every byte, got none for 0x00");
  write_text(scratch_file(&dir, "vocab.json"), "{\"a\": 0} x");
  check_pair(&dir, TG_BAD_FILE, "/vocab.json: byte 9: expected nothing behind the object, got x");
  write_text(scratch_file(&dir, "vocab.json"), "{\"a\": 0");
  check_pair(&dir, TG_BAD_FILE, "/vocab.json: byte 7: expected a comma or a }, got the end of");
  remove(scratch_file(&dir, "merges.txt"));
  check_pair(&dir, TG_IO, "/tokenizer.json: expected to open it for reading (or vocab.json");
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(normalisers_are_nfc_or_none),
      cmocka_unit_test(pre_tokenizers_end_with_bytes),
      cmocka_unit_test(post_processors_put_tokens_around),
      cmocka_unit_test(added_tokens_are_numbered_in_turn),
      cmocka_unit_test(models_are_bpe_over_all_bytes),
      cmocka_unit_test(other_documents_are_refused),
      cmocka_unit_test(places_without_a_tokenizer_are_named),
      cmocka_unit_test(pairs_of_files_have_their_classes_graph),
      cmocka_unit_test(broken_pairs_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
