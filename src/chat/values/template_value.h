/**
 * Values of templates: Python's, as far as templates meet them. They are small and passed by value;
 * what they point to belongs to the job. Lists, tuples, dictionaries and strings never change once
 * a template can see them (transformers renders in a sandbox without mutation); namespaces do.
 */
#ifndef TGI_CHAT_VALUES_TEMPLATE_VALUE_H
#define TGI_CHAT_VALUES_TEMPLATE_VALUE_H

#include "template_text.h"

typedef enum tgi_kind {
  TGI_MISSING, /* an argument that was not given; no template sees it */
  TGI_UNDEFINED,
  TGI_NONE,
  TGI_BOOL,
  TGI_INT,
  TGI_REAL,
  TGI_STRING,
  TGI_LIST,
  TGI_TUPLE,
  TGI_DICT,
  TGI_RANGE,
  TGI_KEYS, /* views of a dictionary */
  TGI_VALUES,
  TGI_ITEMS,
  TGI_ITERATOR, /* what filters as map give: can be gone through once */
  TGI_NAMESPACE,
  TGI_MACRO,
  TGI_FUNCTION,
  TGI_METHOD,
  TGI_LOOP,
  TGI_NUM_KINDS
} tgi_kind;

typedef struct tgi_value {
  uint8_t kind;
  uint8_t owner; /* of an undefined value: the kind that lacks `name`; 0: it is a variable */
  union {
    const tgi_string *name; /* of an undefined value; NULL: unknown */
    bool truth;
    int64_t integer;
    double real;
    tgi_string *string;
    struct tgi_list *list; /* also of a tuple */
    struct tgi_dict *dict; /* also of a namespace and of views */
    struct tgi_range *range;
    struct tgi_iterator *iterator;
    struct tgi_macro *macro;
    const struct tgi_builtin *function;
    struct tgi_method *method;
    struct tgi_loop *loop;
  } as;
} tgi_value;

typedef struct tgi_list {
  tgi_value *items;
  size_t count, capacity;
} tgi_list;

typedef struct tgi_entry {
  tgi_value key, value;
  uint64_t hash;
} tgi_entry;

/** In the order of insertion. */
typedef struct tgi_dict {
  tgi_entry *entries;
  size_t count, capacity;
  uint32_t *slots; /* 1 + index of an entry; NULL for few entries */
  size_t num_slots;
} tgi_dict;

typedef struct tgi_range {
  int64_t start, step, count, stop; /* `stop` as given */
} tgi_range;

typedef struct tgi_macro {
  const tgi_string *name;
  const struct tgi_node *node; /* a macro or a call block */
  struct tgi_scope *scope;     /* where it was made */
} tgi_macro;

struct tgi_call;

/** Its items are made when the first is asked for: an error that nobody meets is none. */
typedef struct tgi_iterator {
  tgi_list *items; /* NULL: not made yet */
  size_t at;
  tgi_list *(*make)(struct tgi_call *call);
  struct tgi_call *call;
} tgi_iterator;

/* ---- making ---- */

static inline tgi_value tgi_none(void)
{
  return (tgi_value){.kind = TGI_NONE};
}

static inline tgi_value tgi_bool(bool truth)
{
  return (tgi_value){.kind = TGI_BOOL, .as.truth = truth};
}

static inline tgi_value tgi_int(int64_t integer)
{
  return (tgi_value){.kind = TGI_INT, .as.integer = integer};
}

static inline tgi_value tgi_real(double real)
{
  return (tgi_value){.kind = TGI_REAL, .as.real = real};
}

static inline tgi_value tgi_text(tgi_string *string)
{
  return (tgi_value){.kind = TGI_STRING, .as.string = string};
}

static inline tgi_value tgi_undefined(const tgi_string *name, tgi_kind owner)
{
  return (tgi_value){.kind = TGI_UNDEFINED, .owner = (uint8_t)owner, .as.name = name};
}

static inline tgi_value tgi_from_list(tgi_kind kind, tgi_list *list)
{
  return (tgi_value){.kind = (uint8_t)kind, .as.list = list};
}

static inline tgi_value tgi_from_dict(tgi_kind kind, tgi_dict *dict)
{
  return (tgi_value){.kind = (uint8_t)kind, .as.dict = dict};
}

tgi_list *tgi_list_new(tgi_job *job);
void tgi_list_add(tgi_job *job, tgi_list *list, tgi_value value);
tgi_value tgi_pair(tgi_job *job, tgi_value first, tgi_value second); /* a tuple */

tgi_dict *tgi_dict_new(tgi_job *job);
void tgi_dict_set(tgi_job *job, tgi_dict *dict, tgi_value key, tgi_value value);

/** NULL where the key is not there; fails where it cannot be one (see tgi_is_hashable). */
const tgi_value *tgi_dict_get(tgi_job *job, const tgi_dict *dict, tgi_value key);

/** The same for a text. */
const tgi_value *tgi_dict_get_text(tgi_job *job, const tgi_dict *dict, const char *key);

/* ---- looking ---- */

/** All but lists, dictionaries, their keys and items, and tuples that hold such. */
bool tgi_is_hashable(tgi_job *job, tgi_value v);
bool tgi_truth(tgi_value v);

/** Python's name of the type. */
const char *tgi_type_name(tgi_value v);

/**
 * Ends the job: "expected <rule>, got <value>". What is undefined is named instead, as the reason
 * is most often a misspelt or missing key.
 */
_Noreturn void tgi_fail_on(tgi_job *job, tgi_value v, const char *rule);

/** Fails unless `v` has a length. */
int64_t tgi_length(tgi_job *job, tgi_value v);

/** Item of a list, tuple, range or string; counts from the end where negative. False: not there. */
bool tgi_item_at(tgi_job *job, tgi_value v, int64_t index, tgi_value *item);

/** Whether `v` is a true or false, or a whole number; *integer is it. */
bool tgi_is_integer(tgi_value v, int64_t *integer);

/* ---- going through ---- */

typedef struct tgi_walk {
  tgi_value over;
  size_t at;
} tgi_walk;

bool tgi_is_iterable(tgi_value v);

/** Fails unless `v` is iterable. */
tgi_walk tgi_walk_begin(tgi_job *job, tgi_value v);
bool tgi_walk_next(tgi_job *job, tgi_walk *walk, tgi_value *item);

/** All (other) items. */
tgi_list *tgi_collect(tgi_job *job, tgi_value v);

/* ---- comparing (template_compare.c) ---- */

bool tgi_equal(tgi_job *job, tgi_value a, tgi_value b);

/** a < b; fails where Python has no order. */
bool tgi_less(tgi_job *job, tgi_value a, tgi_value b);

/** a <= b: not the opposite of b < a, as NaN is not ordered. */
bool tgi_less_equal(tgi_job *job, tgi_value a, tgi_value b);

bool tgi_contains(tgi_job *job, tgi_value container, tgi_value item);

/** Is the same object, as far as that is visible. */
bool tgi_same(tgi_value a, tgi_value b);

uint64_t tgi_hash(tgi_job *job, tgi_value v);

/** The items by ascending (descending) `keys`, one for each, or NULL: by themselves. Stable. */
tgi_list *tgi_sorted(tgi_job *job, const tgi_list *items, const tgi_list *keys, bool descending);

#endif
