/** What the two halves of the parser share: template_parser.c has the expressions. */
#ifndef TGI_CHAT_TEMPLATE_PARSER_H
#define TGI_CHAT_TEMPLATE_PARSER_H

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

tgi_node *tgi_parse_expression(tgi_parser *p);

/** One expression, or a tuple of several with commas between. Without `condition` no "a if b". */
tgi_node *tgi_parse_tuple(tgi_parser *p, bool condition);

/** "name", "name.attribute" where `namespaces`, "a, (b, c)" where `tuples`. */
tgi_node *tgi_parse_target(tgi_parser *p, bool tuples, bool namespaces);

/** "| name(arguments) | ..." applied to `node`, which is NULL for a block. */
tgi_node *tgi_parse_filters(tgi_parser *p, tgi_node *node);

/** One "name(arguments)" of these. */
tgi_node *tgi_parse_filter(tgi_parser *p, tgi_node *node);

#endif
