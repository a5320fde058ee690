/* Operators, from the strongest to the weakest, as Jinja's parser has them. */
#include "template_parser.h"

static tgi_node *parse_unary(tgi_parser *p, bool filters)
{
  tgi_job_enter(p->job);
  const tgi_place place = p->at->place;
  tgi_node *node;
  if (tgi_skip_operator(p, "-")) {
    node = tgi_pair_node(p, TGI_NODE_NEGATIVE, place, parse_unary(p, false), NULL);
  } else if (tgi_skip_operator(p, "+")) {
    node = tgi_pair_node(p, TGI_NODE_POSITIVE, place, parse_unary(p, false), NULL);
  } else {
    node = tgi_parse_primary(p, false);
  }
  node = tgi_parse_postfix(p, node);
  node = filters ? tgi_parse_filtered(p, node) : node;
  tgi_job_leave(p->job);
  return node;
}

typedef struct operator_word {
  const char *text;
  tgi_operation operation;
} operator_word;

/** The next token among `words`, which a NULL ends; it is passed over. */
static const operator_word *take_operator(tgi_parser *p, const operator_word *words)
{
  for (; words->text; words++) {
    if (tgi_skip_operator(p, words->text)) {
      return words;
    }
  }
  return NULL;
}

/** Operands with operators between, from left to right. */
static tgi_node *parse_binary(tgi_parser *p, const operator_word *words,
                              tgi_node *(*operand)(tgi_parser *))
{
  int length = 0;
  tgi_node *left = operand(p);
  for (;; tgi_enter_chain(p, &length)) {
    const tgi_place place = p->at->place;
    const operator_word *word = take_operator(p, words);
    if (!word) {
      tgi_leave_chain(p, length);
      return left;
    }
    left = tgi_pair_node(p, TGI_NODE_BINARY, place, left, operand(p));
    left->operation = (uint8_t)word->operation;
  }
}

static tgi_node *parse_signed(tgi_parser *p)
{
  return parse_unary(p, true);
}

static tgi_node *parse_power(tgi_parser *p)
{
  static const operator_word words[] = {{"**", TGI_OP_POW}, {NULL, 0}};
  return parse_binary(p, words, parse_signed);
}

static tgi_node *parse_product(tgi_parser *p)
{
  static const operator_word words[] = {
      {"*", TGI_OP_MUL}, {"/", TGI_OP_DIV}, {"//", TGI_OP_FLOORDIV}, {"%", TGI_OP_MOD}, {NULL, 0}};
  return parse_binary(p, words, parse_power);
}

static tgi_node *parse_concat(tgi_parser *p)
{
  const tgi_place place = p->at->place;
  tgi_node *first = parse_product(p);
  if (!tgi_next_is_operator(p, "~")) {
    return first;
  }
  for (tgi_node *last = first; tgi_skip_operator(p, "~"); last = last->next) {
    last->next = parse_product(p);
  }
  return tgi_pair_node(p, TGI_NODE_CONCAT, place, first, NULL);
}

static tgi_node *parse_sum(tgi_parser *p)
{
  static const operator_word words[] = {{"+", TGI_OP_ADD}, {"-", TGI_OP_SUB}, {NULL, 0}};
  return parse_binary(p, words, parse_concat);
}

/** False: no comparison follows. */
static bool take_comparison(tgi_parser *p, tgi_operation *operation)
{
  static const operator_word words[] = {{"==", TGI_OP_EQ}, {"!=", TGI_OP_NE}, {"<", TGI_OP_LT},
                                        {"<=", TGI_OP_LE}, {">", TGI_OP_GT},  {">=", TGI_OP_GE},
                                        {NULL, 0}};
  const operator_word *word = take_operator(p, words);
  if (word) {
    *operation = word->operation;
    return true;
  }
  if (tgi_skip_name(p, "in")) {
    *operation = TGI_OP_IN;
    return true;
  }
  if (tgi_next_is_name(p, "not") && p->at[1].kind == TGI_TOKEN_NAME &&
      tgi_string_is(p->at[1].text, "in")) {
    p->at += 2;
    *operation = TGI_OP_NOT_IN;
    return true;
  }
  return false;
}

static tgi_node *parse_compare(tgi_parser *p)
{
  const tgi_place place = p->at->place;
  tgi_node *left = parse_sum(p);
  tgi_node *operands = NULL, **last = &operands;
  for (;;) {
    const tgi_place where = p->at->place;
    tgi_operation operation;
    if (!take_comparison(p, &operation)) {
      break;
    }
    tgi_node *operand = tgi_pair_node(p, TGI_NODE_OPERAND, where, parse_sum(p), NULL);
    operand->operation = (uint8_t)operation;
    *last = operand;
    last = &operand->next;
  }
  return operands ? tgi_pair_node(p, TGI_NODE_COMPARE, place, left, operands) : left;
}

static tgi_node *parse_not(tgi_parser *p)
{
  const tgi_place place = p->at->place;
  if (!tgi_skip_name(p, "not")) {
    return parse_compare(p);
  }
  tgi_job_enter(p->job);
  tgi_node *node = tgi_pair_node(p, TGI_NODE_NOT, place, parse_not(p), NULL);
  tgi_job_leave(p->job);
  return node;
}

static tgi_node *parse_logic(tgi_parser *p, const char *word, tgi_node_kind kind,
                             tgi_node *(*operand)(tgi_parser *))
{
  int length = 0;
  tgi_node *left = operand(p);
  for (;; tgi_enter_chain(p, &length)) {
    const tgi_place place = p->at->place;
    if (!tgi_skip_name(p, word)) {
      tgi_leave_chain(p, length);
      return left;
    }
    left = tgi_pair_node(p, kind, place, left, operand(p));
  }
}

static tgi_node *parse_and(tgi_parser *p)
{
  return parse_logic(p, "and", TGI_NODE_AND, parse_not);
}

tgi_node *tgi_parse_or(tgi_parser *p)
{
  return parse_logic(p, "or", TGI_NODE_OR, parse_and);
}

tgi_node *tgi_parse_expression(tgi_parser *p)
{
  int length = 0;
  tgi_job_enter(p->job);
  tgi_node *node = tgi_parse_or(p);
  for (; tgi_next_is_name(p, "if"); tgi_enter_chain(p, &length)) {
    const tgi_place place = p->at->place;
    p->at++;
    tgi_node *cond = tgi_pair_node(p, TGI_NODE_COND, place, tgi_parse_or(p), node);
    cond->third = tgi_skip_name(p, "else") ? tgi_parse_expression(p) : NULL;
    node = cond;
  }
  tgi_leave_chain(p, length);
  tgi_job_leave(p->job);
  return node;
}
