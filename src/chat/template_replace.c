#include "template_call.h"

tgi_string *tgi_replace(tgi_job *job, const tgi_string *s, const tgi_string *old,
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
