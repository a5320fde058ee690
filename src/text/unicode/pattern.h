/** Patterns that cut text into pieces, compiled by PCRE2. */
#ifndef TGI_TEXT_PATTERN_H
#define TGI_TEXT_PATTERN_H

#include "tegula/status.h"
#include <stdbool.h>
#include <stddef.h>

/** Immutable: any number of threads may match with it. */
typedef struct tgi_pattern tgi_pattern;

/**
 * Compiles a pattern of tokenizer.json, valid UTF-8. Errors name `path` and `place` (the key that
 * holds it): UNSUPPORTED (pattern_rewrite.h), NO_MEMORY; *out is then NULL.
 */
tg_status tgi_pattern_compile(const char *text, size_t size, const char *path, const char *place,
                              tgi_pattern **out, tg_error *error);

/** NULL is allowed. */
void tgi_pattern_free(tgi_pattern *pattern);

/** Whether it looks at classes of Unicode, and must therefore be shown texts by late_points.h. */
bool tgi_pattern_has_classes(const tgi_pattern *pattern);

/** Memory of matches, for one thread. */
typedef struct tgi_matches tgi_matches;

/** NULL without memory; to be given to tgi_matches_free, which takes NULL too. */
tgi_matches *tgi_matches_make(void);
void tgi_matches_free(tgi_matches *matches);

typedef enum tgi_match {
  TGI_MATCH_FOUND,
  TGI_MATCH_NONE,
  TGI_MATCH_TOO_HARD, /* PCRE2's limit on steps or memory */
} tgi_match;

/**
 * The first match in text[at, size), which is valid UTF-8; what stands before `at` is seen by
 * nothing that a pattern may hold. A match is never empty.
 */
tgi_match tgi_pattern_find(const tgi_pattern *pattern, tgi_matches *matches, const char *text,
                           size_t size, size_t at, size_t *begin, size_t *end);

#endif
