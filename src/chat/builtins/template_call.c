#include "template_call.h"
#include "chat/template_render.h"
#include "chat/values/template_print.h"
#include "files/file_error.h"
#include <string.h>

const tgi_builtin *tgi_find_builtin(const tgi_builtin *table, const tgi_string *name)
{
  for (; table->name; table++) {
    if (tgi_string_is(name, table->name)) {
      return table;
    }
  }
  return NULL;
}

/** Index of `name` among the words of `parameters`, or -1. */
static int find_parameter(const char *parameters, const tgi_string *name)
{
  int index = 0;
  for (const char *word = parameters; *word; index++) {
    const size_t size = strcspn(word, " ");
    if (size == name->size && memcmp(word, name->bytes, size) == 0) {
      return index;
    }
    word += size + (word[size] == ' ');
  }
  return -1;
}

static int count_parameters(const char *parameters)
{
  int count = *parameters != '\0';
  for (; *parameters; parameters++) {
    count += *parameters == ' ';
  }
  return count;
}

static void bind(tgi_call *call, const tgi_builtin *builtin)
{
  const tgi_args *args = call->args;
  const int most = count_parameters(builtin->parameters);
  if (args->count > (size_t)most) {
    tgi_job_fail(call->job, TG_BAD_ARGUMENT, "at most %d arguments of %s, got %zu", most,
                 builtin->name, args->count);
  }
  for (size_t i = 0; i < args->count; i++) {
    call->arg[i] = args->values[i];
  }
  for (size_t i = 0; i < args->num_named; i++) {
    const int at = find_parameter(builtin->parameters, args->names[i]);
    if (at >= 0 && call->arg[at].kind == TGI_MISSING) {
      call->arg[at] = args->named[i];
    } else {
      tgi_job_fail(call->job, TG_BAD_ARGUMENT, "each parameter of %s (%s) once, got \"%s\"",
                   builtin->name, builtin->parameters,
                   tgi_quote(args->names[i]->bytes, args->names[i]->size).text);
    }
  }
  for (int i = 0; i < builtin->required; i++) {
    if (call->arg[i].kind == TGI_MISSING) {
      tgi_job_fail(call->job, TG_BAD_ARGUMENT, "at least %d arguments of %s (%s), got %d",
                   builtin->required, builtin->name, builtin->parameters, i);
    }
  }
}

tgi_value tgi_run_builtin(tgi_run *run, const tgi_builtin *builtin, tgi_value self,
                          const tgi_args *args)
{
  tgi_call call = {.job = &run->job, .run = run, .self = self, .args = args};
  if (builtin->parameters) {
    bind(&call, builtin);
  }
  tgi_job_enter(&run->job);
  const tgi_value result = builtin->run(&call);
  tgi_job_leave(&run->job);
  /* cppcheck-suppress returnDanglingLifetime; a value holds nothing of the call */
  return result;
}

/* ---- attributes and items ---- */

/** Item of a mapping or sequence; false: there is none, or `v` has no items. */
static bool find_item(tgi_job *job, tgi_value v, tgi_value key, tgi_value *item)
{
  int64_t index;
  if (v.kind == TGI_UNDEFINED) {
    tgi_fail_on(job, v, "something with items");
  }
  if (v.kind == TGI_DICT && tgi_is_hashable(job, key)) {
    const tgi_value *found = tgi_dict_get(job, v.as.dict, key);
    if (found) {
      *item = *found;
    }
    return found != NULL;
  }
  const bool sequence =
      v.kind == TGI_LIST || v.kind == TGI_TUPLE || v.kind == TGI_STRING || v.kind == TGI_RANGE;
  return sequence && tgi_is_integer(key, &index) && tgi_item_at(job, v, index, item);
}

/** False: there is none. */
static bool find_attribute(tgi_job *job, tgi_value v, tgi_string *name, tgi_value *found)
{
  if (v.kind == TGI_UNDEFINED) {
    tgi_fail_on(job, v, "something with attributes");
  }
  if (v.kind == TGI_NAMESPACE) {
    const tgi_value *item = tgi_dict_get(job, v.as.dict, tgi_text(name));
    if (item) {
      *found = *item;
    }
    return item != NULL;
  }
  if (v.kind == TGI_LOOP) {
    return tgi_loop_attribute(job, v.as.loop, name, found);
  }
  bool known;
  *found = tgi_find_method(job, v, name, &known);
  return known;
}

tgi_value tgi_get_attribute(tgi_job *job, tgi_value v, tgi_string *name)
{
  tgi_value found;
  if (find_attribute(job, v, name, &found) || find_item(job, v, tgi_text(name), &found)) {
    return found;
  }
  return tgi_undefined(name, (tgi_kind)v.kind);
}

tgi_value tgi_get_item(tgi_job *job, tgi_value v, tgi_value key)
{
  tgi_value found;
  if (find_item(job, v, key, &found) ||
      (key.kind == TGI_STRING && find_attribute(job, v, key.as.string, &found))) {
    return found;
  }
  const bool has_name = key.kind == TGI_STRING || key.kind == TGI_INT;
  return tgi_undefined(has_name ? tgi_to_string(job, key) : NULL, (tgi_kind)v.kind);
}

/* ---- arguments ---- */

bool tgi_given(const tgi_call *call, int parameter)
{
  const uint8_t kind = call->arg[parameter].kind;
  return kind != TGI_MISSING && kind != TGI_NONE;
}

tgi_string *tgi_string_argument(const tgi_call *call, int parameter)
{
  const tgi_value v = call->arg[parameter];
  if (v.kind != TGI_STRING) {
    tgi_fail_on(call->job, v, "an argument that is a str");
  }
  return v.as.string;
}

int64_t tgi_int_argument(const tgi_call *call, int parameter, int64_t otherwise)
{
  const tgi_value v = call->arg[parameter];
  int64_t integer = otherwise;
  if (v.kind != TGI_MISSING && !tgi_is_integer(v, &integer)) {
    tgi_fail_on(call->job, v, "an argument that is an int");
  }
  return integer;
}

bool tgi_bool_argument(const tgi_call *call, int parameter, bool otherwise)
{
  return call->arg[parameter].kind == TGI_MISSING ? otherwise : tgi_truth(call->arg[parameter]);
}

tgi_string *tgi_self_string(const tgi_call *call)
{
  return call->self.kind == TGI_STRING ? call->self.as.string
                                       : tgi_to_string(call->job, call->self);
}
