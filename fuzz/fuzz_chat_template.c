/* Templates: what is read renders a conversation, or refuses it at a place in the template. */
#include "rendered_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char messages[] =
    "[{\"role\": \"system\", \"content\": \"Be brief.\"},"
    " {\"role\": \"user\", \"content\": \"Gr\xc3\xb6\xc3\x9f\x65 <|x|> \xf0\x9f\x99\x82\\n\"},"
    " {\"role\": \"assistant\", \"content\": \"\", \"thinking\": \"It is 5.\", \"tool_calls\":"
    " [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1.5, \"b\": [null, true]}}}]},"
    " {\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": \"a,b  c\"}]}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const tg_chat_request request = {
      .messages = messages,
      .tools = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]",
      .documents = "[{\"title\": \"T\", \"text\": \"<|x|>\"}]",
      .arguments = "{\"bos_token\": \"<s>\", \"x\": [3, 1, -2, 2.5, \"a\", \"B\"], \"s\": \"ab\"}",
      .date = "2026-11-27T09:30:05",
      .add_generation_prompt = true,
  };
  const char *text = (const char *)data;
  tg_chat_template *t;
  tg_error error = {0};
  tg_status status = tg_chat_template_create("fuzz", text, size, &t, &error);
  if (status != TG_OK) {
    require(t == NULL && (status == TG_BAD_FILE || status == TG_UNSUPPORTED));
    check_message(&error, status, "fuzz", text, size);
    return 0;
  }
  const char *kept = tg_chat_template_text(t, "default");
  require(memcmp(kept, text, size) == 0 && kept[size] == '\0');
  status = render_twice(t, &request, &error);
  if (status != TG_OK) {
    check_message(&error, status, "fuzz", text, size);
  }
  tg_chat_template_destroy(t);
  return 0;
}
