/* Methods that cut texts: strip, split and their kin. What they give shares the bytes. */
#include "template_methods.h"

static tgi_value strip(tgi_call *call, tgi_side side)
{
  const tgi_string *which = tgi_given(call, 0) ? tgi_string_argument(call, 0) : NULL;
  return tgi_text(tgi_string_strip(call->job, call->self.as.string, which, side));
}

static tgi_value run_strip(tgi_call *call)
{
  return strip(call, TGI_BOTH);
}

static tgi_value run_lstrip(tgi_call *call)
{
  return strip(call, TGI_LEFT);
}

static tgi_value run_rstrip(tgi_call *call)
{
  return strip(call, TGI_RIGHT);
}

static tgi_value run_removeprefix(tgi_call *call)
{
  const tgi_string *s = call->self.as.string, *part = tgi_string_argument(call, 0);
  const size_t from = tgi_string_starts(s, part) ? part->size : 0;
  return tgi_text(tgi_string_slice(call->job, s, from, s->size));
}

static tgi_value run_removesuffix(tgi_call *call)
{
  const tgi_string *s = call->self.as.string, *part = tgi_string_argument(call, 0);
  const size_t to = s->size - (tgi_string_ends(s, part) ? part->size : 0);
  return tgi_text(tgi_string_slice(call->job, s, 0, to));
}

static void add_slice(tgi_call *call, tgi_list *parts, size_t from, size_t to)
{
  tgi_list_add(call->job, parts,
               tgi_text(tgi_string_slice(call->job, call->self.as.string, from, to)));
}

/** The end of the run at `at` of white space (of anything else, if not `space`). */
static size_t skip_run(const tgi_call *call, size_t at, bool space)
{
  const tgi_string *s = call->self.as.string;
  size_t length;
  for (; at < s->size && tgi_is_space(tgi_string_point(s, at, &length)) == space; at += length) {
    tgi_job_step(call->job, 0);
  }
  return at;
}

static void split_at_space(tgi_call *call, int64_t most, tgi_list *parts)
{
  const size_t size = call->self.as.string->size;
  size_t at = skip_run(call, 0, true);
  while (at < size && most != 0) {
    const size_t end = skip_run(call, at, false);
    add_slice(call, parts, at, end);
    at = skip_run(call, end, true);
    most--;
  }
  if (at < size) {
    add_slice(call, parts, at, size);
  }
}

static size_t skip_run_back(const tgi_call *call, size_t at, bool space)
{
  const tgi_string *s = call->self.as.string;
  size_t length;
  while (at > 0) {
    const size_t before = tgi_string_before(s, at);
    if (tgi_is_space(tgi_string_point(s, before, &length)) != space) {
      break;
    }
    tgi_job_step(call->job, 0);
    at = before;
  }
  return at;
}

/** Parts from the end to the start. */
static void split_at_space_back(tgi_call *call, int64_t most, tgi_list *parts)
{
  size_t at = skip_run_back(call, call->self.as.string->size, true);
  while (at > 0 && most != 0) {
    const size_t start = skip_run_back(call, at, false);
    add_slice(call, parts, start, at);
    at = skip_run_back(call, start, true);
    most--;
  }
  if (at > 0) {
    add_slice(call, parts, 0, at);
  }
}

static tgi_list *reversed(tgi_job *job, const tgi_list *list)
{
  tgi_list *turned = tgi_list_new(job);
  for (size_t i = list->count; i > 0; i--) {
    tgi_list_add(job, turned, list->items[i - 1]);
  }
  return turned;
}

static const tgi_string *separator_argument(const tgi_call *call)
{
  const tgi_string *separator = tgi_string_argument(call, 0);
  if (separator->size == 0) {
    tgi_fail_on(call->job, call->arg[0], "a separator that is not empty");
  }
  return separator;
}

static tgi_value run_split(tgi_call *call)
{
  int64_t most = tgi_int_argument(call, 1, -1);
  tgi_list *parts = tgi_list_new(call->job);
  if (!tgi_given(call, 0)) {
    split_at_space(call, most, parts);
    return tgi_from_list(TGI_LIST, parts);
  }
  const tgi_string *s = call->self.as.string, *separator = separator_argument(call);
  size_t at = 0, found;
  while (most != 0 &&
         (found = tgi_string_find(call->job, s, separator, at, s->size)) != TGI_NOT_FOUND) {
    add_slice(call, parts, at, found);
    at = found + separator->size;
    most--;
  }
  add_slice(call, parts, at, s->size);
  return tgi_from_list(TGI_LIST, parts);
}

static tgi_value run_rsplit(tgi_call *call)
{
  int64_t most = tgi_int_argument(call, 1, -1);
  tgi_list *parts = tgi_list_new(call->job);
  if (!tgi_given(call, 0)) {
    split_at_space_back(call, most, parts);
    return tgi_from_list(TGI_LIST, reversed(call->job, parts));
  }
  const tgi_string *s = call->self.as.string, *separator = separator_argument(call);
  size_t end = s->size, found;
  while (most != 0 &&
         (found = tgi_string_find_last(call->job, s, separator, 0, end)) != TGI_NOT_FOUND) {
    add_slice(call, parts, found + separator->size, end);
    end = found;
    most--;
  }
  add_slice(call, parts, 0, end);
  return tgi_from_list(TGI_LIST, reversed(call->job, parts));
}

static tgi_value partition(tgi_call *call, bool last)
{
  const tgi_string *s = call->self.as.string, *separator = separator_argument(call);
  const size_t found = last ? tgi_string_find_last(call->job, s, separator, 0, s->size)
                            : tgi_string_find(call->job, s, separator, 0, s->size);
  const size_t none = last ? 0 : s->size; /* where the whole text stands beside the empty ones */
  const size_t start = found == TGI_NOT_FOUND ? none : found;
  const size_t end = found == TGI_NOT_FOUND ? none : found + separator->size;
  tgi_list *parts = tgi_list_new(call->job);
  add_slice(call, parts, 0, start);
  add_slice(call, parts, start, end);
  add_slice(call, parts, end, s->size);
  return tgi_from_list(TGI_TUPLE, parts);
}

static tgi_value run_partition(tgi_call *call)
{
  return partition(call, false);
}

static tgi_value run_rpartition(tgi_call *call)
{
  return partition(call, true);
}

static tgi_value run_splitlines(tgi_call *call)
{
  const tgi_string *s = call->self.as.string;
  const bool keep = tgi_bool_argument(call, 0, false);
  tgi_list *lines = tgi_list_new(call->job);
  size_t start = 0, length;
  for (size_t at = 0; at < s->size; at += length) {
    if (!tgi_is_line_end(tgi_string_point(s, at, &length))) {
      continue;
    }
    if (s->bytes[at] == '\r' && at + 1 < s->size && s->bytes[at + 1] == '\n') {
      length = 2;
    }
    add_slice(call, lines, start, keep ? at + length : at);
    start = at + length;
  }
  tgi_job_step(call->job, s->size);
  if (start < s->size) {
    add_slice(call, lines, start, s->size);
  }
  return tgi_from_list(TGI_LIST, lines);
}

const tgi_builtin tgi_cut_methods[] = {
    {"lstrip", "chars", 0, run_lstrip},
    {"partition", "sep", 1, run_partition},
    {"removeprefix", "prefix", 1, run_removeprefix},
    {"removesuffix", "suffix", 1, run_removesuffix},
    {"rpartition", "sep", 1, run_rpartition},
    {"rsplit", "sep maxsplit", 0, run_rsplit},
    {"rstrip", "chars", 0, run_rstrip},
    {"split", "sep maxsplit", 0, run_split},
    {"splitlines", "keepends", 0, run_splitlines},
    {"strip", "chars", 0, run_strip},
    {NULL, NULL, 0, NULL},
};
