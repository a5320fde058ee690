#include "late_points.h"
#include "core/growing.h"
#include "files/utf8.h"
#include <string.h>

enum { kFirstLead = 0xcd, kBytes = 3 }; /* the first late code point is U+0378 */

/* Assigned in Unicode 14 and long before, in 2, 3 and 4 bytes; 0: no code point of this kind is so
 * long. OTHER are a control character and private use. */
static const uint32_t stand_ins[][kBytes] = {
    [TGI_POINT_OTHER] = {0x80, 0xe000, 0xf0000}, [TGI_POINT_LU] = {0xc0, 0x1e00, 0x10400},
    [TGI_POINT_LL] = {0xe0, 0x1e01, 0x10428},    [TGI_POINT_LT] = {0x1c5, 0x1f88, 0},
    [TGI_POINT_LM] = {0x2b0, 0x1d2c, 0x16b40},   [TGI_POINT_LO] = {0x5d0, 0x4e00, 0x10000},
    [TGI_POINT_M] = {0x300, 0x900, 0x11000},     [TGI_POINT_ND] = {0x660, 0x966, 0x104a0},
    [TGI_POINT_N] = {0xb2, 0x2160, 0x10107},     [TGI_POINT_P] = {0xa1, 0x2010, 0x10100},
    [TGI_POINT_S] = {0xa2, 0x20a0, 0x1f600},
};

uint32_t tgi_late_points_stand_in(tgi_point_kind kind, size_t bytes)
{
  return stand_ins[kind][bytes - 2];
}

/** Offset of the next late code point from `at` on, or `size`. */
static size_t find_late(const tgi_point_map *map, const char *text, size_t at, size_t size,
                        tgi_point_kind *kind)
{
  for (;;) {
    at = tgi_high_byte(text, at, size, kFirstLead);
    if (at == size) {
      return size;
    }
    *kind = tgi_point_map_kind(map, tgi_point_at(text + at));
    if (*kind != TGI_POINT_NONE) {
      return at;
    }
    at += tgi_point_bytes((unsigned char)text[at]);
  }
}

bool tgi_late_points_show(tgi_shown *copy, const tgi_point_map *map, const char *text, size_t size,
                          const char **shown)
{
  tgi_point_kind kind;
  size_t at = find_late(map, text, 0, size, &kind);
  *shown = text;
  if (at == size) {
    return true;
  }
  char *grown = tgi_grow(copy->text, &copy->capacity, size, 1);
  if (!grown) {
    return false;
  }
  copy->text = grown;
  memcpy(grown, text, size);
  while (at < size) {
    const size_t bytes = tgi_point_bytes((unsigned char)text[at]);
    tgi_utf8_encode(tgi_late_points_stand_in(kind, bytes), grown + at);
    at = find_late(map, text, at + bytes, size, &kind);
  }
  *shown = grown;
  return true;
}
