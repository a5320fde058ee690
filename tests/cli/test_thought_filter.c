/* What a model says, cut into thoughts and answer, however it arrives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "cli/chat/spoken_text.h"
#include <stdio.h>

typedef struct heard {
  char text[512]; /* thoughts in [ ] */
  bool in_thought;
} heard;

static bool hear(void *user, tgi_speech kind, const char *bytes, size_t size)
{
  heard *h = user;
  const bool thought = kind == TGI_SPEECH_THOUGHT;
  if (thought != h->in_thought) {
    strcat(h->text, thought ? "[" : "]");
    h->in_thought = thought;
  }
  strncat(h->text, bytes, size);
  return true;
}

/* In pieces of every size. */
static void expect_heard(bool channels, bool thinking, const char *said, const char *wanted)
{
  for (size_t piece = 1; piece <= strlen(said); piece++) {
    heard h = {.in_thought = false};
    tgi_thought_filter f = tgi_thought_filter_begin(channels, thinking, hear, &h);
    for (size_t at = 0; at < strlen(said); at += piece) {
      const size_t left = strlen(said) - at;
      assert_true(tgi_thought_filter_push(&f, said + at, left < piece ? left : piece));
    }
    assert_true(tgi_thought_filter_finish(&f));
    assert_string_equal(h.text, wanted);
  }
}

static void thoughts_in_marks(void **state)
{
  (void)state;
  expect_heard(false, false, "plain", "plain");
  expect_heard(false, false, "<think>\nhm\n</think>\n\nYes.", "[\nhm\n]\n\nYes.");
  expect_heard(false, false, " \n<think>a</think>b", " \n[a]b");
  expect_heard(false, true, "hm</think>Yes <think> is a word", "[hm]Yes <think> is a word");
  expect_heard(false, false, "I say <think>x</think>", "I say <think>x</think>");
  expect_heard(false, false, "<thin", "<thin");
  expect_heard(false, false, "<<think>", "<<think>");
  expect_heard(false, true, "no end </thin", "[no end </thin");
  expect_heard(false, true, "a < b </</think>c", "[a < b </]c");
  expect_heard(false, false, "<think></think>c", "c");
}

static void channels(void **state)
{
  (void)state;
  expect_heard(true, false,
               "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final"
               "<|message|>Yes <|x|>.",
               "[hm]Yes <|x|>.");
  expect_heard(true, false, "<|channel|>commentary<|message|>Wait.<|end|><|start|>assi", "Wait.");
  expect_heard(true, false, "no header", "no header");
  char text[400] = "";
  for (int i = 0; i < 300; i++) {
    strcat(text, "h");
  }
  strcat(text, "<|channel|>final<|message|>Yes.");
  expect_heard(true, false, text, "Yes.");
}

/* ---- as printed and kept ---- */

typedef struct said {
  char *out;
  size_t size;
  tgi_spoken spoken;
} said;

static tgi_stop_strings *stops; /* of all texts; NULL: none */

/* Prints into memory. */
static said speak(tgi_spoken_style style, const char *text, bool thinking)
{
  said s = {.out = NULL};
  FILE *before = stdout;
  stdout = open_memstream(&s.out, &s.size);
  tgi_spoken_begin(&s.spoken, style, false, thinking, stops);
  for (size_t i = 0; text[i]; i++) { /* tokens may be parts of characters */
    assert_true(tgi_spoken_push(&s.spoken, text + i, 1));
  }
  assert_true(tgi_spoken_finish(&s.spoken));
  fclose(stdout);
  stdout = before;
  return s;
}

static void expect_said(tgi_spoken_style style, const char *text, bool thinking, const char *out,
                        const char *answer, const char *thought)
{
  said s = speak(style, text, thinking);
  assert_string_equal(s.out, out);
  assert_int_equal(s.spoken.answer.size, strlen(answer));
  assert_memory_equal(s.spoken.answer.size ? s.spoken.answer.bytes : "", answer, strlen(answer));
  assert_int_equal(s.spoken.thought.size, strlen(thought));
  assert_memory_equal(s.spoken.thought.size ? s.spoken.thought.bytes : "", thought,
                      strlen(thought));
  tgi_spoken_free(&s.spoken);
  free(s.out);
}

static void printed_and_kept(void **state)
{
  (void)state;
  static const char kText[] = "\n<think>\nh\xc3\xa4\n</think>\n\nY\xc3\xa4s.";
  const tgi_spoken_style plain = {.terminal = false}, hides = {.hides = true},
                         dims = {.terminal = true, .dims = true};
  expect_said(plain, "Yes.", false, "Yes.\n", "Yes.", "");
  expect_said(plain, "Yes.\n", false, "Yes.\n", "Yes.\n", "");
  expect_said(plain, kText, false, "\n<think>\nh\xc3\xa4\n</think>\n\nY\xc3\xa4s.\n", "Y\xc3\xa4s.",
              "h\xc3\xa4");
  expect_said(hides, kText + 1, false, "Y\xc3\xa4s.\n", "Y\xc3\xa4s.", "h\xc3\xa4");
  expect_said(dims, "hm</think>Yes.", true, "\033[2m<think>hm</think>\033[0mYes.\n", "Yes.", "hm");
  /* Cut within a thought: what was dimmed ends. */
  expect_said(dims, "hm", true, "\033[2m<think>hm</think>\033[0m\n", "", "hm");
  /* A model does not control the terminal, and half a character is none. */
  expect_said(dims, "a\033[31mb\tc\xc3", false, "a^[[31mb\tc\xef\xbf\xbd\n",
              "a\033[31mb\tc\xef\xbf\xbd", "");
  expect_said(plain, "a\033[31mb", false, "a\033[31mb\n", "a\033[31mb", "");
}

static void stop_strings(void **state)
{
  (void)state;
  static const char *const texts[] = {"<|im_end|>", "\xe4\xbd\xa0"};
  const tgi_spoken_style plain = {.terminal = false};
  assert_int_equal(tgi_stop_strings_create(texts, 2, &stops, NULL), TG_OK);
  expect_said(plain, "Yes.<|im_end|>\nNo.", false, "Yes.\n", "Yes.", "");
  expect_said(plain, "<|im_end|>", false, "\n", "", "");
  expect_said(plain, "a<|im_<|im_end|>b", false, "a<|im_\n", "a<|im_", "");
  expect_said(plain, "a\xe4\xbd\xa1\xe4\xbd\xa0z", false, "a\xe4\xbd\xa1\n", "a\xe4\xbd\xa1", "");
  expect_said(plain, "hm<|im_end|>b", true, "<think>hm</think>\n", "", "hm");
  expect_said(plain, "Yes <|im_", false, "Yes <|im_\n", "Yes <|im_", "");
  tgi_stop_strings_destroy(stops);
  stops = NULL;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(thoughts_in_marks),
      cmocka_unit_test(stop_strings),
      cmocka_unit_test(channels),
      cmocka_unit_test(printed_and_kept),
  };
  return cmocka_run_group_tests_name("thought_filter", tests, NULL, NULL);
}
