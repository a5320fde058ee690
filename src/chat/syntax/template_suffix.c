/* What follows an expression: attributes, items, calls, filters, tests. */
#include "chat/builtins/template_call.h"
#include "template_parser.h"

static tgi_node *parse_argument(tgi_parser *p)
{
  tgi_node *node = tgi_new_node(p, TGI_NODE_POSITIONAL, p->at->place);
  if (tgi_skip_operator(p, "*")) {
    node->kind = TGI_NODE_SPREAD;
  } else if (tgi_skip_operator(p, "**")) {
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
  for (int i = 1; i < 3 && tgi_skip_operator(p, ":"); i++) {
    if (!tgi_next_is_operator(p, ":") && !tgi_next_is_operator(p, "]")) {
      parts[i] = tgi_parse_expression(p);
    }
  }
  tgi_node *slice = tgi_pair_node(p, TGI_NODE_SLICE, place, parts[0], parts[1]);
  slice->third = parts[2];
  return slice;
}

static tgi_node *parse_subscript(tgi_parser *p, tgi_node *node)
{
  const tgi_place place = p->at->place;
  if (tgi_skip_operator(p, ".")) {
    if (p->at->kind == TGI_TOKEN_NUMBER && p->at->value.kind == TGI_INT) {
      tgi_node *index = tgi_const_node(p, p->at->place, p->at->value);
      p->at++;
      return tgi_pair_node(p, TGI_NODE_GETITEM, place, node, index);
    }
    tgi_node *attribute = tgi_pair_node(p, TGI_NODE_GETATTR, place, node, NULL);
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
    for (; key; key = tgi_skip_operator(p, ",") ? tgi_parse_expression(p) : NULL) {
      if (key->kind == TGI_NODE_SLICE) {
        tgi_parser_fail(p, "one slice");
      }
      *last = key;
      last = &key->next;
    }
    key = tuple;
  }
  tgi_expect(p, TGI_TOKEN_OPERATOR, "]");
  return tgi_pair_node(p, TGI_NODE_GETITEM, place, node, key);
}

static tgi_node *parse_call(tgi_parser *p, tgi_node *node)
{
  const tgi_place place = p->at->place;
  return tgi_pair_node(p, TGI_NODE_CALL, place, node, parse_arguments(p));
}

tgi_node *tgi_parse_postfix(tgi_parser *p, tgi_node *node)
{
  int length = 0;
  for (;; tgi_enter_chain(p, &length)) {
    if (tgi_next_is_operator(p, ".") || tgi_next_is_operator(p, "[")) {
      node = parse_subscript(p, node);
    } else if (tgi_next_is_operator(p, "(")) {
      node = parse_call(p, node);
    } else {
      tgi_leave_chain(p, length);
      return node;
    }
  }
}

tgi_node *tgi_parse_filter(tgi_parser *p, tgi_node *node)
{
  tgi_node *filter = tgi_pair_node(p, TGI_NODE_FILTER, p->at->place, node, NULL);
  filter->text = tgi_expect_name(p);
  if (tgi_next_is_operator(p, "(")) {
    filter->second = parse_arguments(p);
  }
  filter->builtin = tgi_find_filter(filter->text); /* NULL fails when it is reached */
  return filter;
}

tgi_node *tgi_parse_filters(tgi_parser *p, tgi_node *node)
{
  int length = 0;
  for (; tgi_skip_operator(p, "|"); tgi_enter_chain(p, &length)) {
    node = tgi_parse_filter(p, node);
  }
  tgi_leave_chain(p, length);
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
  const bool negated = tgi_skip_name(p, "not");
  tgi_node *test = tgi_pair_node(p, TGI_NODE_TEST, place, node, NULL);
  test->text = tgi_expect_name(p);
  if (tgi_next_is_operator(p, "(")) {
    test->second = parse_arguments(p);
  } else if (starts_argument(p)) {
    if (tgi_next_is_name(p, "is")) {
      tgi_parser_fail(p, "one test");
    }
    tgi_node *argument = tgi_new_node(p, TGI_NODE_POSITIONAL, p->at->place);
    argument->first = tgi_parse_postfix(p, tgi_parse_primary(p, false));
    test->second = argument;
  }
  test->builtin = tgi_find_test(test->text);
  return negated ? tgi_pair_node(p, TGI_NODE_NOT, place, test, NULL) : test;
}

tgi_node *tgi_parse_filtered(tgi_parser *p, tgi_node *node)
{
  int length = 0;
  for (;; tgi_enter_chain(p, &length)) {
    if (tgi_skip_operator(p, "|")) {
      node = tgi_parse_filter(p, node);
    } else if (tgi_next_is_name(p, "is")) {
      node = parse_test(p, node);
    } else if (tgi_next_is_operator(p, "(")) {
      node = parse_call(p, node);
    } else {
      tgi_leave_chain(p, length);
      return node;
    }
  }
}
