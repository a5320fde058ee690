#include "template_options.h"

#include "chat/chat_date.h"
#include "files/file_error.h"
#include "files/json_file.h"
#include <stdio.h>
#include <string.h>

tg_status tgi_template_arguments(const tgi_option_list *list, char **text, tg_error *error)
{
  json_t *all = tgi_json_new();
  for (int i = 0; i < list->count; i++) {
    const char *equals = strchr(list->items[i], '=');
    json_t *value =
        equals ? json_loads(equals + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (!value || equals == list->items[i]) {
      json_decref(value);
      json_decref(all);
      *text = NULL;
      return tgi_file_error(error, TG_BAD_ARGUMENT, "--template-arg", TGI_NO_BYTE,
                            "KEY=JSON, got %s",
                            tgi_quote(list->items[i], strlen(list->items[i])).text);
    }
    char key[256];
    snprintf(key, sizeof key, "%.*s", (int)(equals - list->items[i]), list->items[i]);
    json_object_set_new(all, key, value);
  }
  return tgi_json_text("--template-arg", all, 0, text, error);
}

int tgi_template_check(const tgi_command *command, const tgi_template_options *o)
{
  char *text;
  tg_error error;
  struct tm date;
  if (tgi_template_arguments(&o->arguments, &text, &error) == TG_BAD_ARGUMENT) {
    return tgi_usage_error(command, "%s", error.text);
  }
  tgi_json_free_text(text);
  if (o->date && !tgi_chat_date(o->date, &date)) {
    return tgi_usage_error(
        command, "--date: expected a date such as 2026-11-27 or 2026-11-27T09:30:00, got %s",
        tgi_quote(o->date, strlen(o->date)).text);
  }
  return 0;
}
