/** The tree of a template: what the parser makes and the renderer walks. It never changes. */
#ifndef TGI_CHAT_SYNTAX_TEMPLATE_NODE_H
#define TGI_CHAT_SYNTAX_TEMPLATE_NODE_H

#include "chat/values/template_number.h"

/** What the fields of a node hold; "list" is a chain by `next`. */
typedef enum tgi_node_kind {
  /* expressions */
  TGI_NODE_CONST,   /* value */
  TGI_NODE_NAME,    /* id, text */
  TGI_NODE_LIST,    /* first: list of items */
  TGI_NODE_TUPLE,   /* first: list of items */
  TGI_NODE_DICT,    /* first: list of keys and values in turn */
  TGI_NODE_GETATTR, /* first: object; text */
  TGI_NODE_GETITEM, /* first: object; second: key, or a slice */
  TGI_NODE_SLICE,   /* first, second, third: start, stop, step; NULL where absent */
  TGI_NODE_CALL,    /* first: callee; second: list of arguments */
  TGI_NODE_FILTER,  /* first: value, NULL: the block's text; builtin, text; second: arguments */
  TGI_NODE_TEST,    /* the same */
  TGI_NODE_NOT,     /* first */
  TGI_NODE_NEGATIVE,
  TGI_NODE_POSITIVE,
  TGI_NODE_AND, /* first, second */
  TGI_NODE_OR,
  TGI_NODE_BINARY,  /* operation; first, second */
  TGI_NODE_CONCAT,  /* first: list */
  TGI_NODE_COMPARE, /* first; second: list of operands, each with its operation */
  TGI_NODE_OPERAND, /* operation; first */
  TGI_NODE_COND,    /* first: test; second: then; third: else, or NULL */
  /* arguments of calls; first: value */
  TGI_NODE_POSITIONAL,
  TGI_NODE_KEYWORD, /* text */
  TGI_NODE_SPREAD,  /* *value */
  TGI_NODE_SPREAD_KEYWORDS,
  /* statements */
  TGI_NODE_TEXT,         /* value */
  TGI_NODE_PRINT,        /* first */
  TGI_NODE_IF,           /* first: test; second: list of statements; third: list for else */
  TGI_NODE_FOR,          /* first: target; second: what; third: test or NULL; body, otherwise */
  TGI_NODE_SET,          /* first: target; second: value */
  TGI_NODE_NAMESPACE,    /* a target: id of the namespace, text: attribute */
  TGI_NODE_SET_BLOCK,    /* first: target; second: filter or NULL; body */
  TGI_NODE_MACRO,        /* id, text; first: list of parameters; body; uses */
  TGI_NODE_PARAMETER,    /* id, text; first: default or NULL */
  TGI_NODE_CALL_BLOCK,   /* second: call; else as a macro */
  TGI_NODE_FILTER_BLOCK, /* second: filter; body */
  TGI_NODE_WITH,         /* first: list of targets, each with its value as second; body */
  TGI_NODE_BIND,         /* first: target; second: value */
  TGI_NODE_GENERATION,   /* body */
  TGI_NODE_BREAK,
  TGI_NODE_CONTINUE
} tgi_node_kind;

/** Names that a macro's body mentions, which decides what it may be called with. */
enum { TGI_USES_CALLER = 1, TGI_USES_KWARGS = 2, TGI_USES_VARARGS = 4 };

typedef struct tgi_node {
  uint8_t kind, operation, uses;
  int32_t id; /* of a name: an index in the template's names */
  tgi_place place;
  tgi_string *text;
  tgi_value value;
  const struct tgi_builtin *builtin;
  struct tgi_node *first, *second, *third, *body, *otherwise, *next;
} tgi_node;

/** Names that every template has, by their index. */
enum { TGI_NAME_LOOP, TGI_NAME_CALLER, TGI_NAME_KWARGS, TGI_NAME_VARARGS };

/** A template that was read. */
typedef struct tgi_tree {
  tgi_arena arena;
  tgi_node *statements;
  tgi_string **names; /* each once */
  int32_t num_names;
  bool marks_generation;
} tgi_tree;

/** Index of a name, or -1. */
int32_t tgi_tree_find(const tgi_tree *tree, const char *name);

/**
 * Reads `size` bytes; messages call them `name`. Errors: BAD_FILE, UNSUPPORTED, NO_MEMORY; *tree is
 * then zeroed.
 */
tg_status tgi_tree_parse(const char *name, const char *text, size_t size, tgi_tree *tree,
                         tg_error *error);

#endif
