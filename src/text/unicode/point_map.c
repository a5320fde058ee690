#include "point_map.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { kPage = 256, kStride = 64 };

/** Fills a page from the ranges, of which *next is the first that does not end before it. */
static void fill_page(uint32_t page, const tgi_point_range *ranges, size_t count, size_t *next,
                      uint8_t kinds[kPage])
{
  const uint32_t first = page * kPage, last = first + kPage - 1;
  memset(kinds, TGI_POINT_NONE, kPage);
  while (*next < count && ranges[*next].last < first) {
    (*next)++;
  }
  for (size_t i = *next; i < count && ranges[i].first <= last; i++) {
    const uint32_t from = ranges[i].first > first ? ranges[i].first : first;
    const uint32_t to = ranges[i].last < last ? ranges[i].last : last;
    memset(kinds + (from - first), (int)ranges[i].kind, to - from + 1);
  }
}

/** Numbers the pages' rows and returns how many there are; writes them where `map` is given. */
static size_t make_rows(const tgi_point_range *ranges, size_t count, tgi_point_map *map)
{
  uint8_t kinds[kPage], newest[kPage] = {TGI_POINT_NONE};
  const uint8_t none[kPage] = {TGI_POINT_NONE};
  size_t rows = 1, next = 0;
  for (uint32_t page = 0; page < TGI_POINT_PAGES; page++) {
    fill_page(page, ranges, count, &next, kinds);
    const bool empty = memcmp(kinds, none, kPage) == 0;
    if (!empty && memcmp(kinds, newest, kPage) != 0) {
      memcpy(newest, kinds, kPage);
      if (map) {
        memcpy(map->kinds[rows], kinds, kPage);
      }
      rows++;
    }
    if (map) {
      map->page[page] = (uint16_t)(empty ? 0 : rows - 1);
    }
  }
  return rows;
}

tgi_point_map *tgi_point_map_make(const tgi_point_range *ranges, size_t count)
{
  const size_t rows = make_rows(ranges, count, NULL);
  tgi_point_map *map = calloc(1, sizeof *map + rows * kPage);
  if (map) {
    make_rows(ranges, count, map);
  }
  return map;
}

size_t tgi_high_byte(const char *text, size_t at, size_t size, unsigned char least)
{
  const unsigned char *bytes = (const unsigned char *)text;
  while (size - at >= kStride) { /* the inner loop becomes vectors */
    unsigned char found = 0;
    for (int i = 0; i < kStride; i++) {
      found |= bytes[at + (size_t)i] >= least;
    }
    if (found) {
      break;
    }
    at += kStride;
  }
  while (at < size && bytes[at] < least) {
    at++;
  }
  return at;
}
