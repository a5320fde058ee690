/**
 * Rendering: template_render.c runs statements, template_eval.c computes expressions,
 * template_loop.c goes through loops.
 */
#ifndef TGI_CHAT_TEMPLATE_RENDER_H
#define TGI_CHAT_TEMPLATE_RENDER_H

#include "chat/builtins/template_call.h"
#include <time.h>

/** Names that were set in one room: the template, a turn of a loop, the body of a macro, ... */
typedef struct tgi_binding {
  int32_t id;
  tgi_value value;
  struct tgi_binding *next;
} tgi_binding;

typedef struct tgi_scope {
  struct tgi_scope *outer;
  tgi_binding *bindings;
} tgi_scope;

/** Code points of the text that a {% generation %} gave. */
typedef struct tgi_span {
  size_t begin, end;
  struct tgi_span *next;
} tgi_span;

typedef struct tgi_run {
  tgi_job job;
  const tgi_tree *tree;
  tgi_scope *scope;
  tgi_writer *out; /* of the innermost macro, block, ... */
  tgi_writer text; /* of the template itself */
  tgi_span *spans, *last_span;
  struct tm now;
} tgi_run;

/** What `loop` is. Items are taken one at a time, as Jinja does: a test may see what changed. */
typedef struct tgi_loop {
  tgi_run *run;
  tgi_walk walk;
  const tgi_node *node; /* its target and test */
  tgi_scope *outer;     /* around it */
  bool tests;           /* whether the test is still to be asked */
  int64_t index0;       /* -1 before the first turn */
  int64_t length;       /* -1: not counted yet */
  bool has_after;       /* the next item was taken already */
  tgi_value before, current, after;
  tgi_list *changed; /* the last arguments of loop.changed */
} tgi_loop;

/** What a list of statements ended with. */
typedef enum tgi_flow { TGI_FLOW_ON, TGI_FLOW_BREAK, TGI_FLOW_CONTINUE } tgi_flow;

tgi_flow tgi_execute(tgi_run *run, const tgi_node *statements);
tgi_flow tgi_execute_for(tgi_run *run, const tgi_node *node);

/** Runs statements that write to a text of their own. */
tgi_string *tgi_capture(tgi_run *run, const tgi_node *statements, tgi_flow *flow);

tgi_value tgi_evaluate(tgi_run *run, const tgi_node *node);

/** `v` by the slice of an item's node. */
tgi_value tgi_evaluate_slice(tgi_run *run, const tgi_node *node, tgi_value v);
tgi_value tgi_call_value(tgi_run *run, tgi_value callee, const tgi_args *args);
tgi_value tgi_call_macro(tgi_run *run, const tgi_macro *macro, const tgi_args *args);
tgi_args tgi_evaluate_args(tgi_run *run, const tgi_node *arguments);

/** A filter (test) applied to a value. */
tgi_value tgi_apply(tgi_run *run, const tgi_node *node, tgi_value self);

/** Enters a room within `outer`. */
tgi_scope *tgi_scope_new(tgi_run *run, tgi_scope *outer);
void tgi_scope_set(tgi_run *run, tgi_scope *scope, int32_t id, tgi_value value);

/** Gives the target's names their values, in the current scope. */
void tgi_assign(tgi_run *run, const tgi_node *target, tgi_value value);

/** `loop.name`; false: there is none. */
bool tgi_loop_attribute(tgi_job *job, tgi_loop *loop, const tgi_string *name, tgi_value *found);

/** Fails for a name that begins with an underscore. */
void tgi_check_attribute(tgi_job *job, const tgi_string *name);

#endif
