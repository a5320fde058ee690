/*
 * Text is cut into stretches: code points that NFC may move, change or join to what stands before
 * them (CONVERT), with the code point before them where that can be joined or taken apart (HEAD).
 * Everything between stretches is normalised already. A stretch is decomposed, ordered by combining
 * class, and composed.
 */
#include "nfc.h"
#include "core/growing.h"
#include "files/utf8.h"
#include <string.h>
#include <utf8proc.h>

enum {
  kFirstLead = 0xcc, /* the first CONVERT is U+0300 */
  kInsertion = 32,   /* marks in a row up to which insertion is the faster sort */
  kClasses = 256,
};

static utf8proc_propval_t class_of(int32_t point)
{
  return utf8proc_get_property(point)->combining_class;
}

static bool append(tgi_nfc *nfc, const char *text, size_t size)
{
  char *grown = tgi_grow(nfc->text, &nfc->capacity, nfc->size + size, 1);
  if (!grown) {
    return false;
  }
  nfc->text = grown;
  memcpy(grown + nfc->size, text, size);
  nfc->size += size;
  return true;
}

/** Decomposes the stretch into nfc->points. Returns how many, or -1 without memory. */
static int64_t decompose(tgi_nfc *nfc, const char *text, size_t size)
{
  size_t count = 0;
  for (size_t at = 0; at < size; at += tgi_point_bytes((unsigned char)text[at])) {
    const int32_t point = (int32_t)tgi_point_at(text + at);
    int32_t parts[8]; /* at most 4 in every Unicode so far */
    const utf8proc_ssize_t got = utf8proc_decompose_char(
        point, parts, sizeof parts / sizeof parts[0], UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, NULL);
    const size_t length = got < 1 || got > 8 ? 1 : (size_t)got;
    if (got < 1 || got > 8) {
      parts[0] = point;
    }
    int32_t *grown = tgi_grow(nfc->points, &nfc->point_capacity, count + length, sizeof *grown);
    if (!grown) {
      return -1;
    }
    nfc->points = grown;
    memcpy(grown + count, parts, length * sizeof *parts);
    count += length;
  }
  return (int64_t)count;
}

static void insert_in_order(int32_t *marks, size_t count)
{
  for (size_t i = 1; i < count; i++) {
    const int32_t mark = marks[i];
    size_t at = i;
    while (at > 0 && class_of(marks[at - 1]) > class_of(mark)) {
      marks[at] = marks[at - 1];
      at--;
    }
    marks[at] = mark;
  }
}

/** Counting sort: thousands of marks in a row must not take their square. */
static bool count_in_order(tgi_nfc *nfc, int32_t *marks, size_t count)
{
  size_t start[kClasses + 1] = {0};
  int32_t *spare = tgi_grow(nfc->spare, &nfc->spare_capacity, count, sizeof *spare);
  if (!spare) {
    return false;
  }
  nfc->spare = spare;
  memcpy(spare, marks, count * sizeof *marks);
  for (size_t i = 0; i < count; i++) {
    start[class_of(spare[i]) % kClasses + 1]++;
  }
  for (int i = 1; i <= kClasses; i++) {
    start[i] += start[i - 1];
  }
  for (size_t i = 0; i < count; i++) {
    marks[start[class_of(spare[i]) % kClasses]++] = spare[i];
  }
  return true;
}

/** Puts each run of marks (combining class above 0) in the order of their classes; stable. */
static bool order(tgi_nfc *nfc, size_t count)
{
  for (size_t i = 0; i < count;) {
    size_t end = i;
    while (end < count && class_of(nfc->points[end]) > 0) {
      end++;
    }
    if (end - i > kInsertion && !count_in_order(nfc, nfc->points + i, end - i)) {
      return false;
    }
    if (end - i <= kInsertion) {
      insert_in_order(nfc->points + i, end - i);
    }
    i = end + (end == i);
  }
  return true;
}

static bool convert(tgi_nfc *nfc, const char *text, size_t size)
{
  const int64_t count = decompose(nfc, text, size);
  if (count < 0 || !order(nfc, (size_t)count)) {
    return false;
  }
  const utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(nfc->points, (utf8proc_ssize_t)count,
                               (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  for (utf8proc_ssize_t i = 0; i < composed; i++) {
    char bytes[4];
    if (!append(nfc, bytes, tgi_utf8_encode((uint32_t)nfc->points[i], bytes))) {
      return false;
    }
  }
  return true;
}

/** Offset of the next CONVERT from `at` on; *before is the code point before it, if it is a HEAD.
 */
static size_t find_stretch(const tgi_point_map *map, const char *text, size_t at, size_t size,
                           size_t *start)
{
  const size_t first = at;
  for (;;) {
    at = tgi_high_byte(text, at, size, kFirstLead);
    if (at == size || tgi_point_map_kind(map, tgi_point_at(text + at)) == TGI_POINT_CONVERT) {
      break;
    }
    at += tgi_point_bytes((unsigned char)text[at]);
  }
  *start = at;
  if (at > first && at < size) {
    size_t before = at - 1;
    while (before > first && ((unsigned char)text[before] & 0xc0) == 0x80) {
      before--;
    }
    if (tgi_point_map_kind(map, tgi_point_at(text + before)) == TGI_POINT_HEAD) {
      *start = before;
    }
  }
  return at;
}

static bool add_edit(tgi_nfc *nfc, tgi_nfc_edit edit)
{
  tgi_nfc_edit *grown =
      tgi_grow(nfc->edits, &nfc->edit_capacity, nfc->num_edits + 1, sizeof *grown);
  if (!grown) {
    return false;
  }
  nfc->edits = grown;
  grown[nfc->num_edits++] = edit;
  return true;
}

bool tgi_nfc_normalise(tgi_nfc *nfc, const tgi_point_map *map, const char *text, size_t size,
                       bool *changed)
{
  nfc->size = nfc->num_edits = 0;
  size_t copied = 0, start;
  size_t at = find_stretch(map, text, 0, size, &start);
  *changed = at < size;
  while (at < size) {
    size_t end = at;
    while (end < size && tgi_point_map_kind(map, tgi_point_at(text + end)) == TGI_POINT_CONVERT) {
      end += tgi_point_bytes((unsigned char)text[end]);
    }
    if (!append(nfc, text + copied, start - copied)) {
      return false;
    }
    const size_t out_from = nfc->size;
    if (!convert(nfc, text + start, end - start) ||
        !add_edit(nfc, (tgi_nfc_edit){start, end, out_from, nfc->size})) {
      return false;
    }
    copied = end;
    at = find_stretch(map, text, end, size, &start);
  }
  return !*changed || append(nfc, text + copied, size - copied);
}

void tgi_nfc_free(tgi_nfc *nfc)
{
  free(nfc->text);
  free(nfc->edits);
  free(nfc->points);
  free(nfc->spare);
  *nfc = (tgi_nfc){0};
}
