/* Attributes by type: methods that make other texts, those of lists and dictionaries. */
#include "template_methods.h"
#include "chat/values/template_case.h"
#include "chat/values/template_print.h"
#include <string.h>

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
  tgi_string *replaced = tgi_string_replace(call->job, s, tgi_string_argument(call, 0), fresh,
                                            tgi_int_argument(call, 2, -1));
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
    {"format", NULL, 0, run_format},
    {"join", "iterable", 1, run_join},
    {"lower", "", 0, run_lower},
    {"replace", "old new count", 2, run_replace},
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
  if (!builtin && v.kind == TGI_STRING) {
    builtin = tgi_find_builtin(tgi_search_methods, name);
    builtin = builtin ? builtin : tgi_find_builtin(tgi_cut_methods, name);
  }
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
