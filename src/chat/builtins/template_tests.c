/* What stands behind `is`, and finding filters, tests and functions by name. */
#include "chat/values/template_number.h"
#include "template_filters.h"
#include "template_functions.h"
#include <utf8proc.h>

static tgi_value run_defined(tgi_call *call)
{
  return tgi_bool(call->self.kind != TGI_UNDEFINED);
}

static tgi_value run_undefined(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_UNDEFINED);
}

static tgi_value run_none(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_NONE);
}

static tgi_value run_boolean(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_BOOL);
}

static tgi_value run_true(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_BOOL && call->self.as.truth);
}

static tgi_value run_false(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_BOOL && !call->self.as.truth);
}

static tgi_value run_integer(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_INT);
}

static tgi_value run_float(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_REAL);
}

static tgi_value run_number(tgi_call *call)
{
  return tgi_bool(tgi_is_number(call->self));
}

static tgi_value run_string(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_STRING);
}

static tgi_value run_mapping(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_DICT);
}

static tgi_value run_iterable(tgi_call *call)
{
  return tgi_bool(tgi_is_iterable(call->self));
}

/** Has a length and items: dictionaries and what is undefined, too. */
static tgi_value run_sequence(tgi_call *call)
{
  const uint8_t kind = call->self.kind;
  return tgi_bool(kind == TGI_STRING || kind == TGI_LIST || kind == TGI_TUPLE || kind == TGI_DICT ||
                  kind == TGI_RANGE || kind == TGI_UNDEFINED);
}

static tgi_value run_callable(tgi_call *call)
{
  const uint8_t kind = call->self.kind;
  return tgi_bool(kind == TGI_MACRO || kind == TGI_FUNCTION || kind == TGI_METHOD ||
                  kind == TGI_LOOP || kind == TGI_UNDEFINED);
}

static tgi_value run_escaped(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_STRING && call->self.as.string->safe);
}

/** Whether all letters with case are in `lower` (upper) case, and there is one. */
static tgi_value has_case(tgi_call *call, bool lower)
{
  const tgi_string *s = tgi_self_string(call);
  bool some = false;
  size_t length;
  tgi_job_step(call->job, s->size);
  for (size_t at = 0; at < s->size; at += length) {
    const uint32_t point = tgi_string_point(s, at, &length);
    switch (utf8proc_category((utf8proc_int32_t)point)) {
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LU:
      if ((utf8proc_category((utf8proc_int32_t)point) == UTF8PROC_CATEGORY_LL) != lower) {
        return tgi_bool(false);
      }
      some = true;
      break;
    case UTF8PROC_CATEGORY_LT:
      return tgi_bool(false);
    default:
      break;
    }
  }
  return tgi_bool(some);
}

static tgi_value run_lower(tgi_call *call)
{
  return has_case(call, true);
}

static tgi_value run_upper(tgi_call *call)
{
  return has_case(call, false);
}

/** self % divisor == rest */
static tgi_value leaves(tgi_call *call, tgi_value divisor, int64_t rest)
{
  if (!tgi_is_number(call->self) || !tgi_is_number(divisor)) {
    tgi_fail_on(call->job, tgi_is_number(call->self) ? divisor : call->self, "numbers to divide");
  }
  const tgi_value left = tgi_arithmetic(call->job, TGI_OP_MOD, call->self, divisor);
  return tgi_bool(tgi_equal(call->job, left, tgi_int(rest)));
}

static tgi_value run_odd(tgi_call *call)
{
  return leaves(call, tgi_int(2), 1);
}

static tgi_value run_even(tgi_call *call)
{
  return leaves(call, tgi_int(2), 0);
}

static tgi_value run_divisibleby(tgi_call *call)
{
  return leaves(call, call->arg[0], 0);
}

static tgi_value run_sameas(tgi_call *call)
{
  return tgi_bool(tgi_same(call->self, call->arg[0]));
}

static tgi_value run_in(tgi_call *call)
{
  return tgi_bool(tgi_contains(call->job, call->arg[0], call->self));
}

static tgi_value run_eq(tgi_call *call)
{
  return tgi_bool(tgi_equal(call->job, call->self, call->arg[0]));
}

static tgi_value run_ne(tgi_call *call)
{
  return tgi_bool(!tgi_equal(call->job, call->self, call->arg[0]));
}

static tgi_value run_lt(tgi_call *call)
{
  return tgi_bool(tgi_less(call->job, call->self, call->arg[0]));
}

static tgi_value run_le(tgi_call *call)
{
  return tgi_bool(tgi_less_equal(call->job, call->self, call->arg[0]));
}

static tgi_value run_gt(tgi_call *call)
{
  return tgi_bool(tgi_less(call->job, call->arg[0], call->self));
}

static tgi_value run_ge(tgi_call *call)
{
  return tgi_bool(tgi_less_equal(call->job, call->arg[0], call->self));
}

static tgi_value run_filter(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_STRING && tgi_find_filter(call->self.as.string));
}

static tgi_value run_test(tgi_call *call)
{
  return tgi_bool(call->self.kind == TGI_STRING && tgi_find_test(call->self.as.string));
}

static const tgi_builtin tests[] = {
    {"!=", "other", 1, run_ne},
    {"<", "other", 1, run_lt},
    {"<=", "other", 1, run_le},
    {"==", "other", 1, run_eq},
    {">", "other", 1, run_gt},
    {">=", "other", 1, run_ge},
    {"boolean", "", 0, run_boolean},
    {"callable", "", 0, run_callable},
    {"defined", "", 0, run_defined},
    {"divisibleby", "num", 1, run_divisibleby},
    {"eq", "other", 1, run_eq},
    {"equalto", "other", 1, run_eq},
    {"escaped", "", 0, run_escaped},
    {"even", "", 0, run_even},
    {"false", "", 0, run_false},
    {"filter", "", 0, run_filter},
    {"float", "", 0, run_float},
    {"ge", "other", 1, run_ge},
    {"greaterthan", "other", 1, run_gt},
    {"gt", "other", 1, run_gt},
    {"in", "seq", 1, run_in},
    {"integer", "", 0, run_integer},
    {"iterable", "", 0, run_iterable},
    {"le", "other", 1, run_le},
    {"lessthan", "other", 1, run_lt},
    {"lower", "", 0, run_lower},
    {"lt", "other", 1, run_lt},
    {"mapping", "", 0, run_mapping},
    {"ne", "other", 1, run_ne},
    {"none", "", 0, run_none},
    {"number", "", 0, run_number},
    {"odd", "", 0, run_odd},
    {"sameas", "other", 1, run_sameas},
    {"sequence", "", 0, run_sequence},
    {"string", "", 0, run_string},
    {"test", "", 0, run_test},
    {"true", "", 0, run_true},
    {"undefined", "", 0, run_undefined},
    {"upper", "", 0, run_upper},
    {NULL, NULL, 0, NULL},
};

const tgi_builtin *tgi_find_test(const tgi_string *name)
{
  return tgi_find_builtin(tests, name);
}

const tgi_builtin *tgi_find_filter(const tgi_string *name)
{
  const tgi_builtin *found = tgi_find_builtin(tgi_value_filters, name);
  found = found ? found : tgi_find_builtin(tgi_selection_filters, name);
  return found ? found : tgi_find_builtin(tgi_order_filters, name);
}

const tgi_builtin *tgi_find_function(const tgi_string *name)
{
  return tgi_find_builtin(tgi_functions, name);
}
