/* Where the chat template of a directory comes from, and what is said of directories without one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "scratch_directory.h"
#include "tegula/chat_template.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static tg_error error;
static scratch dir;

static void put(const char *name, const char *text)
{
  write_text(scratch_file(&dir, name), text);
}

/** Loads and renders; `name` as in tg_chat_request. */
static void expect_text(const char *source, const char *name, bool tools, const char *wanted)
{
  tg_chat_template *t = NULL;
  tg_chat_text out;
  EXPECT_OK(tg_chat_template_load(dir.path, source, &t, &error), error);
  const tg_chat_request request = {.messages = "[{\"role\": \"user\", \"content\": \"hi\"}]",
                                   .tools = tools ? "[]" : NULL,
                                   .name = name};
  EXPECT_OK(tg_chat_template_render(t, &request, &out, &error), error);
  assert_string_equal(out.text, wanted);
  tg_chat_text_release(&out);
  tg_chat_template_destroy(t);
}

static void refuse(const char *source, tg_status status, const char *message)
{
  tg_chat_template *t;
  EXPECT_ERROR(tg_chat_template_load(dir.path, source, &t, &error), status, message, error);
  assert_null(t);
  assert_null(strstr(error.text, "byte 0: expected a"));
}

static int make_directory(void **state)
{
  (void)state;
  dir = scratch_make();
  return 0;
}

static int remove_directory(void **state)
{
  (void)state;
  scratch_remove(&dir);
  return 0;
}

static void sources_have_an_order(void **state)
{
  (void)state;
  put("tokenizer_config.json", "{\"chat_template\": \"config {{ bos_token }}\", \"bos_token\": "
                               "\"<s>\", \"model_max_length\": 1000000000000000019884624838656}");
  expect_text(NULL, NULL, true, "config <s>");
  put("chat_template.jinja", "file {{ bos_token }}\n");
  expect_text(NULL, NULL, true, "file <s>");
  mkdir(scratch_file(&dir, "additional_chat_templates"), 0777);
  put("additional_chat_templates/tool_use.jinja", "tools");
  put("additional_chat_templates/.hidden.jinja", "{% if %}");
  put("additional_chat_templates/rag.jinja", "{% if %}");
  expect_text(NULL, NULL, true, "tools");
  expect_text(NULL, NULL, false, "file <s>");
  expect_text(NULL, "default", true, "file <s>");
  put("own.jinja", "own {{ bos_token }}");
  expect_text(scratch_file(&dir, "own.jinja"), NULL, false, "own <s>");
  expect_text("chatml", NULL, false, "<|im_start|>user\nhi<|im_end|>\n");
  expect_text("llama3", NULL, false, "<s><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>");
  /* One that is broken matters to those who ask for it. */
  tg_chat_template *t = NULL;
  tg_chat_text out;
  EXPECT_OK(tg_chat_template_load(dir.path, NULL, &t, &error), error);
  EXPECT_ERROR(tg_chat_template_render(t, &(tg_chat_request){.messages = "[{}]", .name = "rag"},
                                       &out, &error),
               TG_BAD_FILE, "additional_chat_templates/rag.jinja: line 1, column 7: expected",
               error);
  assert_string_equal(tg_chat_template_text(t, "rag"), "{% if %}");
  assert_null(tg_chat_template_text(t, "none"));
  tg_chat_template_destroy(t);
}

static void configs_list_templates_and_tokens(void **state)
{
  (void)state;
  put("tokenizer_config.json",
      "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ eos_token }}{{ pad_token }}"
      "{{ image_token }}\"}, {\"name\": \"tool_use\", \"template\": \"tools\"}], \"eos_token\": "
      "{\"content\": \"</s>\"}, \"extra_special_tokens\": {\"image_token\": \"<img>\"}}");
  put("special_tokens_map.json", "{\"pad_token\": \"<pad>\"}");
  expect_text(NULL, NULL, false, "</s><pad><img>");
  expect_text(NULL, NULL, true, "tools");
}

static void faults_are_named_with_their_file(void **state)
{
  (void)state;
  char text[SCRATCH_PATH + 200];
  refuse(NULL, TG_UNSUPPORTED,
         ": expected a chat template in chat_template.jinja or tokenizer_config.json, got none");
  refuse(scratch_file(&dir, "nosuch.jinja"), TG_IO, "/nosuch.jinja: expected to open it");
  put("tokenizer_config.json", "{\"chat_template\": null}");
  refuse(NULL, TG_UNSUPPORTED, ": expected a chat template in chat_template.jinja or");
  put("tokenizer_config.json", "{");
  refuse(NULL, TG_BAD_FILE, "/tokenizer_config.json: byte 1: expected JSON");
  put("tokenizer_config.json", "{\"chat_template\": 7}");
  snprintf(text, sizeof text, "%s/tokenizer_config.json: chat_template: expected a text or a list",
           dir.path);
  refuse(NULL, TG_BAD_FILE, text);
  put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"x\"}]}");
  refuse(NULL, TG_BAD_FILE, "chat_template: expected texts for name and template, got {");
  put("tokenizer_config.json", "{\"chat_template\": \"a\\n{% if %}\"}");
  refuse(NULL, TG_BAD_FILE, "tokenizer_config.json: default: line 2, column 7: expected");
  put("chat_template.jinja", "\n\n {{ 'a' }");
  refuse(NULL, TG_BAD_FILE, "/chat_template.jinja: line 3, column ");
  remove(scratch_file(&dir, "chat_template.jinja"));
  mkdir(scratch_file(&dir, "chat_template.jinja"), 0777);
  refuse(NULL, TG_BAD_FILE, "/chat_template.jinja: expected a regular file, got a directory");
}

static void directories_are_needed(void **state)
{
  (void)state;
  tg_chat_template *t;
  EXPECT_ERROR(tg_chat_template_load(scratch_file(&dir, "none"), NULL, &t, &error), TG_IO,
               "/none: expected to find this directory, got No such file", error);
  EXPECT_ERROR(tg_chat_template_load(scratch_file(&dir, "none"), "chatml", &t, &error), TG_IO,
               "/none: expected to find this directory", error);
  put("file", "");
  EXPECT_ERROR(tg_chat_template_load(scratch_file(&dir, "file"), NULL, &t, &error), TG_BAD_FILE,
               "/file: expected a directory, got a file", error);
  EXPECT_ERROR(tg_chat_template_load(NULL, NULL, &t, &error), TG_BAD_ARGUMENT,
               "chat_template_load: expected a directory or a source, got neither", error);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int main(void)
{
  const struct CMUnitTest tests[] = {
      IN_DIRECTORY(sources_have_an_order),
      IN_DIRECTORY(configs_list_templates_and_tokens),
      IN_DIRECTORY(faults_are_named_with_their_file),
      IN_DIRECTORY(directories_are_needed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
