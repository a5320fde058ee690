/* Chat templates: golden texts of transformers, places of errors, bounds, and what the ranges
 * beside a text say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "chat/template_set.h"
#include "expect.h"
#include "files/json_file.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tg_error error;

static tg_chat_template *make(const char *text)
{
  tg_chat_template *t = NULL;
  EXPECT_OK(tg_chat_template_create("t", text, strlen(text), &t, &error), error);
  return t;
}

/* ---- golden texts ---- */

static tgi_json load(const char *name)
{
  char path[1024];
  tgi_json json;
  snprintf(path, sizeof path, TEGULA_GOLDEN "/chat/%s", name);
  EXPECT_OK(tgi_json_load(path, 1 << 24, 0, &json, &error), error);
  return json;
}

static const char *text_of(const json_t *object, const char *key)
{
  return json_string_value(json_object_get(object, key));
}

static void compare_text(const char *what, const tg_chat_text *got, const json_t *text)
{
  const char *wanted = json_string_value(text);
  const size_t size = json_string_length(text);
  size_t same = 0;
  while (same < size && same < got->size && wanted[same] == got->text[same]) {
    same++;
  }
  if (same < size || same < got->size) {
    fail_msg("%s: byte %zu: expected \"%.40s\", got \"%.40s\"", what, same, wanted + same,
             got->text + same);
  }
}

static void compare_ranges(const char *what, const tg_chat_text *got, const json_t *ranges)
{
  assert_int_equal(got->num_generated, json_array_size(ranges));
  for (size_t i = 0; i < got->num_generated; i++) {
    const json_t *range = json_array_get(ranges, i);
    const json_int_t begin = json_integer_value(json_array_get(range, 0));
    const json_int_t end = json_integer_value(json_array_get(range, 1));
    if ((json_int_t)got->generated[i].begin != begin || (json_int_t)got->generated[i].end != end) {
      fail_msg("%s: generated[%zu]: expected %lld to %lld, got %zu to %zu", what, i,
               (long long)begin, (long long)end, got->generated[i].begin, got->generated[i].end);
    }
  }
}

/** Renders as a golden case says, whose text is null where the template refuses. */
static void check_case(const char *what, const tg_chat_template *t, const tg_chat_request *request,
                       const json_t *golden)
{
  const json_t *text = json_object_get(golden, "text");
  tg_chat_text got;
  const tg_status status = tg_chat_template_render(t, request, &got, &error);
  if (json_is_null(text)) {
    assert_int_equal(status, TG_BAD_ARGUMENT);
    return;
  }
  if (status != TG_OK) {
    fail_msg("%s: expected OK, got %s: %s", what, tg_status_name(status), error.text);
  }
  compare_text(what, &got, text);
  compare_ranges(what, &got, json_object_get(golden, "generated"));
  tg_chat_text_release(&got);
}

static void constructs_are_rendered_as_by_transformers(void **state)
{
  (void)state;
  tgi_json json = load("constructs.json");
  const json_t *cases = json_object_get(json.root, "cases");
  const tg_chat_request request = {.messages = text_of(json.root, "messages"),
                                   .arguments = text_of(json.root, "arguments"),
                                   .date = text_of(json.root, "date")};
  assert_true(json_array_size(cases) > 60);
  for (size_t i = 0; i < json_array_size(cases); i++) {
    const json_t *one = json_array_get(cases, i);
    tg_chat_template *t = make(text_of(one, "template"));
    check_case(text_of(one, "name"), t, &request, one);
    tg_chat_template_destroy(t);
  }
  json_decref(json.root);
}

static void conversations_are_rendered_as_by_transformers(void **state)
{
  (void)state;
  tgi_json json = load("conversations.json");
  const json_t *cases = json_object_get(json.root, "cases");
  size_t refused = 0;
  for (size_t i = 0; i < json_array_size(cases); i++) {
    const json_t *one = json_array_get(cases, i);
    const char *name = text_of(one, "conversation");
    const json_t *conversation = json_object_get(json_object_get(json.root, "conversations"), name);
    char path[1024], what[200];
    snprintf(path, sizeof path, TEGULA_GOLDEN "/chat/%s", text_of(one, "template"));
    snprintf(what, sizeof what, "%s: %s", text_of(one, "template"), name);
    tg_chat_template *t = NULL;
    EXPECT_OK(tg_chat_template_load(NULL, path, &t, &error), error);
    check_case(
        what, t,
        &(tg_chat_request){.messages = text_of(conversation, "messages"),
                           .tools = text_of(conversation, "tools"),
                           .arguments = text_of(conversation, "arguments"),
                           .date = text_of(json.root, "date"),
                           .add_generation_prompt = json_is_true(json_object_get(one, "prompt"))},
        one);
    refused += json_is_null(json_object_get(one, "text"));
    tg_chat_template_destroy(t);
  }
  assert_true(json_array_size(cases) > 100 && 10 * refused < json_array_size(cases));
  json_decref(json.root);
}

/* ---- errors ---- */

static const char kMessages[] = "[{\"role\": \"user\", \"content\": \"ab<x>cd\"}]";

/** Makes and renders a template, which one of both refuses with this message. */
static void refuse(const char *text, tg_status status, const char *message)
{
  tg_chat_template *t = NULL;
  tg_chat_text out = {0};
  memset(&error, 0, sizeof error);
  tg_status got = tg_chat_template_create("t", text, strlen(text), &t, &error);
  if (got == TG_OK) {
    got = tg_chat_template_render(t, &(tg_chat_request){.messages = kMessages}, &out, &error);
  }
  tg_chat_template_destroy(t);
  assert_null(out.text);
  if (got != status || error.status != status || !strstr(error.text, message)) {
    fail_msg("%.60s: expected %s: %s, got %s: %s", text, tg_status_name(status), message,
             tg_status_name(got), error.text);
  }
}

static void syntax_is_refused_at_its_place(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"{% if %}", "t: line 1, column 7: expected an expression, got \"%}\""},
      {"é🙂\n\n  {{ 1 ! 2 }}", "t: line 3, column 8: expected an expression, got !"},
      {"a\r\nb\r{{ f(a=1, 2) }}", "t: line 3, column 11: expected arguments by position before"},
      {"{{ (1 }}", "t: line 1, column 7: expected another bracket or none, got }"},
      {"{% for a in b %}\n{% endif %}", "t: line 2, column 4: expected "},
      {"{% if 1 %}\na", "t: line 2, column 2: expected "},
      {"x {# a", "t: line 1, column 3: expected an end of this comment"},
      {"{{ 'a }}", "t: line 1, column 4: expected an end of this text"},
      {"{% break %}", "t: line 1, column 4: expected a loop around break and continue"},
      {"{% nosuch %}", "t: line 1, column 4: expected a statement, got \"nosuch\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    refuse(cases[i].text, TG_BAD_FILE, cases[i].message);
  }
  tg_chat_template *t;
  EXPECT_ERROR(tg_chat_template_create("t", "a\xff", 2, &t, &error), TG_BAD_FILE,
               "t: expected UTF-8, got 0xff at byte 1", error);
  assert_null(t);
}

static void failures_are_named_at_their_place(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"a\n  {{ u.x }}", "t: line 2, column 7: expected something with attributes, got \"u\""},
      {"{{ messages[9].role }}", "column 15: expected something with attributes, got \"9\""},
      {"{% set a = 1 %}\n\n{{ 1 + 'a' }}",
       "t: line 3, column 6: expected values that \"+\" can join, got int and str"},
      {"{% for x in 5 %}{% endfor %}", "column 13: expected something to go through, got int 5"},
      {"{{ 1 / 0 }}", "column 6: expected a divisor other than 0"},
      {"日本{{ none|length }}", "column 11: expected something with a length, got None"},
      {"{{ raise_exception('no ' ~ messages|length) }}",
       "t: line 1, column 4: expected messages that the template accepts, got \"no 1\""},
      {"{% macro f() %}\n{{ 1() }}{% endmacro %}\n{{ f() }}",
       "t: line 2, column 4: expected something to call, got int"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    refuse(cases[i].text, TG_BAD_ARGUMENT, cases[i].message);
  }
  refuse("\n{{ 'a'|nosuch }}", TG_UNSUPPORTED,
         "t: line 2, column 8: expected a filter that is known, got \"nosuch\"");
  refuse("{% include 'x' %}", TG_UNSUPPORTED, "t: line 1, column 4: expected ");
  refuse("{{ 9223372036854775807 + 1 }}", TG_UNSUPPORTED, "64 bits");
}

static void conversations_that_are_none_are_refused(void **state)
{
  (void)state;
  static const struct {
    tg_chat_request request;
    const char *message;
  } cases[] = {
      {{0}, "t: expected messages that are a list of at least one, got an empty list"},
      {{.messages = "{}"}, "t: expected messages that are a list of at least one, got an object"},
      {{.messages = "[1]"}, "t: expected messages that are objects, got another value at index 0"},
      {{.messages = "[{]"}, "messages: byte 3: expected JSON"},
      {{.messages = kMessages, .tools = "[1]"}, "tools that are objects"},
      {{.messages = kMessages, .documents = "{}"}, "documents that are a list"},
      {{.messages = kMessages, .arguments = "[1]"}, "arguments that are an object"},
      {{.messages = kMessages, .arguments = "{\"tools\": 1}"}, "other names, got \"tools\""},
      {{.messages = kMessages, .name = "rag"}, "name: expected one of the templates, got \"rag\""},
      {{.messages = kMessages, .date = "2026-02-30"}, "a date such as"},
  };
  tg_chat_template *t = make("{{ x }}");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tg_chat_text out;
    EXPECT_ERROR(tg_chat_template_render(t, &cases[i].request, &out, &error), TG_BAD_ARGUMENT,
                 cases[i].message, error);
    assert_null(out.text);
  }
  tg_chat_template_destroy(t);
}

/* ---- bounds ---- */

static char *repeated(const char *part, int count)
{
  const size_t size = strlen(part);
  char *text = malloc(size * (size_t)count + 1);
  for (int i = 0; i < count; i++) {
    memcpy(text + (size_t)i * size, part, size + 1);
  }
  return text;
}

static void templates_that_never_end_are_ended(void **state)
{
  (void)state;
  static const char kSteps[] = "expected an end after at most 10000000 steps, got more";
  static const char kLevels[] = "expected at most 1000 levels of nesting, got more";
  static const char kBytes[] = "expected at most 536870912 bytes of values and text, got more";
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", kSteps},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", kLevels},
      {"{% macro f() %}{{ caller() }}{% endmacro %}"
       "{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}",
       kLevels},
      {"{% for a in range(9999) %}{{ 'x' * 100000 }}{% endfor %}", kSteps},
      {"{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor "
       "%}",
       kBytes},
      {"{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor "
       "%}{{ n.a|tojson }}",
       kSteps},
      {"{% set n = namespace(a=[1]) %}{% for i in range(2000) %}{% set n.a = [n.a] %}{% endfor "
       "%}{{ n.a }}",
       kLevels},
      {"{{ [0] * 9223372036854775807 }}", kSteps},
      {"{{ [1]|tojson(indent=9999999999) }}", kSteps},
      {"{% set s = ' ' * 1000000 %}{% for i in range(99999) %}{{ s.strip() }}{% endfor %}", kSteps},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    refuse(cases[i].text, TG_UNSUPPORTED, cases[i].message);
  }
}

static void nested_templates_are_refused(void **state)
{
  (void)state;
  static const char *const parts[][3] = {
      {"{% if 1 %}", "", "{% endif %}"},
      {"{{ 1", " + 1", " }}"},
      {"{{ x", ".a", " }}"},
      {"{{ ", "not ", "1 }}"},
      {"{{ 1", " if 0 else 1", " }}"},
      {"{% filter e", "|e", " %}{% endfilter %}"},
      {"{% set x | e", "|e", " %}{% endset %}"},
  };
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    const bool blocks = *parts[i][1] == '\0';
    char *middle = repeated(blocks ? parts[i][0] : parts[i][1], 4000);
    char *end = repeated(parts[i][2], blocks ? 4000 : 1);
    const size_t size = strlen(middle) + strlen(end) + 16;
    char *text = malloc(size);
    snprintf(text, size, "%s%s%s", blocks ? "" : parts[i][0], middle, end);
    refuse(text, TG_UNSUPPORTED, "expected at most 1000 levels of nesting, got more");
    free(text);
    free(end);
    free(middle);
  }
  char *large = repeated("x", TG_CHAT_TEMPLATE_MAX_BYTES + 1);
  refuse(large, TG_BAD_FILE, "at most 1048576 bytes");
  free(large);
}

/** A bound is a bound: one step less than a rendering takes is too few. */
static void steps_are_counted(void **state)
{
  (void)state;
  static const tg_chat_request request = {.messages = kMessages};
  tg_chat_template *t = make("{% for i in range(10) %}{{ i }}{% endfor %}");
  int64_t steps = 1;
  tg_chat_text out;
  while (tgi_chat_template_render(t, &request, steps, &out, &error) != TG_OK) {
    assert_int_equal(error.status, TG_UNSUPPORTED);
    assert_true(++steps < 1000);
  }
  assert_string_equal(out.text, "0123456789");
  assert_true(steps > 20);
  tg_chat_text_release(&out);
  tg_chat_template_destroy(t);
}

/* ---- ranges ---- */

/** The parts of the text that are untrusted, with "|" between. */
static void expect_untrusted(const char *text, const char *messages, const char *wanted)
{
  tg_chat_template *t = make(text);
  tg_chat_text out;
  char got[400] = "";
  EXPECT_OK(tg_chat_template_render(t, &(tg_chat_request){.messages = messages}, &out, &error),
            error);
  for (size_t i = 0, used = 0; i < out.num_untrusted; i++) {
    const tg_byte_range r = out.untrusted[i];
    used += (size_t)snprintf(got + used, sizeof got - used, "%s%.*s", i ? "|" : "",
                             (int)(r.end - r.begin), out.text + r.begin);
  }
  if (strcmp(got, wanted) != 0) {
    fail_msg("%s: expected \"%s\" as untrusted, got \"%s\"", text, wanted, got);
  }
  tg_chat_text_release(&out);
  tg_chat_template_destroy(t);
}

static void what_others_wrote_is_marked(void **state)
{
  (void)state;
  static const char roles[] =
      "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"Ü<|x|>\"},"
      " {\"role\": \"assistant\", \"content\": \"A\"}, {\"role\": \"tool\", \"content\": {\"k\": "
      "\"v\"}}, {\"role\": \"<us>\", \"content\": \"\"}, {\"content\": \"nobody\"}]";
  expect_untrusted("{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}", roles,
                   "Ü<|x|>|k|v|<us>|nobody");
  static const char *const cases[][2] = {
      {"{{ m }}", "ab<x>cd"},
      {"{{ '[' + m + ']' }}", "ab<x>cd"},
      {"{{ m[1:-1]|upper }}", "B<X>C"},
      {"{{ m.replace('b', '<s>') }}", "a|<x>cd"},
      {"{{ m.split('<')|join('<') }}", "ab|x>cd"},
      {"{{ {'k': m}|tojson }}", "ab<x>cd"},
      {"{{ '%s|%s' % (m, 1) }}", "ab<x>cd"},
      {"{% set x %}[{{ m }}]{% endset %}{{ x }}", "ab<x>cd"},
      {"{% macro f(a) %}{{ a|trim('a') }}{% endmacro %}{{ f(m) }}", "b<x>cd"},
      {"{{ m|length }}{{ m == 'ab<x>cd' }}", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[200];
    snprintf(text, sizeof text, "<s>{%% set m = messages[0].content %%}%s</s>", cases[i][0]);
    expect_untrusted(text, kMessages, cases[i][1]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constructs_are_rendered_as_by_transformers),
      cmocka_unit_test(conversations_are_rendered_as_by_transformers),
      cmocka_unit_test(syntax_is_refused_at_its_place),
      cmocka_unit_test(failures_are_named_at_their_place),
      cmocka_unit_test(conversations_that_are_none_are_refused),
      cmocka_unit_test(templates_that_never_end_are_ended),
      cmocka_unit_test(nested_templates_are_refused),
      cmocka_unit_test(steps_are_counted),
      cmocka_unit_test(what_others_wrote_is_marked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
