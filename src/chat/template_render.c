/* Statements, macros and the rooms that names live in. */
#include "template_render.h"
#include "chat/values/template_print.h"
#include "files/file_error.h"

/* ---- names ---- */

tgi_scope *tgi_scope_new(tgi_run *run, tgi_scope *outer)
{
  tgi_scope *scope = tgi_job_allocate(&run->job, sizeof *scope);
  scope->outer = outer;
  return scope;
}

void tgi_scope_set(tgi_run *run, tgi_scope *scope, int32_t id, tgi_value value)
{
  size_t passed = 0;
  for (tgi_binding *binding = scope->bindings; binding; binding = binding->next) {
    if (binding->id == id) {
      binding->value = value;
      return;
    }
    passed += sizeof *binding;
  }
  tgi_job_step(&run->job, passed);
  tgi_binding *binding = tgi_job_allocate(&run->job, sizeof *binding);
  *binding = (tgi_binding){id, value, scope->bindings};
  scope->bindings = binding;
}

static void assign_tuple(tgi_run *run, const tgi_node *target, tgi_value value)
{
  tgi_walk walk = tgi_walk_begin(&run->job, value);
  tgi_value item;
  const tgi_node *name = target->first;
  bool more = tgi_walk_next(&run->job, &walk, &item);
  for (; name && more; name = name->next) {
    tgi_assign(run, name, item);
    more = tgi_walk_next(&run->job, &walk, &item);
  }
  if (name || more) {
    run->job.place = target->place;
    tgi_job_fail(&run->job, TG_BAD_ARGUMENT, "as many values as names, got %s",
                 more ? "more" : "fewer");
  }
}

static void assign_attribute(tgi_run *run, const tgi_node *target, tgi_value value)
{
  run->job.place = target->place;
  const tgi_node name = {.kind = TGI_NODE_NAME,
                         .id = target->id,
                         .place = target->place,
                         .text = run->tree->names[target->id]};
  const tgi_value space = tgi_evaluate(run, &name);
  if (space.kind != TGI_NAMESPACE) {
    tgi_fail_on(&run->job, space, "a namespace, whose attribute is set");
  }
  tgi_check_attribute(&run->job, target->text);
  tgi_dict_set(&run->job, space.as.dict, tgi_text(target->text), value);
}

void tgi_assign(tgi_run *run, const tgi_node *target, tgi_value value)
{
  if (target->kind == TGI_NODE_NAME) {
    tgi_scope_set(run, run->scope, target->id, value);
  } else if (target->kind == TGI_NODE_NAMESPACE) {
    assign_attribute(run, target, value);
  } else {
    run->job.place = target->place;
    assign_tuple(run, target, value);
  }
}

/* ---- blocks with a text of their own ---- */

tgi_string *tgi_capture(tgi_run *run, const tgi_node *statements, tgi_flow *flow)
{
  tgi_writer writer = tgi_writer_begin(&run->job);
  tgi_writer *out = run->out;
  run->out = &writer;
  *flow = tgi_execute(run, statements);
  run->out = out;
  return tgi_writer_end(&writer);
}

/** The body in a room of its own. */
static tgi_string *capture_inside(tgi_run *run, const tgi_node *body, tgi_flow *flow)
{
  tgi_scope *scope = run->scope;
  run->scope = tgi_scope_new(run, scope);
  tgi_string *text = tgi_capture(run, body, flow);
  run->scope = scope;
  return text;
}

/** A filter, or one applied to another, applied to the text of a block. */
static tgi_value filter_text(tgi_run *run, const tgi_node *filter, tgi_string *text)
{
  const tgi_value inner = filter->first ? filter_text(run, filter->first, text) : tgi_text(text);
  return tgi_apply(run, filter, inner);
}

static tgi_flow execute_set_block(tgi_run *run, const tgi_node *node)
{
  tgi_flow flow;
  tgi_string *text = capture_inside(run, node->body, &flow);
  if (flow == TGI_FLOW_ON) {
    const tgi_value value = node->second ? filter_text(run, node->second, text) : tgi_text(text);
    tgi_assign(run, node->first, value);
  }
  return flow;
}

static tgi_flow execute_filter_block(tgi_run *run, const tgi_node *node)
{
  tgi_flow flow;
  tgi_string *text = capture_inside(run, node->body, &flow);
  if (flow == TGI_FLOW_ON) {
    tgi_print(run->out, filter_text(run, node->second, text));
  }
  return flow;
}

/** Places count from the start of the template's own text, as transformers counts them. */
static void execute_generation(tgi_run *run, const tgi_node *node)
{
  tgi_flow flow;
  const size_t begin = run->text.points;
  tgi_string *text = capture_inside(run, node->body, &flow);
  const size_t points = tgi_string_points(&run->job, text);
  if (points > 0) {
    tgi_span *span = tgi_job_allocate(&run->job, sizeof *span);
    *span = (tgi_span){begin, begin + points, NULL};
    *(run->last_span ? &run->last_span->next : &run->spans) = span;
    run->last_span = span;
  }
  tgi_write_string(run->out, text);
}

/* ---- macros ---- */

/** Takes the named argument out of `named`; MISSING: it is not there. */
static tgi_value take_named(tgi_job *job, tgi_args *args, const tgi_string *name)
{
  tgi_job_step(job, args->num_named * sizeof *args->names);
  for (size_t i = 0; i < args->num_named; i++) {
    if (tgi_string_compare(args->names[i], name) == 0) {
      const tgi_value value = args->named[i];
      args->num_named--;
      for (; i < args->num_named; i++) {
        args->names[i] = args->names[i + 1];
        args->named[i] = args->named[i + 1];
      }
      return value;
    }
  }
  return (tgi_value){0};
}

static void bind_rest(tgi_run *run, const tgi_macro *macro, const tgi_args *args, size_t used)
{
  tgi_job *job = &run->job;
  const uint8_t uses = macro->node->uses;
  if (uses & TGI_USES_KWARGS) {
    tgi_dict *dict = tgi_dict_new(job);
    for (size_t i = 0; i < args->num_named; i++) {
      tgi_dict_set(job, dict, tgi_text(args->names[i]), args->named[i]);
    }
    tgi_scope_set(run, run->scope, TGI_NAME_KWARGS, tgi_from_dict(TGI_DICT, dict));
  } else if (args->num_named > 0) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "names of the macro's parameters, got \"%s\"",
                 tgi_quote(args->names[0]->bytes, args->names[0]->size).text);
  }
  if (uses & TGI_USES_VARARGS) {
    tgi_list *rest = tgi_list_new(job);
    for (size_t i = used; i < args->count; i++) {
      tgi_list_add(job, rest, args->values[i]);
    }
    tgi_scope_set(run, run->scope, TGI_NAME_VARARGS, tgi_from_list(TGI_TUPLE, rest));
  } else if (args->count > used) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "at most %zu arguments of the macro, got %zu", used,
                 args->count);
  }
}

/** In the macro's room: parameters, defaults (which may name parameters before them), the rest. */
static void bind_parameters(tgi_run *run, const tgi_macro *macro, tgi_args args)
{
  size_t used = 0;
  bool own_caller = false;
  for (const tgi_node *parameter = macro->node->first; parameter; parameter = parameter->next) {
    tgi_value value =
        used < args.count ? args.values[used] : take_named(&run->job, &args, parameter->text);
    used += used < args.count;
    own_caller = own_caller || parameter->id == TGI_NAME_CALLER;
    if (value.kind == TGI_MISSING) {
      value = parameter->first ? tgi_evaluate(run, parameter->first)
                               : tgi_undefined(parameter->text, TGI_MISSING);
    }
    tgi_scope_set(run, run->scope, parameter->id, value);
  }
  if (macro->node->uses & TGI_USES_CALLER && !own_caller) {
    tgi_string *name = run->tree->names[TGI_NAME_CALLER];
    const tgi_value caller = take_named(&run->job, &args, name);
    tgi_scope_set(run, run->scope, TGI_NAME_CALLER,
                  caller.kind == TGI_MISSING ? tgi_undefined(name, TGI_MISSING) : caller);
  }
  bind_rest(run, macro, &args, used);
}

tgi_value tgi_call_macro(tgi_run *run, const tgi_macro *macro, const tgi_args *args)
{
  tgi_scope *scope = run->scope;
  run->scope = tgi_scope_new(run, macro->scope);
  bind_parameters(run, macro, *args);
  tgi_flow flow;
  tgi_string *text = tgi_capture(run, macro->node->body, &flow);
  run->scope = scope;
  return tgi_text(text);
}

static tgi_value make_macro(tgi_run *run, const tgi_node *node)
{
  tgi_macro *macro = tgi_job_allocate(&run->job, sizeof *macro);
  *macro = (tgi_macro){node->text, node, run->scope};
  return (tgi_value){.kind = TGI_MACRO, .as.macro = macro};
}

/** Calls with one more argument, `caller`, which renders the block. */
static void execute_call_block(tgi_run *run, const tgi_node *node)
{
  tgi_job *job = &run->job;
  const tgi_node *call = node->second;
  const tgi_value callee = tgi_evaluate(run, call->first);
  tgi_args args = tgi_evaluate_args(run, call->second);
  const size_t count = args.num_named;
  tgi_string **names = tgi_job_allocate(job, (count + 1) * sizeof *names);
  tgi_value *named = tgi_job_allocate(job, (count + 1) * sizeof *named);
  for (size_t i = 0; i < count; i++) {
    names[i] = args.names[i];
    named[i] = args.named[i];
  }
  names[count] = run->tree->names[TGI_NAME_CALLER];
  named[count] = make_macro(run, node);
  args = (tgi_args){args.values, args.count, names, named, count + 1};
  job->place = call->place;
  tgi_print(run->out, tgi_call_value(run, callee, &args));
}

/* ---- statements ---- */

static tgi_flow execute_if(tgi_run *run, const tgi_node *node)
{
  for (;;) {
    if (tgi_truth(tgi_evaluate(run, node->first))) {
      return tgi_execute(run, node->second);
    }
    const tgi_node *otherwise = node->third;
    if (!otherwise || otherwise->kind != TGI_NODE_IF || otherwise->next) {
      return tgi_execute(run, otherwise);
    }
    node = otherwise; /* elif */
  }
}

static tgi_flow execute_with(tgi_run *run, const tgi_node *node)
{
  tgi_scope *outer = run->scope, *inner = tgi_scope_new(run, outer);
  for (const tgi_node *bind = node->first; bind; bind = bind->next) {
    const tgi_value value = tgi_evaluate(run, bind->second);
    run->scope = inner;
    tgi_assign(run, bind->first, value);
    run->scope = outer;
  }
  run->scope = inner;
  const tgi_flow flow = tgi_execute(run, node->body);
  run->scope = outer;
  return flow;
}

static void print(tgi_run *run, const tgi_node *node)
{
  const tgi_value value = tgi_evaluate(run, node->first);
  run->job.place = node->place;
  tgi_print(run->out, value);
}

static tgi_flow execute_one(tgi_run *run, const tgi_node *node)
{
  switch ((tgi_node_kind)node->kind) {
  case TGI_NODE_TEXT:
    tgi_write_string(run->out, node->text);
    break;
  case TGI_NODE_PRINT:
    print(run, node);
    break;
  case TGI_NODE_IF:
    return execute_if(run, node);
  case TGI_NODE_FOR:
    return tgi_execute_for(run, node);
  case TGI_NODE_SET:
    tgi_assign(run, node->first, tgi_evaluate(run, node->second));
    break;
  case TGI_NODE_SET_BLOCK:
    return execute_set_block(run, node);
  case TGI_NODE_MACRO:
    tgi_scope_set(run, run->scope, node->id, make_macro(run, node));
    break;
  case TGI_NODE_CALL_BLOCK:
    execute_call_block(run, node);
    break;
  case TGI_NODE_FILTER_BLOCK:
    return execute_filter_block(run, node);
  case TGI_NODE_WITH:
    return execute_with(run, node);
  case TGI_NODE_GENERATION:
    execute_generation(run, node);
    break;
  case TGI_NODE_BREAK:
    return TGI_FLOW_BREAK;
  case TGI_NODE_CONTINUE:
    return TGI_FLOW_CONTINUE;
  default: /* no other node is a statement */
    break;
  }
  return TGI_FLOW_ON;
}

tgi_flow tgi_execute(tgi_run *run, const tgi_node *statements)
{
  tgi_flow flow = TGI_FLOW_ON;
  tgi_job_enter(&run->job);
  for (const tgi_node *node = statements; node && flow == TGI_FLOW_ON; node = node->next) {
    run->job.place = node->place;
    tgi_job_step(&run->job, 0);
    flow = execute_one(run, node);
  }
  tgi_job_leave(&run->job);
  return flow;
}
