/**
 * Shows PCRE2 a text in which every code point is one that it knows. Patterns look at classes of
 * Unicode 16; PCRE2 knows those of Unicode 14, or of a newer one than 16. So code points that
 * Unicode 14 does not assign are replaced, in a copy, by older ones of the same class and as many
 * bytes: the pieces come out at the same offsets. Patterns that look at classes hold no other
 * characters than ASCII (pattern_rewrite.h), so that none of them can be mistaken for one of these.
 */
#ifndef TGI_TEXT_LATE_POINTS_H
#define TGI_TEXT_LATE_POINTS_H

#include "point_map.h"
#include <stdbool.h>

/** The copies' memory; starts zeroed, ends with free(text). */
typedef struct tgi_shown {
  char *text;
  size_t capacity;
} tgi_shown;

/**
 * *shown is the text that PCRE2 may see, of the same size: `text` itself where it needs no copy.
 * The text is valid UTF-8; `map` is of tgi_late_points. False without memory.
 */
bool tgi_late_points_show(tgi_shown *copy, const tgi_point_map *map, const char *text, size_t size,
                          const char **shown);

/** What stands for a late code point of this kind and length in bytes (2 to 4). */
uint32_t tgi_late_points_stand_in(tgi_point_kind kind, size_t bytes);

#endif
