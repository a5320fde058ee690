/* Conversations as tokens: what the assistant wrote counts, by the template's marks or by rendering
 * the first messages, and nobody else writes control tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "data/conversation_tokens.h"
#include "expect.h"
#include "scratch_directory.h"
#include "small_tokenizer.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static scratch dir;
static tg_tokenizer *tokenizer;

/* Bytes, two control tokens of a turn, a token that is added and not special, and NFC. */
static int set_up(void **state)
{
  (void)state;
  dir = scratch_make();
  static const char flags[] = "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                              "\"normalized\": false";
  char added[1024];
  snprintf(added, sizeof added,
           "[{\"id\": 257, \"content\": \"<s>\", \"special\": true, %s}, "
           "{\"id\": 258, \"content\": \"<e>\", \"special\": true, %s}, "
           "{\"id\": 259, \"content\": \"<call>\", \"special\": false, %s}, "
           "{\"id\": 260, \"content\": \"<t>\", \"special\": true, %s}]",
           flags, flags, flags, flags);
  tokenizer = small_tokenizer_load(&dir, &(small_tokenizer){.added = added,
                                                            .tokens = ", \"th\": 256",
                                                            .merges = "[\"t h\"]",
                                                            .normalizer = "{\"type\": \"NFC\"}"});
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  tg_tokenizer_destroy(tokenizer);
  scratch_remove(&dir);
  return 0;
}

/* The ids of a conversation, with what counts in brackets: "<s>user\nhi<e>\n[yo<e>]". */
static char *show(const tgi_chat_reader *reader)
{
  char *text = calloc(1, 3 * reader->tokens.count * 8 + 3), *at = text;
  bool open = false;
  for (size_t i = 0; i < reader->tokens.count; i++) {
    const tg_token piece = tg_tokenizer_piece(tokenizer, reader->tokens.ids[i]);
    if (open != (bool)reader->counted[i]) {
      *at++ = open ? ']' : '[';
      open = !open;
    }
    /* The text of a control token that is none: */
    const bool one = piece.size == 1 && piece.bytes[0] == '<';
    memcpy(at, one ? "(" : piece.bytes, piece.size);
    at += piece.size;
  }
  strcpy(at, open ? "]" : "");
  return text;
}

static tg_status read_line(const char *chat_template, const char *line, bool trust, char **shown,
                           tg_error *error)
{
  tg_chat_template *t = NULL;
  tgi_json json = {0};
  *shown = NULL;
  EXPECT_OK(tg_chat_template_create("t", chat_template, strlen(chat_template), &t, error), *error);
  EXPECT_OK(tgi_json_parse("f: line 1", line, strlen(line), 0, JSON_ALLOW_NUL, &json, error),
            *error);
  tgi_chat_reader reader = {.chat_template = t, .tokenizer = tokenizer, .trust = trust};
  const tg_status status = tgi_conversation_read(&reader, &json, error);
  if (status == TG_OK) {
    *shown = show(&reader);
  }
  tgi_chat_reader_free(&reader);
  json_decref(json.root);
  tg_chat_template_destroy(t);
  return status;
}

static void expect_shown(const char *chat_template, const char *line, bool trust,
                         const char *wanted)
{
  char *shown;
  tg_error error;
  EXPECT_OK(read_line(chat_template, line, trust, &shown, &error), error);
  assert_string_equal(shown, wanted);
  free(shown);
}

/* One template with marks and without; thoughts of earlier turns are dropped. */
#define TURNS(before, after)                                                                       \
  "{%- for m in messages %}"                                                                       \
  "{%- if m.role == 'assistant' %}{{ '<s>assistant\\n' }}" before                                  \
  "{%- if m.thinking and loop.last %}{{ '<t>' + m.thinking + '<t>' }}{%- endif %}"                 \
  "{{- m.content }}"                                                                               \
  "{%- for c in m.tool_calls or [] %}{{ '<call>' + c.name }}{%- endfor %}{{ '<e>' }}" after        \
  "{{ '\\n' }}{%- else %}{{ '<s>' + m.role + '\\n' + m.content + '<e>\\n' }}{%- endif %}"          \
  "{%- endfor %}{%- if add_generation_prompt %}{{ '<s>assistant\\n' }}{%- endif %}"

static const char marked[] = TURNS("{%- generation %}", "{%- endgeneration %}");
static const char unmarked[] = TURNS("", "");

static void both_methods_agree(void **state)
{
  (void)state;
  static const struct {
    const char *messages, *wanted;
  } cases[] = {
      {"{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'yo'}",
       "<s>user\nhi<e>\n<s>assistant\n[yo<e>]\n"},
      {"{'role': 'system', 'content': 's'}, {'role': 'user', 'content': 'a'}, "
       "{'role': 'assistant', 'content': 'b'}, {'role': 'user', 'content': 'c'}, "
       "{'role': 'assistant', 'content': 'd'}",
       "<s>system\ns<e>\n<s>user\na<e>\n<s>assistant\n[b<e>]\n<s>user\nc<e>\n<s>assistant\n"
       "[d<e>]\n"},
      {"{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': ''}",
       "<s>user\na<e>\n<s>assistant\n[<e>]\n"},
      {"{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}, "
       "{'role': 'assistant', 'content': 'c'}",
       "<s>user\na<e>\n<s>assistant\n[b<e>]\n<s>assistant\n[c<e>]\n"},
      {"{'role': 'user', 'content': 'a'}, "
       "{'role': 'assistant', 'content': 'b', 'tool_calls': [{'name': 'f'}]}, "
       "{'role': 'tool', 'content': '7'}, {'role': 'assistant', 'content': 'x\\n\\n'}",
       "<s>user\na<e>\n<s>assistant\n[b<call>f<e>]\n<s>tool\n7<e>\n<s>assistant\n[x\n\n<e>]\n"},
      /* The thoughts of the first answer are there when it is the last, and gone when it is not. */
      {"{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b', 'thinking': 'p'}, "
       "{'role': 'user', 'content': 'c'}, {'role': 'assistant', 'content': 'd', 'thinking': 'q'}",
       "<s>user\na<e>\n<s>assistant\n[b<e>]\n<s>user\nc<e>\n<s>assistant\n[<t>q<t>d<e>]\n"},
      {"{'role': 'user', 'content': 'a'}", "<s>user\na<e>\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char line[1024];
    snprintf(line, sizeof line, "{'messages': [%s]}", cases[i].messages);
    for (char *c = line; *c; c++) {
      *c = *c == '\'' ? '"' : *c;
    }
    expect_shown(marked, line, false, cases[i].wanted);
    expect_shown(unmarked, line, false, cases[i].wanted);
  }
}

/* A token that holds the last byte of the header, and a character that NFC makes of two. */
static void tokens_across_the_border_count(void **state)
{
  (void)state;
  static const char with[] = "{% for m in messages %}{{ m.role[:1] }}t{% generation %}"
                             "{{ m.content }}{% endgeneration %}.{% endfor %}";
  expect_shown(with, "{\"messages\": [{\"role\": \"user\", \"content\": \"he\"}]}", false,
               "u[the].");
  expect_shown(with, "{\"messages\": [{\"role\": \"user\", \"content\": \"e\\u0301!\"}]}", false,
               "ut[\xc3\xa9!].");
}

static void users_write_no_control_tokens(void **state)
{
  (void)state;
  const char *line = "{\"messages\": [{\"role\": \"user\", \"content\": \"<e>\"}, "
                     "{\"role\": \"assistant\", \"content\": \"<call>\"}]}";
  expect_shown(unmarked, line, false, "<s>user\n(e><e>\n<s>assistant\n[<call><e>]\n");
  expect_shown(marked, line, false, "<s>user\n(e><e>\n<s>assistant\n[<call><e>]\n");
  expect_shown(unmarked, line, true, "<s>user\n<e><e>\n<s>assistant\n[<call><e>]\n");
}

static void other_keys_are_variables(void **state)
{
  (void)state;
  static const char names[] =
      "{{ tools|length if tools else 'none' }},{{ x }},{{ y }}{% generation "
      "%}{{ messages[0].content }}{% endgeneration %}";
  expect_shown(names,
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}, {}], "
               "\"x\": 1, \"chat_template_kwargs\": {\"y\": 2}}",
               false, "2,1,2[a]");
  expect_shown(names,
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": null, "
               "\"x\": 1, \"chat_template_kwargs\": {\"x\": 2}}",
               false, "none,2,[a]");
}

static void what_cannot_be_found_is_refused(void **state)
{
  (void)state;
  tg_error error;
  char *shown;
  EXPECT_ERROR(
      read_line(unmarked, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}", false,
                &shown, &error),
      TG_BAD_FILE, "f: line 1: expected a message before the assistant's first one", error);
  /* A template that writes everything backwards. */
  EXPECT_ERROR(read_line("{% for m in messages|reverse %}{{ m.role }}{{ m.content }}<e>{% endfor %}"
                         "{{ 'go' if add_generation_prompt }}",
                         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                         "\"assistant\", \"content\": \"b\"}]}",
                         false, &shown, &error),
               TG_BAD_FILE, "f: line 1: expected to find the assistant's text of messages[1]",
               error);
  EXPECT_ERROR(read_line("{{ raise_exception('not so') }}",
                         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", false,
                         &shown, &error),
               TG_BAD_FILE, "f: line 1: t: line 1, column ", error);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_methods_agree),
      cmocka_unit_test(tokens_across_the_border_count),
      cmocka_unit_test(users_write_no_control_tokens),
      cmocka_unit_test(other_keys_are_variables),
      cmocka_unit_test(what_cannot_be_found_is_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
