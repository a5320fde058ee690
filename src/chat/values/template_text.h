/**
 * Strings of templates: UTF-8, immutable, with a mark for each byte that says whether somebody else
 * than the operator wrote it ("ink"). Every operation on strings builds its result with the writer
 * below, which carries the marks along; so they survive slicing, trimming, replacing and JSON.
 */
#ifndef TGI_CHAT_VALUES_TEMPLATE_TEXT_H
#define TGI_CHAT_VALUES_TEMPLATE_TEXT_H

#include "template_job.h"

#define TGI_NOT_FOUND SIZE_MAX

typedef struct tgi_string {
  const char *bytes;  /* not terminated */
  const uint8_t *ink; /* [size], 1: untrusted; NULL: all 0 */
  size_t size;
  size_t points; /* code points; TGI_NOT_FOUND: not counted yet */
  bool safe;     /* what markupsafe calls Markup: additions to it are escaped as HTML */
} tgi_string;

/** Borrows `bytes`. */
tgi_string *tgi_string_new(tgi_job *job, const char *bytes, size_t size);

/** Copies a terminated text. */
tgi_string *tgi_string_copy(tgi_job *job, const char *text);

/** Bytes `from` to `to` - 1; shares them. */
tgi_string *tgi_string_slice(tgi_job *job, const tgi_string *s, size_t from, size_t to);

/** Code points; counted once. */
size_t tgi_string_points(tgi_job *job, tgi_string *s);

/** Byte offset of a code point, at most `size`. */
size_t tgi_string_offset(tgi_job *job, tgi_string *s, size_t point);

/** The code point at a byte offset; *length is its size. */
uint32_t tgi_string_point(const tgi_string *s, size_t at, size_t *length);

/** The start of the code point that ends before `at`, which is above 0. */
size_t tgi_string_before(const tgi_string *s, size_t at);

bool tgi_string_is(const tgi_string *s, const char *text);
int tgi_string_compare(const tgi_string *a, const tgi_string *b); /* by code points */

/** Byte offset of the first (last) `part` in bytes `from` to `to` - 1, or TGI_NOT_FOUND. */
size_t tgi_string_find(tgi_job *job, const tgi_string *s, const tgi_string *part, size_t from,
                       size_t to);
size_t tgi_string_find_last(tgi_job *job, const tgi_string *s, const tgi_string *part, size_t from,
                            size_t to);

bool tgi_string_starts(const tgi_string *s, const tgi_string *part);
bool tgi_string_ends(const tgi_string *s, const tgi_string *part);

/** What str.isspace() of Python is true for: 29 code points. */
bool tgi_is_space(uint32_t point);

/** Where str.splitlines() of Python cuts, but for "\r\n" as one. */
bool tgi_is_line_end(uint32_t point);

/** Without leading (trailing) code points that are in `which`; NULL: white space. */
typedef enum tgi_side { TGI_LEFT = 1, TGI_RIGHT = 2, TGI_BOTH = 3 } tgi_side;
tgi_string *tgi_string_strip(tgi_job *job, const tgi_string *s, const tgi_string *which,
                             tgi_side side);

/* ---- writing ---- */

typedef struct tgi_writer {
  tgi_job *job;
  char *bytes;
  uint8_t *ink; /* NULL while all is 0 */
  size_t size, capacity;
  size_t points;
} tgi_writer;

static inline tgi_writer tgi_writer_begin(tgi_job *job)
{
  return (tgi_writer){.job = job};
}

/** Text without marks. */
void tgi_write(tgi_writer *writer, const char *bytes, size_t size);
void tgi_write_text(tgi_writer *writer, const char *text);

/** `ink`: the mark of all of its bytes. */
void tgi_write_point(tgi_writer *writer, uint32_t point, uint8_t ink);

/** A part of a string, with its marks. */
void tgi_write_slice(tgi_writer *writer, const tgi_string *s, size_t from, size_t to);
void tgi_write_string(tgi_writer *writer, const tgi_string *s);

/** The string that was written; the writer must not be used after. */
tgi_string *tgi_writer_end(tgi_writer *writer);

/** At most `count` replacements, from the left; below 0: all. */
tgi_string *tgi_string_replace(tgi_job *job, const tgi_string *s, const tgi_string *old,
                               const tgi_string *fresh, int64_t count);

#endif
