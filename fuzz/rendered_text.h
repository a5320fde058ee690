/** What holds of every rendering of a chat template, for the fuzz targets. */
#ifndef TEGULA_FUZZ_RENDERED_TEXT_H
#define TEGULA_FUZZ_RENDERED_TEXT_H

#include "chat/template_set.h"
#include "files/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kFuzzSteps = 200000 }; /* a template that never ends costs the fuzzer a blink */

static inline void require(int condition)
{
  if (!condition) {
    abort();
  }
}

/** Ranges lie in the text, in order, and cut no character. */
static inline void check_ranges(const tg_chat_text *t, const tg_byte_range *ranges, size_t count,
                                int apart)
{
  size_t behind = 0;
  for (size_t i = 0; i < count; i++) {
    const tg_byte_range r = ranges[i];
    require(r.begin < r.end && r.end <= t->size);
    require(!apart || r.begin >= behind);
    require(((unsigned char)t->text[r.begin] & 0xc0) != 0x80);
    require(((unsigned char)t->text[r.end] & 0xc0) != 0x80); /* or the terminator */
    behind = r.end;
  }
}

/** `<name>: [line <line>, column <column>: ]expected ...`, and a place within the text. */
static inline void check_message(const tg_error *error, tg_status status, const char *name,
                                 const char *text, size_t size)
{
  const size_t length = strlen(name);
  unsigned line = 0, column = 0, lines = 1;
  require(error->status == status);
  require(strncmp(error->text, name, length) == 0 && strstr(error->text, ": expected "));
  if (sscanf(error->text + length, ": line %u, column %u", &line, &column) == 2) {
    for (size_t i = 0; i < size; i++) {
      lines += text[i] == '\n' || text[i] == '\r';
    }
    require(line >= 1 && line <= lines && column >= 1 && column <= size + 1);
  }
}

/** Renders twice: the same text both times, or the same refusal. */
static inline tg_status render_twice(const tg_chat_template *t, const tg_chat_request *args,
                                     tg_error *error)
{
  tg_chat_text out, again;
  tg_error second = {0};
  const tg_status status = tgi_chat_template_render(t, args, kFuzzSteps, &out, error);
  require(tgi_chat_template_render(t, args, kFuzzSteps, &again, &second) == status);
  require(out.size == again.size && out.num_untrusted == again.num_untrusted);
  require(strcmp(error->text, second.text) == 0);
  if (status == TG_OK) {
    require(memcmp(out.text, again.text, out.size + 1) == 0 && out.text[out.size] == '\0');
    require(tgi_utf8_valid_bytes(out.text, out.size) == out.size);
    check_ranges(&out, out.untrusted, out.num_untrusted, 1);
    check_ranges(&out, out.generated, out.num_generated, 0);
  } else {
    require(status == TG_BAD_ARGUMENT || status == TG_UNSUPPORTED);
    require(out.text == NULL && out.untrusted == NULL && out.generated == NULL);
  }
  tg_chat_text_release(&out);
  tg_chat_text_release(&again);
  return status;
}

#endif
