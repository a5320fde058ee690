/* Methods of texts, lists and dictionaries. */
#include "template_call.h"
#include "template_print.h"
#include <string.h>

/** Bytes that two arguments choose as str[start:stop] does; *from may be above *to. */
static void find_bounds(const tgi_call *call, int start, int stop, size_t *from, size_t *to)
{
  tgi_string *s = call->self.as.string;
  const int64_t length = (int64_t)tgi_string_points(call->job, s);
  int64_t edge[2] = {0, length};
  for (int i = 0; i < 2; i++) {
    const int parameter = i == 0 ? start : stop;
    if (tgi_given(call, parameter)) {
      const int64_t given = tgi_int_argument(call, parameter, 0);
      edge[i] = given >= 0 ? given : given + length < 0 ? 0 : given + length;
    }
  }
  *to = tgi_string_offset(call->job, s, (size_t)edge[1]);
  *from = edge[0] > length ? s->size + 1 : tgi_string_offset(call->job, s, (size_t)edge[0]);
}

static tgi_value point_index(const tgi_call *call, size_t at)
{
  tgi_string *before = tgi_string_slice(call->job, call->self.as.string, 0, at);
  return tgi_int((int64_t)tgi_string_points(call->job, before));
}

/* ---- searching ---- */

static tgi_value run_find(tgi_call *call)
{
  size_t from, to;
  find_bounds(call, 1, 2, &from, &to);
  const size_t at =
      tgi_string_find(call->job, call->self.as.string, tgi_string_argument(call, 0), from, to);
  return at == TGI_NOT_FOUND ? tgi_int(-1) : point_index(call, at);
}

static tgi_value run_rfind(tgi_call *call)
{
  size_t from, to;
  find_bounds(call, 1, 2, &from, &to);
  const size_t at =
      tgi_string_find_last(call->job, call->self.as.string, tgi_string_argument(call, 0), from, to);
  return at == TGI_NOT_FOUND ? tgi_int(-1) : point_index(call, at);
}

static tgi_value run_index(tgi_call *call)
{
  const tgi_value found = run_find(call);
  if (found.as.integer < 0) {
    tgi_fail_on(call->job, call->arg[0], "a part of the text");
  }
  return found;
}

static tgi_value run_count(tgi_call *call)
{
  const tgi_string *part = tgi_string_argument(call, 0);
  size_t from, to;
  find_bounds(call, 1, 2, &from, &to);
  tgi_string *s = call->self.as.string;
  if (part->size == 0) {
    return from > to ? tgi_int(0)
                     : tgi_int(1 + (int64_t)tgi_string_points(
                                       call->job, tgi_string_slice(call->job, s, from, to)));
  }
  int64_t count = 0;
  for (; (from = tgi_string_find(call->job, s, part, from, to)) != TGI_NOT_FOUND; count++) {
    from += part->size;
  }
  return tgi_int(count);
}

/** startswith and endswith of one text or of each in a tuple. */
static tgi_value run_affix(tgi_call *call, bool (*matches)(const tgi_string *, const tgi_string *))
{
  size_t from, to;
  find_bounds(call, 1, 2, &from, &to);
  if (from > to) {
    return tgi_bool(false);
  }
  const tgi_string *s = tgi_string_slice(call->job, call->self.as.string, from, to);
  if (call->arg[0].kind != TGI_TUPLE) {
    return tgi_bool(matches(s, tgi_string_argument(call, 0)));
  }
  const tgi_list *choices = call->arg[0].as.list;
  for (size_t i = 0; i < choices->count; i++) {
    tgi_job_step(call->job, 0);
    if (choices->items[i].kind != TGI_STRING) {
      tgi_fail_on(call->job, choices->items[i], "a tuple of str");
    }
    if (matches(s, choices->items[i].as.string)) {
      return tgi_bool(true);
    }
  }
  return tgi_bool(false);
}

static tgi_value run_startswith(tgi_call *call)
{
  return run_affix(call, tgi_string_starts);
}

static tgi_value run_endswith(tgi_call *call)
{
  return run_affix(call, tgi_string_ends);
}

/* ---- cutting ---- */

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

/* ---- making other texts ---- */

static tgi_value run_join(tgi_call *call)
{
  const tgi_string *glue = call->self.as.string;
  tgi_writer writer = tgi_writer_begin(call->job);
  tgi_walk walk = tgi_walk_begin(call->job, call->arg[0]);
  tgi_value item;
  for (size_t i = 0; tgi_walk_next(call->job, &walk, &item); i++) {
    if (i > 0) {
      tgi_write_string(&writer, glue);
    }
    if (glue->safe) {
      tgi_print_escaped(&writer, item);
    } else if (item.kind == TGI_STRING) {
      tgi_write_string(&writer, item.as.string);
    } else {
      tgi_fail_on(call->job, item, "a str as an item to join");
    }
  }
  tgi_string *joined = tgi_writer_end(&writer);
  joined->safe = glue->safe;
  return tgi_text(joined);
}

static tgi_value run_replace(tgi_call *call)
{
  const tgi_string *s = call->self.as.string;
  const tgi_string *fresh = tgi_string_argument(call, 1);
  if (s->safe) {
    tgi_writer escaped = tgi_writer_begin(call->job);
    tgi_print_escaped(&escaped, call->arg[1]);
    fresh = tgi_writer_end(&escaped);
  }
  tgi_string *replaced =
      tgi_replace(call->job, s, tgi_string_argument(call, 0), fresh, tgi_int_argument(call, 2, -1));
  replaced->safe = s->safe;
  return tgi_text(replaced);
}

static tgi_value run_format(tgi_call *call)
{
  return tgi_text(tgi_format_braces(call->job, call->self.as.string, call->args));
}

static tgi_value run_lower(tgi_call *call)
{
  return tgi_text(tgi_lower(call->job, call->self.as.string));
}

static tgi_value run_upper(tgi_call *call)
{
  return tgi_text(tgi_upper(call->job, call->self.as.string));
}

static tgi_value run_capitalize(tgi_call *call)
{
  return tgi_text(tgi_capitalize(call->job, call->self.as.string));
}

/* ---- dictionaries and lists ---- */

static tgi_value run_get(tgi_call *call)
{
  const tgi_value *found = tgi_dict_get(call->job, call->self.as.dict, call->arg[0]);
  if (found) {
    return *found;
  }
  return call->arg[1].kind == TGI_MISSING ? tgi_none() : call->arg[1];
}

static tgi_value run_items(tgi_call *call)
{
  return tgi_from_dict(TGI_ITEMS, call->self.as.dict);
}

static tgi_value run_keys(tgi_call *call)
{
  return tgi_from_dict(TGI_KEYS, call->self.as.dict);
}

static tgi_value run_values(tgi_call *call)
{
  return tgi_from_dict(TGI_VALUES, call->self.as.dict);
}

static tgi_value run_copy(tgi_call *call)
{
  return call->self; /* nothing changes it */
}

static tgi_value run_list_index(tgi_call *call)
{
  const tgi_list *list = call->self.as.list;
  for (size_t i = 0; i < list->count; i++) {
    if (tgi_equal(call->job, list->items[i], call->arg[0])) {
      return tgi_int((int64_t)i);
    }
  }
  tgi_fail_on(call->job, call->arg[0], "an item of the list");
}

static tgi_value run_list_count(tgi_call *call)
{
  const tgi_list *list = call->self.as.list;
  int64_t count = 0;
  for (size_t i = 0; i < list->count; i++) {
    count += tgi_equal(call->job, list->items[i], call->arg[0]);
  }
  return tgi_int(count);
}

/* ---- tables ---- */

static const tgi_builtin string_methods[] = {
    {"capitalize", "", 0, run_capitalize},
    {"count", "sub start end", 1, run_count},
    {"endswith", "suffix start end", 1, run_endswith},
    {"find", "sub start end", 1, run_find},
    {"format", NULL, 0, run_format},
    {"index", "sub start end", 1, run_index},
    {"join", "iterable", 1, run_join},
    {"lower", "", 0, run_lower},
    {"lstrip", "chars", 0, run_lstrip},
    {"partition", "sep", 1, run_partition},
    {"removeprefix", "prefix", 1, run_removeprefix},
    {"removesuffix", "suffix", 1, run_removesuffix},
    {"replace", "old new count", 2, run_replace},
    {"rfind", "sub start end", 1, run_rfind},
    {"rpartition", "sep", 1, run_rpartition},
    {"rsplit", "sep maxsplit", 0, run_rsplit},
    {"rstrip", "chars", 0, run_rstrip},
    {"split", "sep maxsplit", 0, run_split},
    {"splitlines", "keepends", 0, run_splitlines},
    {"startswith", "prefix start end", 1, run_startswith},
    {"strip", "chars", 0, run_strip},
    {"upper", "", 0, run_upper},
    {NULL, NULL, 0, NULL},
};

static const tgi_builtin dict_methods[] = {
    {"copy", "", 0, run_copy}, {"get", "key default", 1, run_get}, {"items", "", 0, run_items},
    {"keys", "", 0, run_keys}, {"values", "", 0, run_values},      {NULL, NULL, 0, NULL},
};

static const tgi_builtin list_methods[] = {
    {"copy", "", 0, run_copy},
    {"count", "value", 1, run_list_count},
    {"index", "value", 1, run_list_index},
    {NULL, NULL, 0, NULL},
};

static const tgi_builtin no_methods[] = {{NULL, NULL, 0, NULL}};

/** Of each kind: its methods, what the sandbox forbids, and what is not understood here. */
static const struct {
  const tgi_builtin *methods;
  const char *forbidden, *others;
} attributes[TGI_NUM_KINDS] = {
    [TGI_STRING] =
        {string_methods, "",
         "casefold center encode expandtabs format_map isalnum isalpha isascii isdecimal "
         "isdigit isidentifier islower isnumeric isprintable isspace istitle isupper "
         "ljust maketrans rindex rjust swapcase title translate zfill"},
    [TGI_DICT] = {dict_methods, "clear pop popitem setdefault update", "fromkeys"},
    [TGI_LIST] = {list_methods, "append clear extend insert pop remove reverse sort", ""},
    [TGI_TUPLE] = {list_methods + 1, "", ""},
    [TGI_INT] = {no_methods, "",
                 "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag "
                 "numerator real to_bytes"},
    [TGI_BOOL] = {no_methods, "",
                  "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag "
                  "numerator real to_bytes"},
    [TGI_REAL] = {no_methods, "", "as_integer_ratio conjugate fromhex hex imag is_integer real"},
    [TGI_RANGE] = {no_methods, "", "count index start step stop"},
};

static bool has_word(const char *words, const tgi_string *name)
{
  for (const char *word = words; *word;) {
    const size_t size = strcspn(word, " ");
    if (size == name->size && memcmp(word, name->bytes, size) == 0) {
      return true;
    }
    word += size + (word[size] == ' ');
  }
  return false;
}

tgi_value tgi_find_method(tgi_job *job, tgi_value v, tgi_string *name, bool *known)
{
  const tgi_value none = tgi_undefined(name, (tgi_kind)v.kind);
  *known = attributes[v.kind].methods != NULL;
  if (!*known) {
    return none;
  }
  const tgi_builtin *builtin = tgi_find_builtin(attributes[v.kind].methods, name);
  if (builtin) {
    tgi_method *method = tgi_job_allocate(job, sizeof *method);
    *method = (tgi_method){v, builtin};
    return (tgi_value){.kind = TGI_METHOD, .as.method = method};
  }
  *known = has_word(attributes[v.kind].forbidden, name);
  if (has_word(attributes[v.kind].others, name)) {
    tgi_job_fail(job, TG_UNSUPPORTED, "an attribute of %s that is understood, got \"%.*s\"",
                 tgi_type_name(v), (int)name->size, name->bytes);
  }
  return none;
}
