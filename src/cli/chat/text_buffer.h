/** Text that grows at its end. */
#ifndef TGI_CLI_CHAT_TEXT_BUFFER_H
#define TGI_CLI_CHAT_TEXT_BUFFER_H

#include "core/growing.h"
#include <stdbool.h>
#include <string.h>

/** Starts zeroed; the bytes are to be freed. */
typedef struct tgi_text_buffer {
  char *bytes;
  size_t size, room;
} tgi_text_buffer;

/** Puts bytes in at the place `at`, at most the size. False: no memory; the text stays. */
static inline bool tgi_text_insert(tgi_text_buffer *t, size_t at, const char *bytes, size_t size)
{
  char *grown = tgi_grow(t->bytes, &t->room, t->size + size, 1);
  if (!grown) {
    return false;
  }
  t->bytes = grown;
  memmove(grown + at + size, grown + at, t->size - at);
  memcpy(grown + at, bytes, size);
  t->size += size;
  return true;
}

static inline bool tgi_text_append(tgi_text_buffer *t, const char *bytes, size_t size)
{
  return tgi_text_insert(t, t->size, bytes, size);
}

static inline void tgi_text_erase(tgi_text_buffer *t, size_t from, size_t to)
{
  if (to > from) {
    memmove(t->bytes + from, t->bytes + to, t->size - to);
    t->size -= to - from;
  }
}

static inline void tgi_text_free(tgi_text_buffer *t)
{
  free(t->bytes);
  *t = (tgi_text_buffer){0};
}

#endif
