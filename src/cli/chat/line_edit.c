#include "line_edit.h"

#include <stdlib.h>

static const char kPasteEnd[] = "\033[201~";

/* ---- the text ---- */

static bool continues(char byte)
{
  return ((unsigned char)byte & 0xc0) == 0x80;
}

static size_t before(const tgi_line *l)
{
  size_t at = l->cursor;
  while (at > 0 && continues(l->text.bytes[--at])) {
  }
  return at;
}

static size_t after(const tgi_line *l)
{
  size_t at = l->cursor;
  if (at < l->text.size) {
    at++;
  }
  while (at < l->text.size && continues(l->text.bytes[at])) {
    at++;
  }
  return at;
}

static void note_change(tgi_line *l, size_t at)
{
  l->changed_from = at < l->changed_from ? at : l->changed_from;
}

static void erase(tgi_line *l, size_t from, size_t to)
{
  note_change(l, from);
  tgi_text_erase(&l->text, from, to);
  l->cursor = from;
}

static tgi_line_event insert(tgi_line *l, const char *bytes, size_t size)
{
  if (!tgi_text_insert(&l->text, l->cursor, bytes, size)) {
    return TGI_LINE_NO_MEMORY;
  }
  note_change(l, l->cursor);
  l->cursor += size;
  return TGI_LINE_OPEN;
}

static size_t word_start(const tgi_line *l)
{
  size_t at = l->cursor;
  while (at > 0 && strchr(" \n", l->text.bytes[at - 1])) {
    at--;
  }
  while (at > 0 && !strchr(" \n", l->text.bytes[at - 1])) {
    at--;
  }
  return at;
}

/* ---- keys ---- */

static tgi_line_event press(tgi_line *l, char byte)
{
  switch (byte) {
  case '\r':
  case '\n':
    return TGI_LINE_DONE;
  case 0x01: /* Ctrl-A */
    l->cursor = 0;
    break;
  case 0x02: /* Ctrl-B */
    l->cursor = before(l);
    break;
  case 0x04: /* Ctrl-D */
    if (l->text.size == 0) {
      return TGI_LINE_END;
    }
    erase(l, l->cursor, after(l));
    break;
  case 0x05: /* Ctrl-E */
    l->cursor = l->text.size;
    break;
  case 0x06: /* Ctrl-F */
    l->cursor = after(l);
    break;
  case 0x08: /* Ctrl-H */
  case 0x7f: /* Backspace */
    erase(l, before(l), l->cursor);
    break;
  case 0x0b: /* Ctrl-K */
    erase(l, l->cursor, l->text.size);
    break;
  case 0x0e: /* Ctrl-N */
    return TGI_LINE_NEWER;
  case 0x10: /* Ctrl-P */
    return TGI_LINE_OLDER;
  case 0x15: /* Ctrl-U */
    erase(l, 0, l->cursor);
    break;
  case 0x17: /* Ctrl-W */
    erase(l, word_start(l), l->cursor);
    break;
  case 0x1b:
    l->state = TGI_KEY_ESCAPE;
    break;
  default:
    return (unsigned char)byte >= ' ' || byte == '\t' ? insert(l, &byte, 1) : TGI_LINE_OPEN;
  }
  return TGI_LINE_OPEN;
}

static tgi_line_event move(tgi_line *l, char key)
{
  switch (key) {
  case 'A':
    return TGI_LINE_OLDER;
  case 'B':
    return TGI_LINE_NEWER;
  case 'C':
    l->cursor = after(l);
    break;
  case 'D':
    l->cursor = before(l);
    break;
  case 'F':
    l->cursor = l->text.size;
    break;
  case 'H':
    l->cursor = 0;
    break;
  default:
    break;
  }
  return TGI_LINE_OPEN;
}

/** "200~" and its like, without the "~". */
static void take_number(tgi_line *l)
{
  l->key[l->num_key] = '\0';
  switch (atoi(l->key)) {
  case 1:
  case 7:
    l->cursor = 0;
    break;
  case 3:
    erase(l, l->cursor, after(l));
    break;
  case 4:
  case 8:
    l->cursor = l->text.size;
    break;
  case 200:
    l->state = TGI_KEY_PASTE;
    l->after_return = false;
    break;
  default:
    break;
  }
}

static tgi_line_event sequence(tgi_line *l, char byte)
{
  if ((unsigned char)byte < 0x40) { /* a parameter */
    if (l->num_key < TGI_KEY_BYTES - 1) {
      l->key[l->num_key++] = byte;
    }
    return TGI_LINE_OPEN;
  }
  tgi_line_event event = TGI_LINE_OPEN;
  l->state = TGI_KEY_PLAIN;
  if (byte == '~') {
    take_number(l);
  } else {
    event = move(l, byte);
  }
  l->num_key = 0;
  return event;
}

static tgi_line_event escape(tgi_line *l, char byte)
{
  l->num_key = 0;
  l->state = byte == '['    ? TGI_KEY_SEQUENCE
             : byte == 'O'  ? TGI_KEY_SINGLE
             : byte == 0x1b ? TGI_KEY_ESCAPE
                            : TGI_KEY_PLAIN;
  if (byte == '\r' || byte == '\n') {
    return insert(l, "\n", 1);
  }
  return l->state == TGI_KEY_PLAIN ? press(l, byte) : TGI_LINE_OPEN;
}

/* ---- pasted text ---- */

static tgi_line_event paste_byte(tgi_line *l, char byte)
{
  const bool second = byte == '\n' && l->after_return;
  l->after_return = byte == '\r';
  if (second) {
    return TGI_LINE_OPEN;
  }
  return insert(l, byte == '\r' ? "\n" : &byte, 1);
}

/** The key's bytes are the beginning of the mark that ends a paste. */
static tgi_line_event paste(tgi_line *l, char byte)
{
  tgi_line_event event = TGI_LINE_OPEN;
  if (byte != kPasteEnd[l->num_key]) {
    const size_t n = l->num_key;
    l->num_key = 0;
    for (size_t i = 0; i < n && event == TGI_LINE_OPEN; i++) {
      event = paste_byte(l, l->key[i]);
    }
    if (byte != kPasteEnd[0]) {
      return event ? event : paste_byte(l, byte);
    }
  }
  l->key[l->num_key++] = byte;
  if (l->num_key == sizeof kPasteEnd - 1) {
    l->num_key = 0;
    l->state = TGI_KEY_PLAIN;
  }
  return event;
}

tgi_line_event tgi_line_push(tgi_line *l, char byte)
{
  switch (l->state) {
  case TGI_KEY_ESCAPE:
    return escape(l, byte);
  case TGI_KEY_SEQUENCE:
    return sequence(l, byte);
  case TGI_KEY_SINGLE:
    l->state = TGI_KEY_PLAIN;
    return move(l, byte);
  case TGI_KEY_PASTE:
    return paste(l, byte);
  case TGI_KEY_PLAIN:
    break;
  }
  return press(l, byte);
}

void tgi_line_clear(tgi_line *l)
{
  l->text.size = l->cursor = l->num_key = l->changed_from = 0;
  l->state = TGI_KEY_PLAIN;
}

void tgi_line_free(tgi_line *l)
{
  tgi_text_free(&l->text);
  *l = (tgi_line){0};
}
