/* What expressions begin with: names, literals, brackets; and the tokens and nodes of all parsing.
 */
#include "template_parser.h"
#include "files/file_error.h"
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

tgi_node *tgi_pair_node(tgi_parser *p, tgi_node_kind kind, tgi_place place, tgi_node *first,
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
    tgi_job_step(p->job, 0); /* names may be chosen to collide */
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

tgi_node *tgi_const_node(tgi_parser *p, tgi_place place, tgi_value value)
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
    return tgi_const_node(p, place, tgi_bool(yes));
  }
  if (tgi_string_is(name, "none") || tgi_string_is(name, "None")) {
    return tgi_const_node(p, place, tgi_none());
  }
  const bool attribute = namespaces && tgi_skip_operator(p, ".");
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
  return tgi_const_node(p, place, tgi_text(s));
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

typedef enum item_form { ANY_EXPRESSION, NO_CONDITION, TARGET, TARGET_NAMESPACE } item_form;

static tgi_node *parse_item(tgi_parser *p, item_form form)
{
  return form == ANY_EXPRESSION ? tgi_parse_expression(p)
         : form == NO_CONDITION ? tgi_parse_or(p)
                                : tgi_parse_primary(p, form == TARGET_NAMESPACE);
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

tgi_node *tgi_parse_primary(tgi_parser *p, bool namespaces)
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
    node = tgi_const_node(p, token->place, token->value);
    p->at++;
  } else if (tgi_skip_operator(p, "(")) {
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
