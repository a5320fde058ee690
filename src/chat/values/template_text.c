#define _GNU_SOURCE /* memmem, memrchr */
#include "template_text.h"
#include "files/utf8.h"
#include <string.h>

tgi_string *tgi_string_new(tgi_job *job, const char *bytes, size_t size)
{
  tgi_string *s = tgi_job_allocate(job, sizeof *s);
  *s = (tgi_string){.bytes = bytes, .size = size, .points = TGI_NOT_FOUND};
  return s;
}

tgi_string *tgi_string_copy(tgi_job *job, const char *text)
{
  const size_t size = strlen(text) + 1; /* with the null, which is not part of the string */
  char *bytes = tgi_job_allocate(job, size);
  memcpy(bytes, text, size);
  return tgi_string_new(job, bytes, size - 1);
}

tgi_string *tgi_string_slice(tgi_job *job, const tgi_string *s, size_t from, size_t to)
{
  tgi_string *part = tgi_string_new(job, s->bytes + from, to - from);
  part->ink = s->ink ? s->ink + from : NULL;
  part->safe = s->safe;
  return part;
}

static size_t count_points(const char *bytes, size_t size)
{
  size_t count = 0;
  for (size_t i = 0; i < size; i++) {
    count += ((unsigned char)bytes[i] & 0xc0) != 0x80;
  }
  return count;
}

size_t tgi_string_points(tgi_job *job, tgi_string *s)
{
  if (s->points == TGI_NOT_FOUND) {
    tgi_job_step(job, s->size);
    s->points = count_points(s->bytes, s->size);
  }
  return s->points;
}

size_t tgi_string_offset(tgi_job *job, tgi_string *s, size_t point)
{
  const size_t points = tgi_string_points(job, s);
  if (point >= points) {
    return s->size;
  }
  if (points == s->size) {
    return point;
  }
  size_t at = 0;
  for (size_t i = 0; i < point; i++) {
    size_t length;
    tgi_string_point(s, at, &length);
    at += length;
  }
  tgi_job_step(job, at);
  return at;
}

uint32_t tgi_string_point(const tgi_string *s, size_t at, size_t *length)
{
  const unsigned char first = (unsigned char)s->bytes[at];
  uint32_t point = first;
  *length = 1;
  if (first >= 0x80) {
    *length = tgi_utf8_decode(s->bytes + at, s->size - at, &point);
  }
  return point;
}

size_t tgi_string_before(const tgi_string *s, size_t at)
{
  do {
    at--;
  } while (at > 0 && ((unsigned char)s->bytes[at] & 0xc0) == 0x80);
  return at;
}

bool tgi_string_is(const tgi_string *s, const char *text)
{
  return s->size == strlen(text) && memcmp(s->bytes, text, s->size) == 0;
}

int tgi_string_compare(const tgi_string *a, const tgi_string *b)
{
  const size_t size = a->size < b->size ? a->size : b->size;
  const int order = size > 0 ? memcmp(a->bytes, b->bytes, size) : 0;
  return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

size_t tgi_string_find(tgi_job *job, const tgi_string *s, const tgi_string *part, size_t from,
                       size_t to)
{
  if (from > to) {
    return TGI_NOT_FOUND;
  }
  if (part->size == 0) {
    return from;
  }
  const char *found = memmem(s->bytes + from, to - from, part->bytes, part->size);
  tgi_job_step(job, found ? (size_t)(found - s->bytes) - from : to - from);
  return found ? (size_t)(found - s->bytes) : TGI_NOT_FOUND;
}

size_t tgi_string_find_last(tgi_job *job, const tgi_string *s, const tgi_string *part, size_t from,
                            size_t to)
{
  if (from > to || to - from < part->size) {
    return TGI_NOT_FOUND;
  }
  if (part->size == 0) {
    return to;
  }
  size_t end = to - part->size + 1; /* of the places where it may start */
  while (end > from) {
    const char *first = memrchr(s->bytes + from, part->bytes[0], end - from);
    const size_t at = first ? (size_t)(first - s->bytes) : from;
    tgi_job_step(job, end - at + part->size);
    if (first && memcmp(first, part->bytes, part->size) == 0) {
      return at;
    }
    end = at;
  }
  return TGI_NOT_FOUND;
}

bool tgi_string_starts(const tgi_string *s, const tgi_string *part)
{
  return part->size == 0 ||
         (s->size >= part->size && memcmp(s->bytes, part->bytes, part->size) == 0);
}

bool tgi_string_ends(const tgi_string *s, const tgi_string *part)
{
  return part->size == 0 || (s->size >= part->size &&
                             memcmp(s->bytes + s->size - part->size, part->bytes, part->size) == 0);
}

bool tgi_is_space(uint32_t point)
{
  return (point >= 0x09 && point <= 0x0d) || (point >= 0x1c && point <= 0x20) || point == 0x85 ||
         point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) ||
         point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f ||
         point == 0x3000;
}

bool tgi_is_line_end(uint32_t point)
{
  return (point >= 0x0a && point <= 0x0d) || (point >= 0x1c && point <= 0x1e) || point == 0x85 ||
         point == 0x2028 || point == 0x2029;
}

static bool is_stripped(tgi_job *job, const tgi_string *which, const char *bytes, size_t length,
                        uint32_t point)
{
  tgi_job_step(job, which ? which->size : 0);
  return which ? memmem(which->bytes, which->size, bytes, length) != NULL : tgi_is_space(point);
}

tgi_string *tgi_string_strip(tgi_job *job, const tgi_string *s, const tgi_string *which,
                             tgi_side side)
{
  size_t from = 0, to = s->size, length;
  while (side & TGI_LEFT && from < to) {
    const uint32_t point = tgi_string_point(s, from, &length);
    if (!is_stripped(job, which, s->bytes + from, length, point)) {
      break;
    }
    from += length;
  }
  while (side & TGI_RIGHT && from < to) {
    const size_t before = tgi_string_before(s, to);
    const uint32_t point = tgi_string_point(s, before, &length);
    if (!is_stripped(job, which, s->bytes + before, length, point)) {
      break;
    }
    to = before;
  }
  return tgi_string_slice(job, s, from, to);
}

/* ---- writing ---- */

static void reserve(tgi_writer *writer, size_t more)
{
  const size_t needed = writer->size + more;
  if (needed > writer->capacity) {
    size_t capacity = writer->capacity ? 2 * writer->capacity : 64;
    capacity = capacity < needed ? needed : capacity;
    writer->bytes = tgi_job_grow(writer->job, writer->bytes, writer->capacity, capacity);
    if (writer->ink) {
      writer->ink = tgi_job_grow(writer->job, writer->ink, writer->capacity, capacity);
    }
    writer->capacity = capacity;
  }
}

static void need_ink(tgi_writer *writer)
{
  if (!writer->ink && writer->capacity > 0) {
    writer->ink = tgi_job_allocate(writer->job, writer->capacity);
  }
}

void tgi_write(tgi_writer *writer, const char *bytes, size_t size)
{
  tgi_job_step(writer->job, size);
  reserve(writer, size);
  if (size > 0) {
    memcpy(writer->bytes + writer->size, bytes, size);
    if (writer->ink) {
      memset(writer->ink + writer->size, 0, size);
    }
  }
  writer->size += size;
  writer->points += count_points(bytes, size);
}

void tgi_write_text(tgi_writer *writer, const char *text)
{
  tgi_write(writer, text, strlen(text));
}

void tgi_write_point(tgi_writer *writer, uint32_t point, uint8_t ink)
{
  char bytes[4];
  const size_t size = tgi_utf8_encode(point, bytes);
  tgi_write(writer, bytes, size);
  if (ink) {
    need_ink(writer);
    memset(writer->ink + writer->size - size, ink, size);
  }
}

void tgi_write_slice(tgi_writer *writer, const tgi_string *s, size_t from, size_t to)
{
  tgi_write(writer, s->bytes + from, to - from);
  if (s->ink && to > from) {
    need_ink(writer);
    memcpy(writer->ink + writer->size - (to - from), s->ink + from, to - from);
  }
}

void tgi_write_string(tgi_writer *writer, const tgi_string *s)
{
  tgi_write_slice(writer, s, 0, s->size);
}

tgi_string *tgi_writer_end(tgi_writer *writer)
{
  tgi_string *s = tgi_string_new(writer->job, writer->bytes ? writer->bytes : "", writer->size);
  s->ink = writer->ink;
  s->points = writer->points;
  return s;
}

tgi_string *tgi_string_replace(tgi_job *job, const tgi_string *s, const tgi_string *old,
                               const tgi_string *fresh, int64_t count)
{
  tgi_writer writer = tgi_writer_begin(job);
  size_t at = 0;
  if (old->size == 0) { /* before each character, and at the end */
    size_t length;
    for (; count != 0 && at < s->size; at += length, count--) {
      tgi_write_string(&writer, fresh);
      tgi_string_point(s, at, &length);
      tgi_write_slice(&writer, s, at, at + length);
    }
    if (count != 0) {
      tgi_write_string(&writer, fresh);
    }
  }
  size_t found;
  while (old->size > 0 && count != 0 &&
         (found = tgi_string_find(job, s, old, at, s->size)) != TGI_NOT_FOUND) {
    tgi_write_slice(&writer, s, at, found);
    tgi_write_string(&writer, fresh);
    at = found + old->size;
    count--;
  }
  tgi_write_slice(&writer, s, at, s->size);
  return tgi_writer_end(&writer);
}
