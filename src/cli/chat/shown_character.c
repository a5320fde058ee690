#include "shown_character.h"

#include "files/utf8.h"
#include <string.h>
#include <utf8proc.h>

static tgi_shown as_text(const char *text, size_t size, size_t used, int columns)
{
  tgi_shown shown = {.size = size, .used = used, .columns = columns};
  memcpy(shown.text, text, size);
  return shown;
}

tgi_shown tgi_show_character(const char *text, size_t size)
{
  uint32_t point;
  const size_t used = tgi_utf8_decode(text, size, &point);
  if (used == 0 || (point >= 0x80 && point < 0xa0)) {
    return as_text("\xef\xbf\xbd", 3, used ? used : 1, 1);
  }
  if (point == '\t') {
    return as_text("    ", 4, used, 4);
  }
  if (point < ' ' || point == 0x7f) {
    const char caret[2] = {'^', (char)(point ^ 0x40)};
    return as_text(caret, 2, used, 2);
  }
  return as_text(text, used, used, utf8proc_charwidth((utf8proc_int32_t)point));
}
