/* Expressions. */
#include "chat/values/template_number.h"
#include "chat/values/template_print.h"
#include "files/file_error.h"
#include "template_render.h"

/* ---- names ---- */

static tgi_value look_up(tgi_run *run, const tgi_node *node)
{
  for (const tgi_scope *scope = run->scope; scope; scope = scope->outer) {
    for (const tgi_binding *binding = scope->bindings; binding; binding = binding->next) {
      if (binding->id == node->id) {
        return binding->value;
      }
    }
    tgi_job_step(&run->job, 0);
  }
  const tgi_builtin *function = tgi_find_function(node->text);
  return function ? (tgi_value){.kind = TGI_FUNCTION, .as.function = function}
                  : tgi_undefined(node->text, TGI_MISSING);
}

/* ---- items ---- */

static tgi_value evaluate_list(tgi_run *run, const tgi_node *node)
{
  tgi_list *list = tgi_list_new(&run->job);
  for (const tgi_node *item = node->first; item; item = item->next) {
    tgi_list_add(&run->job, list, tgi_evaluate(run, item));
  }
  return tgi_from_list(node->kind == TGI_NODE_LIST ? TGI_LIST : TGI_TUPLE, list);
}

static tgi_value evaluate_dict(tgi_run *run, const tgi_node *node)
{
  tgi_dict *dict = tgi_dict_new(&run->job);
  for (const tgi_node *key = node->first; key; key = key->next->next) {
    const tgi_value name = tgi_evaluate(run, key);
    const tgi_value value = tgi_evaluate(run, key->next);
    run->job.place = key->place;
    tgi_dict_set(&run->job, dict, name, value);
  }
  return tgi_from_dict(TGI_DICT, dict);
}

static tgi_value evaluate_item(tgi_run *run, const tgi_node *node)
{
  const tgi_value v = tgi_evaluate(run, node->first);
  if (node->second->kind == TGI_NODE_SLICE) {
    run->job.place = node->place;
    return tgi_evaluate_slice(run, node, v);
  }
  const tgi_value key = tgi_evaluate(run, node->second);
  run->job.place = node->place;
  return tgi_get_item(&run->job, v, key);
}

/* ---- operators ---- */

static bool is_sequence(tgi_value v)
{
  return v.kind == TGI_STRING || v.kind == TGI_LIST || v.kind == TGI_TUPLE;
}

static tgi_value add_strings(tgi_run *run, tgi_string *a, tgi_string *b)
{
  tgi_writer writer = tgi_writer_begin(&run->job);
  const bool safe = a->safe || b->safe;
  if (safe) {
    tgi_print_escaped(&writer, tgi_text(a));
    tgi_print_escaped(&writer, tgi_text(b));
  } else {
    tgi_write_string(&writer, a);
    tgi_write_string(&writer, b);
  }
  tgi_string *sum = tgi_writer_end(&writer);
  sum->safe = safe;
  return tgi_text(sum);
}

static tgi_value add_lists(tgi_run *run, tgi_value a, tgi_value b)
{
  tgi_list *sum = tgi_list_new(&run->job);
  for (size_t i = 0; i < a.as.list->count; i++) {
    tgi_list_add(&run->job, sum, a.as.list->items[i]);
  }
  for (size_t i = 0; i < b.as.list->count; i++) {
    tgi_list_add(&run->job, sum, b.as.list->items[i]);
  }
  return tgi_from_list((tgi_kind)a.kind, sum);
}

static tgi_value repeat(tgi_run *run, tgi_value v, int64_t times)
{
  tgi_job *job = &run->job;
  if (v.kind == TGI_STRING) {
    tgi_writer writer = tgi_writer_begin(job);
    for (int64_t i = 0; i < times && v.as.string->size > 0; i++) {
      tgi_write_string(&writer, v.as.string);
    }
    tgi_string *repeated = tgi_writer_end(&writer);
    repeated->safe = v.as.string->safe;
    return tgi_text(repeated);
  }
  tgi_list *items = tgi_list_new(job);
  for (int64_t i = 0; i < times && v.as.list->count > 0; i++) {
    for (size_t j = 0; j < v.as.list->count; j++) {
      tgi_list_add(job, items, v.as.list->items[j]);
    }
  }
  return tgi_from_list((tgi_kind)v.kind, items);
}

static tgi_value compute(tgi_run *run, tgi_operation operation, tgi_value a, tgi_value b)
{
  tgi_job *job = &run->job;
  int64_t times;
  if (tgi_is_number(a) && tgi_is_number(b)) {
    return tgi_arithmetic(job, operation, a, b);
  }
  if (operation == TGI_OP_ADD && a.kind == TGI_STRING && b.kind == TGI_STRING) {
    return add_strings(run, a.as.string, b.as.string);
  }
  if (operation == TGI_OP_ADD && a.kind == b.kind && is_sequence(a)) {
    return add_lists(run, a, b);
  }
  if (operation == TGI_OP_MUL && is_sequence(a) && tgi_is_integer(b, &times)) {
    return repeat(run, a, times);
  }
  if (operation == TGI_OP_MUL && is_sequence(b) && tgi_is_integer(a, &times)) {
    return repeat(run, b, times);
  }
  if (operation == TGI_OP_MOD && a.kind == TGI_STRING) {
    return tgi_text(tgi_format_percent(job, a.as.string, b));
  }
  if (a.kind == TGI_UNDEFINED || b.kind == TGI_UNDEFINED) {
    tgi_fail_on(job, a.kind == TGI_UNDEFINED ? a : b, "values to compute with");
  }
  static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
  tgi_job_fail(job, TG_BAD_ARGUMENT, "values that \"%s\" can join, got %s and %s", signs[operation],
               tgi_type_name(a), tgi_type_name(b));
}

static tgi_value evaluate_concat(tgi_run *run, const tgi_node *node)
{
  tgi_writer writer = tgi_writer_begin(&run->job);
  for (const tgi_node *part = node->first; part; part = part->next) {
    const tgi_value v = tgi_evaluate(run, part);
    run->job.place = part->place;
    tgi_print(&writer, v);
  }
  return tgi_text(tgi_writer_end(&writer));
}

static bool compare(tgi_job *job, tgi_operation operation, tgi_value a, tgi_value b)
{
  switch (operation) {
  case TGI_OP_EQ:
    return tgi_equal(job, a, b);
  case TGI_OP_NE:
    return !tgi_equal(job, a, b);
  case TGI_OP_LT:
    return tgi_less(job, a, b);
  case TGI_OP_LE:
    return tgi_less_equal(job, a, b);
  case TGI_OP_GT:
    return tgi_less(job, b, a);
  case TGI_OP_GE:
    return tgi_less_equal(job, b, a);
  case TGI_OP_IN:
    return tgi_contains(job, b, a);
  default:
    return !tgi_contains(job, b, a);
  }
}

/** a < b < c holds where both comparisons do; c is not computed where the first fails. */
static tgi_value evaluate_compare(tgi_run *run, const tgi_node *node)
{
  tgi_value left = tgi_evaluate(run, node->first);
  for (const tgi_node *operand = node->second; operand; operand = operand->next) {
    const tgi_value right = tgi_evaluate(run, operand->first);
    run->job.place = operand->place;
    if (!compare(&run->job, (tgi_operation)operand->operation, left, right)) {
      return tgi_bool(false);
    }
    left = right;
  }
  return tgi_bool(true);
}

static tgi_value evaluate_sign(tgi_run *run, const tgi_node *node)
{
  const tgi_value v = tgi_evaluate(run, node->first);
  run->job.place = node->place;
  if (!tgi_is_number(v)) {
    tgi_fail_on(&run->job, v, "a number behind a sign");
  }
  const tgi_value negative = tgi_negate(&run->job, v);
  return node->kind == TGI_NODE_NEGATIVE ? negative : tgi_negate(&run->job, negative);
}

static tgi_value evaluate_condition(tgi_run *run, const tgi_node *node)
{
  if (tgi_truth(tgi_evaluate(run, node->first))) {
    return tgi_evaluate(run, node->second);
  }
  return node->third ? tgi_evaluate(run, node->third) : tgi_undefined(NULL, TGI_MISSING);
}

/* ---- calls ---- */

static void spread(tgi_run *run, tgi_list *values, tgi_list *named, tgi_value v, bool keywords)
{
  tgi_job *job = &run->job;
  if (!keywords) {
    tgi_walk walk = tgi_walk_begin(job, v);
    tgi_value item;
    while (tgi_walk_next(job, &walk, &item)) {
      tgi_list_add(job, values, item);
    }
    return;
  }
  if (v.kind != TGI_DICT) {
    tgi_fail_on(job, v, "a dict behind **");
  }
  for (size_t i = 0; i < v.as.dict->count; i++) {
    const tgi_entry *entry = &v.as.dict->entries[i];
    if (entry->key.kind != TGI_STRING) {
      tgi_fail_on(job, entry->key, "a str as the name of an argument");
    }
    tgi_list_add(job, named, tgi_pair(job, entry->key, entry->value));
  }
}

tgi_args tgi_evaluate_args(tgi_run *run, const tgi_node *arguments)
{
  tgi_job *job = &run->job;
  tgi_list values = {0}, named = {0};
  tgi_args args = {0};
  for (const tgi_node *node = arguments; node; node = node->next) {
    const tgi_value v = tgi_evaluate(run, node->first);
    run->job.place = node->place;
    if (node->kind == TGI_NODE_POSITIONAL) {
      tgi_list_add(job, &values, v);
    } else if (node->kind == TGI_NODE_KEYWORD) {
      tgi_list_add(job, &named, tgi_pair(job, tgi_text(node->text), v));
    } else {
      spread(run, &values, &named, v, node->kind == TGI_NODE_SPREAD_KEYWORDS);
    }
  }
  args.values = values.items;
  args.count = values.count;
  args.num_named = named.count;
  if (named.count > 0) {
    args.names = tgi_job_allocate(job, named.count * sizeof *args.names);
    args.named = tgi_job_allocate(job, named.count * sizeof *args.named);
  }
  for (size_t i = 0; i < named.count; i++) {
    const tgi_list *pair = named.items[i].as.list;
    args.names[i] = pair->items[0].as.string;
    args.named[i] = pair->items[1];
  }
  return args;
}

tgi_value tgi_call_value(tgi_run *run, tgi_value callee, const tgi_args *args)
{
  if (callee.kind == TGI_MACRO) {
    return tgi_call_macro(run, callee.as.macro, args);
  }
  if (callee.kind == TGI_FUNCTION) {
    return tgi_run_builtin(run, callee.as.function, tgi_none(), args);
  }
  if (callee.kind == TGI_METHOD) {
    return tgi_run_builtin(run, callee.as.method->builtin, callee.as.method->self, args);
  }
  tgi_fail_on(&run->job, callee, "something to call");
}

static tgi_value evaluate_call(tgi_run *run, const tgi_node *node)
{
  const tgi_value callee = tgi_evaluate(run, node->first);
  const tgi_args args = tgi_evaluate_args(run, node->second);
  run->job.place = node->first->place;
  return tgi_call_value(run, callee, &args);
}

tgi_value tgi_apply(tgi_run *run, const tgi_node *node, tgi_value self)
{
  const tgi_args args = tgi_evaluate_args(run, node->second);
  run->job.place = node->place;
  if (!node->builtin) {
    tgi_job_fail(&run->job, TG_UNSUPPORTED, "a %s that is known, got \"%s\"",
                 node->kind == TGI_NODE_FILTER ? "filter" : "test",
                 tgi_quote(node->text->bytes, node->text->size).text);
  }
  return tgi_run_builtin(run, node->builtin, self, &args);
}

static tgi_value evaluate_logic(tgi_run *run, const tgi_node *node)
{
  const tgi_value left = tgi_evaluate(run, node->first);
  const bool ends = tgi_truth(left) == (node->kind == TGI_NODE_OR);
  return ends ? left : tgi_evaluate(run, node->second);
}

static tgi_value evaluate_attribute(tgi_run *run, const tgi_node *node)
{
  const tgi_value v = tgi_evaluate(run, node->first);
  run->job.place = node->place;
  return tgi_get_attribute(&run->job, v, node->text);
}

static tgi_value evaluate_binary(tgi_run *run, const tgi_node *node)
{
  const tgi_value a = tgi_evaluate(run, node->first);
  const tgi_value b = tgi_evaluate(run, node->second);
  run->job.place = node->place;
  return compute(run, (tgi_operation)node->operation, a, b);
}

static tgi_value evaluate(tgi_run *run, const tgi_node *node)
{
  switch ((tgi_node_kind)node->kind) {
  case TGI_NODE_CONST:
    return node->value;
  case TGI_NODE_NAME:
    return look_up(run, node);
  case TGI_NODE_LIST:
  case TGI_NODE_TUPLE:
    return evaluate_list(run, node);
  case TGI_NODE_DICT:
    return evaluate_dict(run, node);
  case TGI_NODE_GETATTR:
    return evaluate_attribute(run, node);
  case TGI_NODE_GETITEM:
    return evaluate_item(run, node);
  case TGI_NODE_CALL:
    return evaluate_call(run, node);
  case TGI_NODE_FILTER:
  case TGI_NODE_TEST:
    return tgi_apply(run, node, tgi_evaluate(run, node->first));
  case TGI_NODE_NOT:
    return tgi_bool(!tgi_truth(tgi_evaluate(run, node->first)));
  case TGI_NODE_NEGATIVE:
  case TGI_NODE_POSITIVE:
    return evaluate_sign(run, node);
  case TGI_NODE_AND:
  case TGI_NODE_OR:
    return evaluate_logic(run, node);
  case TGI_NODE_BINARY:
    return evaluate_binary(run, node);
  case TGI_NODE_CONCAT:
    return evaluate_concat(run, node);
  case TGI_NODE_COMPARE:
    return evaluate_compare(run, node);
  case TGI_NODE_COND:
    return evaluate_condition(run, node);
  default:
    return tgi_none(); /* no other node is an expression */
  }
}

tgi_value tgi_evaluate(tgi_run *run, const tgi_node *node)
{
  tgi_job_step(&run->job, 0);
  tgi_job_enter(&run->job);
  const tgi_value v = evaluate(run, node);
  tgi_job_leave(&run->job);
  return v;
}
