/**
 * What the parts of the parser share: template_parser.c reads what expressions begin with,
 * template_suffix.c what follows, template_operators.c what stands between them, and
 * template_statements.c the statements around.
 */
#ifndef TGI_CHAT_SYNTAX_TEMPLATE_PARSER_H
#define TGI_CHAT_SYNTAX_TEMPLATE_PARSER_H

#include "template_lexer.h"
#include "template_node.h"

typedef struct tgi_parser {
  tgi_job *job;
  const tgi_token *at; /* the next token */
  tgi_tree *tree;
  int32_t *slots; /* of a hash of the names: 1 + id */
  int32_t num_slots, names_capacity;
  uint8_t uses; /* what the macro that is being read mentions, see TGI_USES_CALLER */
  int loops;    /* around what is being read, up to the next macro */
} tgi_parser;

/** "<rule>, got <the next token>" */
_Noreturn void tgi_parser_fail(tgi_parser *p, const char *rule);

tgi_node *tgi_new_node(tgi_parser *p, tgi_node_kind kind, tgi_place place);
tgi_node *tgi_pair_node(tgi_parser *p, tgi_node_kind kind, tgi_place place, tgi_node *first,
                        tgi_node *second);
tgi_node *tgi_const_node(tgi_parser *p, tgi_place place, tgi_value value);

/** Sets id and text of a name's node. */
void tgi_set_name(tgi_parser *p, tgi_node *node, tgi_string *name);

/** The names that every template has; before all others. */
void tgi_add_fixed_names(tgi_parser *p);

bool tgi_next_is(const tgi_parser *p, tgi_token_kind kind, const char *text);
bool tgi_skip(tgi_parser *p, tgi_token_kind kind, const char *text);
void tgi_expect(tgi_parser *p, tgi_token_kind kind, const char *text);
tgi_string *tgi_expect_name(tgi_parser *p);

static inline bool tgi_next_is_name(const tgi_parser *p, const char *text)
{
  return tgi_next_is(p, TGI_TOKEN_NAME, text);
}

static inline bool tgi_next_is_operator(const tgi_parser *p, const char *text)
{
  return tgi_next_is(p, TGI_TOKEN_OPERATOR, text);
}

static inline bool tgi_skip_name(tgi_parser *p, const char *text)
{
  return tgi_skip(p, TGI_TOKEN_NAME, text);
}

static inline bool tgi_skip_operator(tgi_parser *p, const char *text)
{
  return tgi_skip(p, TGI_TOKEN_OPERATOR, text);
}

/** Each link of a chain ("a.b.c", "a + b + c") makes the tree deeper, so it counts as a level. */
static inline void tgi_enter_chain(tgi_parser *p, int *length)
{
  ++*length;
  tgi_job_enter(p->job);
}

static inline void tgi_leave_chain(tgi_parser *p, int length)
{
  p->job->depth -= length;
}

tgi_node *tgi_parse_expression(tgi_parser *p);

/** Without "a if b". */
tgi_node *tgi_parse_or(tgi_parser *p);

/** A name, a literal or brackets; "name.attribute" where `namespaces`. */
tgi_node *tgi_parse_primary(tgi_parser *p, bool namespaces);

/** Attributes, items and calls behind `node`. */
tgi_node *tgi_parse_postfix(tgi_parser *p, tgi_node *node);

/** Filters and tests behind `node`. */
tgi_node *tgi_parse_filtered(tgi_parser *p, tgi_node *node);

/** One expression, or a tuple of several with commas between. Without `condition` no "a if b". */
tgi_node *tgi_parse_tuple(tgi_parser *p, bool condition);

/** "name", "name.attribute" where `namespaces`, "a, (b, c)" where `tuples`. */
tgi_node *tgi_parse_target(tgi_parser *p, bool tuples, bool namespaces);

/** "| name(arguments) | ..." applied to `node`, which is NULL for a block. */
tgi_node *tgi_parse_filters(tgi_parser *p, tgi_node *node);

/** One "name(arguments)" of these. */
tgi_node *tgi_parse_filter(tgi_parser *p, tgi_node *node);

#endif
