/* Expressions, in the order of precedence that Jinja's parser has. */
#include "template_parser.h"
#include "files/file_error.h"
#include "template_call.h"
#include <string.h>

/* ---- tokens and nodes ---- */

void tgi_parser_fail(tgi_parser *p, const char *rule)
{
  static const char *const kinds[] = {"text",   "\"{{\"", "\"}}\"",   "\"{%\"", "\"%}\"",
                                      "a name", "a str",  "a number", "",       "the end"};
  const tgi_token *token = p->at;
  p->job->place = token->place;
  if (token->kind == TGI_TOKEN_NAME || token->kind == TGI_TOKEN_OPERATOR) {
    tgi_job_fail(p->job, TG_BAD_FILE, "%s, got \"%s\"", rule,
                 tgi_quote(token->text->bytes, token->text->size).text);
  }
  tgi_job_fail(p->job, TG_BAD_FILE, "%s, got %s", rule, kinds[token->kind]);
}

tgi_node *tgi_new_node(tgi_parser *p, tgi_node_kind kind, tgi_place place)
{
  tgi_node *node = tgi_job_allocate(p->job, sizeof *node);
  *node = (tgi_node){.kind = (uint8_t)kind, .place = place, .id = -1};
  return node;
}

static tgi_node *pair_node(tgi_parser *p, tgi_node_kind kind, tgi_place place, tgi_node *first,
                           tgi_node *second)
{
  tgi_node *node = tgi_new_node(p, kind, place);
  node->first = first;
  node->second = second;
  return node;
}

bool tgi_next_is(const tgi_parser *p, tgi_token_kind kind, const char *text)
{
  return p->at->kind == kind && (!text || tgi_string_is(p->at->text, text));
}

bool tgi_skip(tgi_parser *p, tgi_token_kind kind, const char *text)
{
  const bool is = tgi_next_is(p, kind, text);
  p->at += is;
  return is;
}

static bool skip_name(tgi_parser *p, const char *text)
{
  return tgi_skip(p, TGI_TOKEN_NAME, text);
}

static bool skip_operator(tgi_parser *p, const char *text)
{
  return tgi_skip(p, TGI_TOKEN_OPERATOR, text);
}

void tgi_expect(tgi_parser *p, tgi_token_kind kind, const char *text)
{
  if (!tgi_skip(p, kind, text)) {
    char rule[40];
    const char *name = text                          ? text
                       : kind == TGI_TOKEN_PRINT_END ? "}}"
                       : kind == TGI_TOKEN_BLOCK_END ? "%}"
                                                     : "";
    strcpy(rule, "\"");
    strncat(rule, name, 30);
    strcat(rule, "\"");
    tgi_parser_fail(p, rule);
  }
}

tgi_string *tgi_expect_name(tgi_parser *p)
{
  if (p->at->kind != TGI_TOKEN_NAME) {
    tgi_parser_fail(p, "a name");
  }
  return (p->at++)->text;
}

/** The slot of a name, or the empty one where it belongs. */
static int32_t *name_slot(const tgi_parser *p, const tgi_string *name)
{
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < name->size; i++) {
    hash = (hash ^ (unsigned char)name->bytes[i]) * 16777619u;
  }
  for (;; hash++) {
    int32_t *slot = &p->slots[hash & (uint32_t)(p->num_slots - 1)];
    if (*slot == 0 || tgi_string_compare(p->tree->names[*slot - 1], name) == 0) {
      return slot;
    }
  }
}

static void grow_names(tgi_parser *p)
{
  tgi_tree *tree = p->tree;
  const int32_t capacity = p->names_capacity ? 2 * p->names_capacity : 64;
  tree->names = tgi_job_grow(p->job, tree->names, (size_t)p->names_capacity * sizeof *tree->names,
                             (size_t)capacity * sizeof *tree->names);
  p->names_capacity = capacity;
  p->num_slots = 2 * capacity;
  p->slots = tgi_job_allocate(p->job, (size_t)p->num_slots * sizeof *p->slots);
  for (int32_t i = 0; i < tree->num_names; i++) {
    *name_slot(p, tree->names[i]) = i + 1;
  }
}

static int32_t intern(tgi_parser *p, tgi_string *name)
{
  if (p->tree->num_names == p->names_capacity) {
    grow_names(p);
  }
  int32_t *slot = name_slot(p, name);
  if (*slot == 0) {
    p->tree->names[p->tree->num_names] = name;
    *slot = ++p->tree->num_names;
  }
  return *slot - 1;
}

void tgi_set_name(tgi_parser *p, tgi_node *node, tgi_string *name)
{
  node->id = intern(p, name);
  node->text = name;
}

void tgi_add_fixed_names(tgi_parser *p)
{
  static const char *const names[] = {[TGI_NAME_LOOP] = "loop",
                                      [TGI_NAME_CALLER] = "caller",
                                      [TGI_NAME_KWARGS] = "kwargs",
                                      [TGI_NAME_VARARGS] = "varargs"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    tgi_string *name = tgi_string_copy(p->job, names[i]);
    name->points = name->size;
    intern(p, name);
  }
}

/* ---- what expressions begin with ---- */

static tgi_node *const_node(tgi_parser *p, tgi_place place, tgi_value value)
{
  tgi_node *node = tgi_new_node(p, TGI_NODE_CONST, place);
  node->value = value;
  return node;
}

static void note_use(tgi_parser *p, int32_t id)
{
  p->uses |= id == TGI_NAME_CALLER    ? TGI_USES_CALLER
             : id == TGI_NAME_KWARGS  ? TGI_USES_KWARGS
             : id == TGI_NAME_VARARGS ? TGI_USES_VARARGS
                                      : 0;
}

static tgi_node *parse_name(tgi_parser *p, bool namespaces)
{
  const tgi_place place = p->at->place;
  tgi_string *name = tgi_expect_name(p);
  const bool yes = tgi_string_is(name, "true") || tgi_string_is(name, "True");
  if (yes || tgi_string_is(name, "false") || tgi_string_is(name, "False")) {
    return const_node(p, place, tgi_bool(yes));
  }
  if (tgi_string_is(name, "none") || tgi_string_is(name, "None")) {
    return const_node(p, place, tgi_none());
  }
  const bool attribute = namespaces && skip_operator(p, ".");
  tgi_node *node = tgi_new_node(p, attribute ? TGI_NODE_NAMESPACE : TGI_NODE_NAME, place);
  tgi_set_name(p, node, name);
  note_use(p, node->id);
  if (attribute) {
    node->text = tgi_expect_name(p);
  }
  return node;
}

/** Texts beside each other are one. */
static tgi_node *parse_string(tgi_parser *p)
{
  const tgi_place place = p->at->place;
  tgi_string *s = (p->at++)->text;
  if (p->at->kind == TGI_TOKEN_STRING) {
    tgi_writer writer = tgi_writer_begin(p->job);
    tgi_write_string(&writer, s);
    for (; p->at->kind == TGI_TOKEN_STRING; p->at++) {
      tgi_write_string(&writer, p->at->text);
    }
    s = tgi_writer_end(&writer);
  }
  return const_node(p, place, tgi_text(s));
}

/** Items up to the closing bracket; a dictionary's are keys and values in turn. */
static tgi_node *parse_items(tgi_parser *p, tgi_node_kind kind, const char *closing)
{
  tgi_node *node = tgi_new_node(p, kind, p->at->place);
  tgi_node **last = &node->first;
  p->at++;
  for (bool first = true; !tgi_next_is_operator(p, closing); first = false) {
    if (!first) {
      tgi_expect(p, TGI_TOKEN_OPERATOR, ",");
      if (tgi_next_is_operator(p, closing)) {
        break;
      }
    }
    *last = tgi_parse_expression(p);
    last = &(*last)->next;
    if (kind == TGI_NODE_DICT) {
      tgi_expect(p, TGI_TOKEN_OPERATOR, ":");
      *last = tgi_parse_expression(p);
      last = &(*last)->next;
    }
  }
  p->at++;
  return node;
}

static bool is_tuple_end(const tgi_parser *p)
{
  return p->at->kind == TGI_TOKEN_PRINT_END || p->at->kind == TGI_TOKEN_BLOCK_END ||
         tgi_next_is_operator(p, ")");
}

static tgi_node *parse_primary(tgi_parser *p, bool namespaces);
static tgi_node *parse_or(tgi_parser *p);

typedef enum item_form { ANY_EXPRESSION, NO_CONDITION, TARGET, TARGET_NAMESPACE } item_form;

static tgi_node *parse_item(tgi_parser *p, item_form form)
{
  return form == ANY_EXPRESSION ? tgi_parse_expression(p)
         : form == NO_CONDITION ? parse_or(p)
                                : parse_primary(p, form == TARGET_NAMESPACE);
}

static tgi_node *parse_tuple(tgi_parser *p, item_form form, bool brackets)
{
  const tgi_place place = p->at->place;
  tgi_node *items = NULL, **last = &items;
  bool tuple = false;
  for (bool first = true;; first = false) {
    if (!first) {
      tgi_expect(p, TGI_TOKEN_OPERATOR, ",");
    }
    if (is_tuple_end(p) || (form >= TARGET && tgi_next_is_name(p, "in"))) {
      break;
    }
    *last = parse_item(p, form);
    last = &(*last)->next;
    if (!tgi_next_is_operator(p, ",")) {
      break;
    }
    tuple = true;
  }
  if (!tuple && items) {
    return items;
  }
  if (!tuple && !brackets) {
    tgi_parser_fail(p, "an expression");
  }
  tgi_node *node = tgi_new_node(p, TGI_NODE_TUPLE, place);
  node->first = items;
  return node;
}

tgi_node *tgi_parse_tuple(tgi_parser *p, bool condition)
{
  return parse_tuple(p, condition ? ANY_EXPRESSION : NO_CONDITION, false);
}

static tgi_node *parse_primary(tgi_parser *p, bool namespaces)
{
  tgi_job_enter(p->job);
  const tgi_token *token = p->at;
  p->job->place = token->place;
  tgi_node *node = NULL;
  if (token->kind == TGI_TOKEN_NAME) {
    node = parse_name(p, namespaces);
  } else if (token->kind == TGI_TOKEN_STRING) {
    node = parse_string(p);
  } else if (token->kind == TGI_TOKEN_NUMBER) {
    node = const_node(p, token->place, token->value);
    p->at++;
  } else if (skip_operator(p, "(")) {
    node = parse_tuple(p, ANY_EXPRESSION, true);
    tgi_expect(p, TGI_TOKEN_OPERATOR, ")");
  } else if (tgi_next_is_operator(p, "[")) {
    node = parse_items(p, TGI_NODE_LIST, "]");
  } else if (tgi_next_is_operator(p, "{")) {
    node = parse_items(p, TGI_NODE_DICT, "}");
  } else {
    tgi_parser_fail(p, "an expression");
  }
  tgi_job_leave(p->job);
  return node;
}

static void check_target(tgi_parser *p, const tgi_node *node)
{
  if (node->kind == TGI_NODE_TUPLE) {
    for (const tgi_node *item = node->first; item; item = item->next) {
      check_target(p, item);
    }
  } else if (node->kind != TGI_NODE_NAME && node->kind != TGI_NODE_NAMESPACE) {
    p->job->place = node->place;
    tgi_job_fail(p->job, TG_BAD_FILE, "a name to assign to, got another expression");
  }
}

tgi_node *tgi_parse_target(tgi_parser *p, bool tuples, bool namespaces)
{
  const item_form form = namespaces ? TARGET_NAMESPACE : TARGET;
  tgi_node *node = tuples ? parse_tuple(p, form, false) : parse_item(p, form);
  check_target(p, node);
  return node;
}

/* ---- what follows them: attributes, items, calls, filters, tests ---- */

static tgi_node *parse_argument(tgi_parser *p)
{
  tgi_node *node = tgi_new_node(p, TGI_NODE_POSITIONAL, p->at->place);
  if (skip_operator(p, "*")) {
    node->kind = TGI_NODE_SPREAD;
  } else if (skip_operator(p, "**")) {
    node->kind = TGI_NODE_SPREAD_KEYWORDS;
  } else if (p->at->kind == TGI_TOKEN_NAME && p->at[1].kind == TGI_TOKEN_OPERATOR &&
             tgi_string_is(p->at[1].text, "=")) {
    node->kind = TGI_NODE_KEYWORD;
    node->text = p->at->text;
    p->at += 2;
  }
  node->first = tgi_parse_expression(p);
  return node;
}

/** Whether `next` may stand behind arguments of which `last` was the last of its kind. */
static bool fits_behind(uint8_t last, uint8_t next)
{
  if (last == TGI_NODE_SPREAD_KEYWORDS) {
    return false;
  }
  if (next == TGI_NODE_POSITIONAL) {
    return last == TGI_NODE_POSITIONAL;
  }
  return next != TGI_NODE_SPREAD || last != TGI_NODE_SPREAD;
}

static tgi_node *parse_arguments(tgi_parser *p)
{
  tgi_node *arguments = NULL, **last = &arguments;
  tgi_expect(p, TGI_TOKEN_OPERATOR, "(");
  uint8_t strictest = TGI_NODE_POSITIONAL;
  while (!tgi_next_is_operator(p, ")")) {
    if (arguments) {
      tgi_expect(p, TGI_TOKEN_OPERATOR, ",");
      if (tgi_next_is_operator(p, ")")) {
        break;
      }
    }
    tgi_node *argument = parse_argument(p);
    if (!fits_behind(strictest, argument->kind)) {
      p->job->place = argument->place;
      tgi_job_fail(p->job, TG_BAD_FILE, "arguments by position before others, got another order");
    }
    strictest = argument->kind > strictest ? argument->kind : strictest;
    *last = argument;
    last = &argument->next;
  }
  p->at++;
  return arguments;
}

/** "start:stop:step", or an expression. */
static tgi_node *parse_subscribed(tgi_parser *p)
{
  const tgi_place place = p->at->place;
  tgi_node *parts[3] = {NULL, NULL, NULL};
  if (!tgi_next_is_operator(p, ":")) {
    parts[0] = tgi_parse_expression(p);
    if (!tgi_next_is_operator(p, ":")) {
      return parts[0];
    }
  }
  for (int i = 1; i < 3 && skip_operator(p, ":"); i++) {
    if (!tgi_next_is_operator(p, ":") && !tgi_next_is_operator(p, "]")) {
      parts[i] = tgi_parse_expression(p);
    }
  }
  tgi_node *slice = pair_node(p, TGI_NODE_SLICE, place, parts[0], parts[1]);
  slice->third = parts[2];
  return slice;
}

static tgi_node *parse_subscript(tgi_parser *p, tgi_node *node)
{
  const tgi_place place = p->at->place;
  if (skip_operator(p, ".")) {
    if (p->at->kind == TGI_TOKEN_NUMBER && p->at->value.kind == TGI_INT) {
      tgi_node *index = const_node(p, p->at->place, p->at->value);
      p->at++;
      return pair_node(p, TGI_NODE_GETITEM, place, node, index);
    }
    tgi_node *attribute = pair_node(p, TGI_NODE_GETATTR, place, node, NULL);
    attribute->text = tgi_expect_name(p);
    return attribute;
  }
  tgi_expect(p, TGI_TOKEN_OPERATOR, "[");
  tgi_node *key = NULL;
  if (!tgi_next_is_operator(p, "]")) {
    key = parse_subscribed(p);
  }
  if (!key || tgi_next_is_operator(p, ",")) { /* a tuple as the key */
    tgi_node *tuple = tgi_new_node(p, TGI_NODE_TUPLE, place);
    tgi_node **last = &tuple->first;
    for (; key; key = skip_operator(p, ",") ? tgi_parse_expression(p) : NULL) {
      if (key->kind == TGI_NODE_SLICE) {
        tgi_parser_fail(p, "one slice");
      }
      *last = key;
      last = &key->next;
    }
    key = tuple;
  }
  tgi_expect(p, TGI_TOKEN_OPERATOR, "]");
  return pair_node(p, TGI_NODE_GETITEM, place, node, key);
}

static tgi_node *parse_call(tgi_parser *p, tgi_node *node)
{
  const tgi_place place = p->at->place;
  return pair_node(p, TGI_NODE_CALL, place, node, parse_arguments(p));
}

static void enter_chain(tgi_parser *p, int *length)
{
  ++*length;
  tgi_job_enter(p->job);
}

static void leave_chain(tgi_parser *p, int length)
{
  p->job->depth -= length;
}

/** Each link makes the tree deeper, so it counts as a level. */
static tgi_node *parse_postfix(tgi_parser *p, tgi_node *node)
{
  int length = 0;
  for (;; enter_chain(p, &length)) {
    if (tgi_next_is_operator(p, ".") || tgi_next_is_operator(p, "[")) {
      node = parse_subscript(p, node);
    } else if (tgi_next_is_operator(p, "(")) {
      node = parse_call(p, node);
    } else {
      leave_chain(p, length);
      return node;
    }
  }
}

tgi_node *tgi_parse_filter(tgi_parser *p, tgi_node *node)
{
  tgi_node *filter = pair_node(p, TGI_NODE_FILTER, p->at->place, node, NULL);
  filter->text = tgi_expect_name(p);
  if (tgi_next_is_operator(p, "(")) {
    filter->second = parse_arguments(p);
  }
  filter->builtin = tgi_find_filter(filter->text); /* NULL fails when it is reached */
  return filter;
}

tgi_node *tgi_parse_filters(tgi_parser *p, tgi_node *node)
{
  while (skip_operator(p, "|")) {
    node = tgi_parse_filter(p, node);
  }
  return node;
}

/** Whether an argument without brackets follows a test: `is divisibleby 3`. */
static bool starts_argument(const tgi_parser *p)
{
  switch (p->at->kind) {
  case TGI_TOKEN_NAME:
    return !tgi_next_is_name(p, "else") && !tgi_next_is_name(p, "or") &&
           !tgi_next_is_name(p, "and");
  case TGI_TOKEN_STRING:
  case TGI_TOKEN_NUMBER:
    return true;
  default:
    return tgi_next_is_operator(p, "[") || tgi_next_is_operator(p, "{");
  }
}

static tgi_node *parse_test(tgi_parser *p, tgi_node *node)
{
  const tgi_place place = p->at->place;
  p->at++;
  const bool negated = skip_name(p, "not");
  tgi_node *test = pair_node(p, TGI_NODE_TEST, place, node, NULL);
  test->text = tgi_expect_name(p);
  if (tgi_next_is_operator(p, "(")) {
    test->second = parse_arguments(p);
  } else if (starts_argument(p)) {
    if (tgi_next_is_name(p, "is")) {
      tgi_parser_fail(p, "one test");
    }
    tgi_node *argument = tgi_new_node(p, TGI_NODE_POSITIONAL, p->at->place);
    argument->first = parse_postfix(p, parse_primary(p, false));
    test->second = argument;
  }
  test->builtin = tgi_find_test(test->text);
  return negated ? pair_node(p, TGI_NODE_NOT, place, test, NULL) : test;
}

static tgi_node *parse_filter_expression(tgi_parser *p, tgi_node *node)
{
  int length = 0;
  for (;; enter_chain(p, &length)) {
    if (skip_operator(p, "|")) {
      node = tgi_parse_filter(p, node);
    } else if (tgi_next_is_name(p, "is")) {
      node = parse_test(p, node);
    } else if (tgi_next_is_operator(p, "(")) {
      node = parse_call(p, node);
    } else {
      leave_chain(p, length);
      return node;
    }
  }
}

/* ---- operators, from the strongest to the weakest ---- */

static tgi_node *parse_unary(tgi_parser *p, bool filters)
{
  tgi_job_enter(p->job);
  const tgi_place place = p->at->place;
  tgi_node *node;
  if (skip_operator(p, "-")) {
    node = pair_node(p, TGI_NODE_NEGATIVE, place, parse_unary(p, false), NULL);
  } else if (skip_operator(p, "+")) {
    node = pair_node(p, TGI_NODE_POSITIVE, place, parse_unary(p, false), NULL);
  } else {
    node = parse_primary(p, false);
  }
  node = parse_postfix(p, node);
  node = filters ? parse_filter_expression(p, node) : node;
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
    if (skip_operator(p, words->text)) {
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
  for (;; enter_chain(p, &length)) {
    const tgi_place place = p->at->place;
    const operator_word *word = take_operator(p, words);
    if (!word) {
      leave_chain(p, length);
      return left;
    }
    left = pair_node(p, TGI_NODE_BINARY, place, left, operand(p));
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
  for (tgi_node *last = first; skip_operator(p, "~"); last = last->next) {
    last->next = parse_product(p);
  }
  return pair_node(p, TGI_NODE_CONCAT, place, first, NULL);
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
  if (skip_name(p, "in")) {
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
    tgi_node *operand = pair_node(p, TGI_NODE_OPERAND, where, parse_sum(p), NULL);
    operand->operation = (uint8_t)operation;
    *last = operand;
    last = &operand->next;
  }
  return operands ? pair_node(p, TGI_NODE_COMPARE, place, left, operands) : left;
}

static tgi_node *parse_not(tgi_parser *p)
{
  const tgi_place place = p->at->place;
  if (!skip_name(p, "not")) {
    return parse_compare(p);
  }
  tgi_job_enter(p->job);
  tgi_node *node = pair_node(p, TGI_NODE_NOT, place, parse_not(p), NULL);
  tgi_job_leave(p->job);
  return node;
}

static tgi_node *parse_logic(tgi_parser *p, const char *word, tgi_node_kind kind,
                             tgi_node *(*operand)(tgi_parser *))
{
  int length = 0;
  tgi_node *left = operand(p);
  for (;; enter_chain(p, &length)) {
    const tgi_place place = p->at->place;
    if (!skip_name(p, word)) {
      leave_chain(p, length);
      return left;
    }
    left = pair_node(p, kind, place, left, operand(p));
  }
}

static tgi_node *parse_and(tgi_parser *p)
{
  return parse_logic(p, "and", TGI_NODE_AND, parse_not);
}

static tgi_node *parse_or(tgi_parser *p)
{
  return parse_logic(p, "or", TGI_NODE_OR, parse_and);
}

tgi_node *tgi_parse_expression(tgi_parser *p)
{
  int length = 0;
  tgi_job_enter(p->job);
  tgi_node *node = parse_or(p);
  for (; tgi_next_is_name(p, "if"); enter_chain(p, &length)) {
    const tgi_place place = p->at->place;
    p->at++;
    tgi_node *cond = pair_node(p, TGI_NODE_COND, place, parse_or(p), node);
    cond->third = skip_name(p, "else") ? tgi_parse_expression(p) : NULL;
    node = cond;
  }
  leave_chain(p, length);
  tgi_job_leave(p->job);
  return node;
}
