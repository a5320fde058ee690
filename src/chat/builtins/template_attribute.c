/* What filters share: attributes by their path, and items that are made when they are asked for. */
#include "chat/values/template_number.h"
#include "template_filters.h"
#include <string.h>

tgi_value tgi_lazy(tgi_call *call, tgi_list *(*make)(tgi_call *call))
{
  tgi_iterator *iterator = tgi_job_allocate(call->job, sizeof *iterator);
  iterator->make = make;
  iterator->call = tgi_job_allocate(call->job, sizeof *call);
  *iterator->call = *call;
  tgi_args *args = tgi_job_allocate(call->job, sizeof *args);
  *args = *call->args; /* which is gone by then */
  iterator->call->args = args;
  return (tgi_value){.kind = TGI_ITERATOR, .as.iterator = iterator};
}

static bool all_digits(const tgi_string *s)
{
  for (size_t i = 0; i < s->size; i++) {
    if (s->bytes[i] < '0' || s->bytes[i] > '9') {
      return false;
    }
  }
  return s->size > 0;
}

/** The attribute of an item; `otherwise` where a part of it is undefined, unless that is MISSING.
 */
tgi_value tgi_look_up(tgi_job *job, tgi_value item, tgi_value attribute, tgi_value otherwise)
{
  if (attribute.kind != TGI_STRING) {
    item = attribute.kind == TGI_NONE || attribute.kind == TGI_MISSING
               ? item
               : tgi_get_item(job, item, attribute);
    return item.kind == TGI_UNDEFINED && otherwise.kind > TGI_NONE ? otherwise : item;
  }
  const tgi_string *path = attribute.as.string;
  for (size_t at = 0; at <= path->size;) {
    const char *point = memchr(path->bytes + at, '.', path->size - at);
    const size_t end = point ? (size_t)(point - path->bytes) : path->size;
    tgi_string *part = tgi_string_slice(job, path, at, end);
    int64_t index;
    const bool number =
        all_digits(part) && tgi_parse_integer(job, part->bytes, part->size, 10, false, &index);
    item = tgi_get_item(job, item, number ? tgi_int(index) : tgi_text(part));
    if (item.kind == TGI_UNDEFINED && otherwise.kind > TGI_NONE) {
      item = otherwise;
    }
    at = end + 1;
  }
  return item;
}
