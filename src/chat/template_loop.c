/* Loops, and what `loop` tells of them. */
#include "template_render.h"

/** The next item that passes the loop's test. */
static bool take_item(tgi_loop *loop, tgi_value *item)
{
  tgi_run *run = loop->run;
  while (tgi_walk_next(&run->job, &loop->walk, item)) {
    if (!loop->tests) {
      return true;
    }
    tgi_scope *scope = run->scope; /* the loop's own may be open: its names are not seen */
    run->scope = tgi_scope_new(run, loop->outer);
    tgi_assign(run, loop->node->first, *item);
    const bool passes = tgi_truth(tgi_evaluate(run, loop->node->third));
    run->scope = scope;
    if (passes) {
      return true;
    }
  }
  return false;
}

/** The item after the current one, without going on; false: there is none. */
static bool peek(tgi_loop *loop)
{
  if (!loop->has_after) {
    loop->has_after = take_item(loop, &loop->after);
  }
  return loop->has_after;
}

static bool advance(tgi_loop *loop)
{
  if (!peek(loop)) {
    return false;
  }
  loop->has_after = false;
  loop->before = loop->current;
  loop->current = loop->after;
  loop->index0++;
  return true;
}

/** Where the length is not known, all items that are left are taken at once. */
static int64_t length_of(tgi_loop *loop)
{
  tgi_job *job = &loop->run->job;
  if (loop->length < 0 && !loop->tests && loop->walk.over.kind != TGI_ITERATOR) {
    loop->length = tgi_length(job, loop->walk.over);
  } else if (loop->length < 0) {
    tgi_list *rest = tgi_list_new(job);
    tgi_value item;
    while (take_item(loop, &item)) {
      tgi_list_add(job, rest, item);
    }
    loop->length = (int64_t)rest->count + loop->index0 + 1 + loop->has_after;
    loop->tests = false;
    loop->walk = tgi_walk_begin(job, tgi_from_list(TGI_LIST, rest));
  }
  return loop->length;
}

/* ---- methods ---- */

static tgi_value run_cycle(tgi_call *call)
{
  if (call->args->count == 0) {
    tgi_job_fail(call->job, TG_BAD_ARGUMENT, "values to cycle through, got none");
  }
  return call->args->values[call->self.as.loop->index0 % (int64_t)call->args->count];
}

static tgi_value run_changed(tgi_call *call)
{
  tgi_list *values = tgi_list_new(call->job);
  for (size_t i = 0; i < call->args->count; i++) {
    tgi_list_add(call->job, values, call->args->values[i]);
  }
  tgi_loop *loop = call->self.as.loop;
  const bool changed =
      !loop->changed || !tgi_equal(call->job, tgi_from_list(TGI_TUPLE, loop->changed),
                                   tgi_from_list(TGI_TUPLE, values));
  loop->changed = values;
  return tgi_bool(changed);
}

static const tgi_builtin methods[] = {
    {"changed", NULL, 0, run_changed},
    {"cycle", NULL, 0, run_cycle},
    {NULL, NULL, 0, NULL},
};

bool tgi_loop_attribute(tgi_job *job, tgi_loop *loop, const tgi_string *name, tgi_value *found)
{
  const tgi_builtin *builtin = tgi_find_builtin(methods, name);
  if (builtin) {
    tgi_method *method = tgi_job_allocate(job, sizeof *method);
    *method = (tgi_method){{.kind = TGI_LOOP, .as.loop = loop}, builtin};
    *found = (tgi_value){.kind = TGI_METHOD, .as.method = method};
  } else if (tgi_string_is(name, "index0")) {
    *found = tgi_int(loop->index0);
  } else if (tgi_string_is(name, "index")) {
    *found = tgi_int(loop->index0 + 1);
  } else if (tgi_string_is(name, "first")) {
    *found = tgi_bool(loop->index0 == 0);
  } else if (tgi_string_is(name, "last")) {
    *found = tgi_bool(!peek(loop));
  } else if (tgi_string_is(name, "length")) {
    *found = tgi_int(length_of(loop));
  } else if (tgi_string_is(name, "revindex")) {
    *found = tgi_int(length_of(loop) - loop->index0);
  } else if (tgi_string_is(name, "revindex0")) {
    *found = tgi_int(length_of(loop) - loop->index0 - 1);
  } else if (tgi_string_is(name, "previtem")) {
    *found = loop->index0 > 0 ? loop->before : tgi_undefined(name, TGI_LOOP);
  } else if (tgi_string_is(name, "nextitem")) {
    *found = peek(loop) ? loop->after : tgi_undefined(name, TGI_LOOP);
  } else if (tgi_string_is(name, "depth")) {
    *found = tgi_int(1);
  } else if (tgi_string_is(name, "depth0")) {
    *found = tgi_int(0);
  } else {
    return false;
  }
  return true;
}

/**
 * The part for "else" runs where no turn reached its end: as in Jinja, also where each was ended by
 * break or continue.
 */
tgi_flow tgi_execute_for(tgi_run *run, const tgi_node *node)
{
  const tgi_value over = tgi_evaluate(run, node->second);
  run->job.place = node->second->place;
  tgi_loop *loop = tgi_job_allocate(&run->job, sizeof *loop);
  *loop = (tgi_loop){.run = run,
                     .walk = tgi_walk_begin(&run->job, over),
                     .node = node,
                     .outer = run->scope,
                     .tests = node->third != NULL,
                     .index0 = -1,
                     .length = -1};
  bool finished = false;
  tgi_flow flow = TGI_FLOW_ON;
  while (flow != TGI_FLOW_BREAK && advance(loop)) {
    run->scope = tgi_scope_new(run, loop->outer);
    run->job.place = node->place;
    tgi_scope_set(run, run->scope, TGI_NAME_LOOP, (tgi_value){.kind = TGI_LOOP, .as.loop = loop});
    tgi_assign(run, node->first, loop->current);
    flow = tgi_execute(run, node->body);
    finished = finished || flow == TGI_FLOW_ON;
  }
  run->scope = loop->outer;
  if (node->otherwise && !finished) {
    run->scope = tgi_scope_new(run, loop->outer);
    flow = tgi_execute(run, node->otherwise);
    run->scope = loop->outer;
    return flow;
  }
  return TGI_FLOW_ON;
}
