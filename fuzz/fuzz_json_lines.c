/* Lines of JSON to train on: documents and conversations, by a template with marks and by one
 * without. */
#include "data/conversation_tokens.h"
#include "data/json_lines.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char marked[] =
    "{% for m in messages %}<|endoftext|>{{ m.role }}:{% if m.role == 'assistant' %}{% generation "
    "%}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{{ x }}{{ tools }}{% endif %}"
    "{% endfor %}";
static const char unmarked[] =
    "{% for m in messages %}<|endoftext|>{{ m.role }}:{% if m.role == 'assistant' and not "
    "loop.last "
    "%}{{ m.content[1:] }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|endoftext|>assistant:{% endif %}";

static void require(bool condition)
{
  if (!condition) {
    abort();
  }
}

/* Loaded once: they do not change. */
static tgi_chat_reader *make_readers(void)
{
  static tgi_chat_reader readers[2];
  static const char *const texts[] = {marked, unmarked};
  if (!readers[0].chat_template) {
    tg_tokenizer *tokenizer;
    require(tg_tokenizer_create_bytes(&tokenizer, NULL) == TG_OK);
    for (int i = 0; i < 2; i++) {
      tg_chat_template *t;
      require(tg_chat_template_create("t", texts[i], strlen(texts[i]), &t, NULL) == TG_OK);
      readers[i] = (tgi_chat_reader){.chat_template = t, .tokenizer = tokenizer};
    }
  }
  return readers;
}

static void read_conversation(tgi_chat_reader *reader, const tgi_json *line)
{
  tg_error error = {TG_OK, ""};
  const tg_status status = tgi_conversation_read(reader, line, &error);
  require(status == TG_OK || status == TG_BAD_FILE);
  if (status != TG_OK) {
    require(strncmp(error.text, "fuzz: line ", 11) == 0);
    return;
  }
  const tgi_spanned_ids *tokens = &reader->tokens;
  require(tokens->count == tokens->spans.count);
  for (size_t i = 0; i < tokens->count; i++) {
    const tg_text_range span = tokens->spans.list[i];
    require(span.begin < span.end && (i == 0 || tokens->spans.list[i - 1].end == span.begin));
    require(reader->counted[i] <= 1);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  tgi_chat_reader *readers = make_readers();
  tgi_json_lines lines = {.path = "fuzz", .text = (const char *)data, .size = size};
  tg_error error = {TG_OK, ""};
  bool found = true, has_messages;
  tg_status status = TG_OK;
  while (status == TG_OK && found) {
    status = tgi_json_lines_next(&lines, &found, &error);
    if (status == TG_OK && found) {
      status = tgi_json_line_kind(&lines, &has_messages, &error);
    }
    for (int i = 0; i < 2 && status == TG_OK && found && has_messages; i++) {
      read_conversation(&readers[i], &lines.json);
    }
  }
  tgi_json_lines_end(&lines);
  require(status == TG_OK || status == TG_BAD_FILE);
  if (status != TG_OK) {
    require(strncmp(error.text, "fuzz: line ", 11) == 0 && strstr(error.text, "expected "));
  }
  return 0;
}
