/** A table of ranges as a map with one step: code point to kind. */
#ifndef TGI_TEXT_POINT_MAP_H
#define TGI_TEXT_POINT_MAP_H

#include "unicode_tables.h"

enum { TGI_POINT_PAGES = 0x1100 }; /* of 256 code points */

typedef struct tgi_point_map {
  uint16_t page[TGI_POINT_PAGES]; /* which row of `kinds` */
  uint8_t kinds[][256];           /* row 0 is empty; equal neighbours share a row */
} tgi_point_map;

/** To be freed by free; NULL without memory. */
tgi_point_map *tgi_point_map_make(const tgi_point_range *ranges, size_t count);

/** Kind of a code point (at most 0x10ffff). */
static inline tgi_point_kind tgi_point_map_kind(const tgi_point_map *map, uint32_t point)
{
  return (tgi_point_kind)map->kinds[map->page[point >> 8]][point & 0xff];
}

/** Length of the sequence that a lead byte of valid UTF-8 begins. */
static inline size_t tgi_point_bytes(unsigned char lead)
{
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/** Code point at the start of valid UTF-8. */
static inline uint32_t tgi_point_at(const char *text)
{
  const unsigned char *b = (const unsigned char *)text;
  switch (tgi_point_bytes(b[0])) {
  case 1:
    return b[0];
  case 2:
    return (b[0] & 0x1fu) << 6 | (b[1] & 0x3fu);
  case 3:
    return (b[0] & 0x0fu) << 12 | (b[1] & 0x3fu) << 6 | (b[2] & 0x3fu);
  default:
    return (b[0] & 0x07u) << 18 | (b[1] & 0x3fu) << 12 | (b[2] & 0x3fu) << 6 | (b[3] & 0x3fu);
  }
}

/** Offset of the first byte from `at` on that is `least` or above; `size` where none is. */
size_t tgi_high_byte(const char *text, size_t at, size_t size, unsigned char least);

#endif
