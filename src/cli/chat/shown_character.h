/** Characters as they may be written to a terminal: no text can control it. */
#ifndef TGI_CLI_CHAT_SHOWN_CHARACTER_H
#define TGI_CLI_CHAT_SHOWN_CHARACTER_H

#include <stddef.h>

typedef struct tgi_shown {
  char text[8];
  size_t size; /* bytes of `text` */
  size_t used; /* bytes of the character, at least 1 */
  int columns;
} tgi_shown;

/**
 * The character at the start of `text`, of `size` >= 1 bytes: itself, "^[" for a control character
 * below U+0080, four spaces for a tab, U+FFFD for a later one and for bytes that are no UTF-8.
 */
tgi_shown tgi_show_character(const char *text, size_t size);

#endif
