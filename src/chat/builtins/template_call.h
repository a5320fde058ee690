/**
 * Calls: what filters, tests, methods and functions are, how arguments reach them, and what the
 * renderer offers to those that call others.
 */
#ifndef TGI_CHAT_BUILTINS_TEMPLATE_CALL_H
#define TGI_CHAT_BUILTINS_TEMPLATE_CALL_H

#include "chat/syntax/template_node.h"

enum { TGI_MAX_PARAMETERS = 6 };

typedef struct tgi_args {
  tgi_value *values; /* by position */
  size_t count;
  tgi_string **names; /* of those below */
  tgi_value *named;
  size_t num_named;
} tgi_args;

typedef struct tgi_call {
  tgi_job *job;
  struct tgi_run *run;
  tgi_value self; /* what a filter, test or method is applied to */
  const tgi_args *args;
  tgi_value arg[TGI_MAX_PARAMETERS]; /* by the builtin's parameters; MISSING: not given */
} tgi_call;

typedef struct tgi_builtin {
  const char *name;
  const char *parameters; /* their names with spaces between; NULL: any arguments, in `args` */
  int required;           /* of the parameters, at least */
  tgi_value (*run)(tgi_call *call);
} tgi_builtin;

/** A method with what it belongs to. */
typedef struct tgi_method {
  tgi_value self;
  const tgi_builtin *builtin;
} tgi_method;

/** NULL: there is none of this name. */
const tgi_builtin *tgi_find_filter(const tgi_string *name);
const tgi_builtin *tgi_find_test(const tgi_string *name);
const tgi_builtin *tgi_find_function(const tgi_string *name);

/** Looks in a table that a NULL name ends. */
const tgi_builtin *tgi_find_builtin(const tgi_builtin *table, const tgi_string *name);

/** Binds the arguments to the parameters and runs it. */
tgi_value tgi_run_builtin(struct tgi_run *run, const tgi_builtin *builtin, tgi_value self,
                          const tgi_args *args);

/** What `v.name` is: an attribute of Python's type first, then an item. */
tgi_value tgi_get_attribute(tgi_job *job, tgi_value v, tgi_string *name);

/** What `v[key]` is: an item first, then an attribute. */
tgi_value tgi_get_item(tgi_job *job, tgi_value v, tgi_value key);

/**
 * The method or property `name` of Python's type. *known says whether the type has such an
 * attribute at all; one that changes its object is known and undefined.
 */
tgi_value tgi_find_method(tgi_job *job, tgi_value v, tgi_string *name, bool *known);

/* ---- arguments as what they must be ---- */

bool tgi_given(const tgi_call *call, int parameter); /* also: not none */
tgi_string *tgi_string_argument(const tgi_call *call, int parameter);
int64_t tgi_int_argument(const tgi_call *call, int parameter, int64_t otherwise);
bool tgi_bool_argument(const tgi_call *call, int parameter, bool otherwise);

/** self as str() prints it; marked as safe where it is so (markupsafe's soft_str). */
tgi_string *tgi_self_string(const tgi_call *call);

/* ---- formats (template_percent.c, template_braces.c) ---- */

/** format % values; `values` is a tuple, a dictionary or one value. */
tgi_string *tgi_format_percent(tgi_job *job, const tgi_string *format, tgi_value values);

/** format.format(...). */
tgi_string *tgi_format_braces(tgi_job *job, const tgi_string *format, const tgi_args *args);

#endif
