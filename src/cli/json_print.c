#include "json_print.h"

#include "console.h"
#include <stdio.h>

void tgi_json_print(json_t *root, size_t flags)
{
  char *text = NULL;
  tg_error error = {0};
  if (tgi_json_text("stdout", root, flags | TGI_JSON_DIGITS, &text, &error) == TG_OK) {
    puts(text);
  } else {
    (void)tgi_console_fail("tegula", "%s", error.text);
  }
  tgi_json_free_text(text);
}
