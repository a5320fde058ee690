/**
 * Stop strings: texts that end a text which arrives piece by piece, as the bytes of tokens do. They
 * are matched byte by byte, wherever pieces begin and end, also within characters.
 *
 *   pieces      "one, t"    "wo E"           "ND of it"
 *   ready       "one, t"    "wo "   ("E" held)   ""  (the stop string END is complete)
 *
 * What may be the beginning of a stop string is held until it is decided, so that neither a stop
 * string nor a part of one is ever handed on before the end of the text. The one that is complete
 * first ends the text; of those complete at the same byte the longest.
 *
 * Each stop string is an automaton (Knuth, Morris & Pratt 1977), so that a byte costs one step per
 * stop string.
 */
#ifndef TGI_GENERATION_STOP_STRINGS_H
#define TGI_GENERATION_STOP_STRINGS_H

#include "tegula/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct tgi_stop_strings tgi_stop_strings;

/**
 * `count` stop strings, which are copied; none is allowed, and then all bytes are ready at once.
 * Errors: BAD_ARGUMENT (an empty one), NO_MEMORY; *out is then NULL.
 */
tg_status tgi_stop_strings_create(const char *const *texts, size_t count, tgi_stop_strings **out,
                                  tg_error *error);

void tgi_stop_strings_destroy(tgi_stop_strings *stops);

/** Begins a new text. */
void tgi_stop_strings_reset(tgi_stop_strings *stops);

/** Bytes that are decided: part of the text. Valid until the next call. */
typedef struct tgi_ready_bytes {
  const char *bytes;
  size_t size;
} tgi_ready_bytes;

/**
 * Adds a piece of the text; *ready is what has become decided. Where a stop string is complete, the
 * text ends before it: tgi_stop_strings_met names it, and later pieces are dropped. Errors:
 * NO_MEMORY.
 */
tg_status tgi_stop_strings_push(tgi_stop_strings *stops, const char *bytes, size_t size,
                                tgi_ready_bytes *ready, tg_error *error);

/** The text ended otherwise: what was held belongs to it. */
tgi_ready_bytes tgi_stop_strings_finish(tgi_stop_strings *stops);

/** Number of the stop string that ended the text; -1: none did. */
int tgi_stop_strings_met(const tgi_stop_strings *stops);

#endif
