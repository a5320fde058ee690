/*
 * Conversations: messages, then tools, documents and arguments, with the byte 0x1e between. The
 * library's own templates and one that looks at everything render them or refuse them, and what a
 * user wrote is marked wherever it is printed.
 */
#include "rendered_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Goes through whatever there is, prints it in the three ways, and takes texts apart. */
static const char everything[] =
    "{%- macro show(v) -%}\n"
    "{%- if v is mapping -%}{% for k, x in v.items() %}{{ k }}={{ show(x) }};{% endfor %}\n"
    "{%- elif v is string -%}{{ v }}{{ v|trim }}{{ v[1:-1] }}{{ v.split() }}{{ v|length }}\n"
    "{%- elif v is iterable -%}{% for x in v %}{{ loop.index }}{{ show(x) }}{% endfor %}\n"
    "{%- else -%}{{ v }}{%- endif -%}\n"
    "{%- endmacro -%}\n"
    "{%- for m in messages -%}\n"
    "{{ m.role }}{{ m }}{{ m|tojson }}{{ m|tojson(indent=2) }}{{ show(m) }}{{ m|dictsort }}\n"
    "{%- generation -%}{{ m.content }}{%- endgeneration -%}\n"
    "{%- endfor -%}\n"
    "{{ tools }}{{ documents|tojson }}{{ x }}{{ show(y) if y is defined }}{{ tools == documents }}";

/* Alone what each user wrote, with "|" behind. */
static const char users[] = "{% for m in messages if m.role == 'user' and m.content is string %}"
                            "{{ m.content }}|{% endfor %}";

static const char bare[] = "{% for m in messages %}{{ m.content }}{% endfor %}";

static tg_chat_template *made[5];

static void make_templates(void)
{
  tg_error error;
  require(tg_chat_template_load(NULL, "chatml", &made[0], &error) == TG_OK);
  require(tg_chat_template_load(NULL, "llama3", &made[1], &error) == TG_OK);
  require(tg_chat_template_create("t", everything, sizeof everything - 1, &made[2], &error) ==
          TG_OK);
  require(tg_chat_template_create("t", users, sizeof users - 1, &made[3], &error) == TG_OK);
  require(tg_chat_template_create("t", bare, sizeof bare - 1, &made[4], &error) == TG_OK);
}

/** Every byte but the signs behind is marked. */
static void check_users(const tg_chat_request *request)
{
  tg_chat_text out;
  tg_error error;
  if (tgi_chat_template_render(made[3], request, kFuzzSteps, &out, &error) != TG_OK) {
    return;
  }
  size_t at = 0;
  for (size_t i = 0; i < out.num_untrusted; i++) {
    for (; at < out.untrusted[i].begin; at++) {
      require(out.text[at] == '|');
    }
    at = out.untrusted[i].end;
  }
  for (; at < out.size; at++) {
    require(out.text[at] == '|');
  }
  tg_chat_text_release(&out);
}

/** The texts of the input, each terminated; those that are not there stay NULL. */
static void divide(char *text, const char *parts[4])
{
  for (int i = 0; i < 4; i++) {
    parts[i] = text;
    char *end = strchr(text, '\x1e');
    if (!end) {
      return;
    }
    *end = '\0';
    text = end + 1;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *text = malloc(size + 1);
  const char *parts[4] = {NULL, NULL, NULL, NULL};
  require(text != NULL);
  memcpy(text, data, size);
  text[size] = '\0';
  divide(text, parts);
  if (!made[0]) {
    make_templates();
  }
  const tg_chat_request request = {.messages = parts[0],
                                   .tools = parts[1],
                                   .documents = parts[2],
                                   .arguments = parts[3],
                                   .date = "2026-11-27",
                                   .add_generation_prompt = size % 2 == 0};
  for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
    tg_error error = {0};
    const tg_status status = render_twice(made[i], &request, &error);
    require(status == error.status && (status == TG_OK || strstr(error.text, ": expected ")));
  }
  check_users(&request);
  free(text);
  return 0;
}
