/**
 * The parts of the parser of patterns: what it has read and written, and its reading of single
 * characters and classes. Functions return false once the pattern is refused or memory is short.
 */
#ifndef TGI_TEXT_PATTERN_CHARACTERS_H
#define TGI_TEXT_PATTERN_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tgi_rewriter {
  const char *begin, *at, *end;
  char *out;
  size_t used, capacity;
  bool classes;
  const char *beyond_ascii; /* the first such character; NULL: none */
  const char *rule, *wrong;
} tgi_rewriter;

/** Notes what is wrong and where; a NULL rule: memory is short. Returns false. */
bool tgi_pattern_refuse(tgi_rewriter *r, const char *where, const char *rule);

/** Write text, or a code point as \x{..}. */
bool tgi_pattern_put(tgi_rewriter *r, const char *text, size_t size);
bool tgi_pattern_put_text(tgi_rewriter *r, const char *text);
bool tgi_pattern_put_point(tgi_rewriter *r, uint32_t point);

/** Whether `text` is next; tgi_pattern_take passes over it, too. */
bool tgi_pattern_next_is(const tgi_rewriter *r, const char *text);
bool tgi_pattern_take(tgi_rewriter *r, const char *text);

/** Reads one plain character. */
uint32_t tgi_pattern_plain(tgi_rewriter *r);

/**
 * An escape, in a class or outside. Writes classes; a single character becomes *point (else
 * UINT32_MAX), which the caller writes.
 */
bool tgi_pattern_escape(tgi_rewriter *r, bool in_class, uint32_t *point);

/** [...] or [^...], of which the [ is next. */
bool tgi_pattern_class_of_characters(tgi_rewriter *r);

#endif
