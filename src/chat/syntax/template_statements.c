/* Statements, and reading a whole template. */
#include "files/file_error.h"
#include "files/utf8.h"
#include "template_parser.h"
#include <string.h>

static tgi_node *parse_statement(tgi_parser *p);

static bool is_one_of(const tgi_parser *p, const char *const *words)
{
  for (; *words; words++) {
    if (tgi_next_is_name(p, *words)) {
      return true;
    }
  }
  return false;
}

/**
 * Statements and text up to "{% word", for one of `ends`; that word is the next token then. Without
 * `ends`: up to the end of the template.
 */
static tgi_node *parse_until(tgi_parser *p, const char *const *ends)
{
  tgi_node *statements = NULL, **last = &statements;
  while (p->at->kind != TGI_TOKEN_END) {
    const tgi_token *token = p->at++;
    tgi_node *node;
    if (token->kind == TGI_TOKEN_TEXT) {
      node = tgi_new_node(p, TGI_NODE_TEXT, token->place);
      node->text = token->text;
    } else if (token->kind == TGI_TOKEN_PRINT) {
      node = tgi_new_node(p, TGI_NODE_PRINT, p->at->place);
      node->first = tgi_parse_tuple(p, true);
      tgi_expect(p, TGI_TOKEN_PRINT_END, NULL);
    } else {
      if (ends && is_one_of(p, ends)) {
        return statements;
      }
      node = parse_statement(p);
      tgi_expect(p, TGI_TOKEN_BLOCK_END, NULL);
    }
    *last = node;
    last = &node->next;
  }
  if (ends) {
    char rule[40];
    strcpy(rule, "{% ");
    strncat(rule, ends[0], 20);
    strcat(rule, " %}");
    tgi_parser_fail(p, rule);
  }
  return statements;
}

/** The end of the tag, then statements up to one of `ends`. */
static tgi_node *parse_block(tgi_parser *p, const char *const *ends)
{
  tgi_skip(p, TGI_TOKEN_OPERATOR, ":");
  tgi_expect(p, TGI_TOKEN_BLOCK_END, NULL);
  return parse_until(p, ends);
}

static tgi_node *parse_body(tgi_parser *p, const char *end)
{
  tgi_node *body = parse_block(p, (const char *const[]){end, NULL});
  p->at++;
  return body;
}

/** The body of something that is called: loops around it are out of reach. */
static tgi_node *parse_own_body(tgi_parser *p, const char *end)
{
  const int loops = p->loops;
  p->loops = 0;
  tgi_node *body = parse_body(p, end);
  p->loops = loops;
  return body;
}

static tgi_node *parse_if(tgi_parser *p, tgi_place place)
{
  static const char *const ends[] = {"endif", "elif", "else", NULL};
  tgi_node *first = NULL, **last = &first;
  for (;; place = p->at->place) {
    tgi_node *node = tgi_new_node(p, TGI_NODE_IF, place);
    *last = node;
    last = &node->third;
    node->first = tgi_parse_tuple(p, false);
    node->second = parse_block(p, ends);
    const bool more = tgi_skip(p, TGI_TOKEN_NAME, "elif");
    if (!more && tgi_skip(p, TGI_TOKEN_NAME, "else")) {
      node->third = parse_block(p, (const char *const[]){"endif", NULL});
    }
    if (!more) {
      p->at++;
      return first;
    }
  }
}

static tgi_node *parse_for(tgi_parser *p, tgi_place place)
{
  static const char *const ends[] = {"endfor", "else", NULL};
  tgi_node *node = tgi_new_node(p, TGI_NODE_FOR, place);
  node->first = tgi_parse_target(p, true, false);
  tgi_expect(p, TGI_TOKEN_NAME, "in");
  node->second = tgi_parse_tuple(p, false);
  if (tgi_skip(p, TGI_TOKEN_NAME, "if")) {
    node->third = tgi_parse_expression(p);
  }
  if (tgi_next_is_name(p, "recursive")) {
    p->job->place = p->at->place;
    tgi_job_fail(p->job, TG_UNSUPPORTED, "a loop that does not call itself, got \"recursive\"");
  }
  p->loops++;
  node->body = parse_block(p, ends);
  p->loops--;
  if (tgi_skip(p, TGI_TOKEN_NAME, "else")) {
    node->otherwise = parse_block(p, ends);
  }
  tgi_expect(p, TGI_TOKEN_NAME, "endfor");
  return node;
}

static tgi_node *parse_set(tgi_parser *p, tgi_place place)
{
  tgi_node *node = tgi_new_node(p, TGI_NODE_SET, place);
  node->first = tgi_parse_target(p, true, true);
  if (tgi_skip(p, TGI_TOKEN_OPERATOR, "=")) {
    node->second = tgi_parse_tuple(p, true);
    return node;
  }
  node->kind = TGI_NODE_SET_BLOCK;
  node->second = tgi_parse_filters(p, NULL);
  node->body = parse_body(p, "endset");
  return node;
}

/** "(a, b=1)" */
static tgi_node *parse_parameters(tgi_parser *p)
{
  tgi_node *parameters = NULL, **last = &parameters;
  bool defaults = false;
  tgi_expect(p, TGI_TOKEN_OPERATOR, "(");
  while (!tgi_next_is(p, TGI_TOKEN_OPERATOR, ")")) {
    if (parameters) {
      tgi_expect(p, TGI_TOKEN_OPERATOR, ",");
    }
    tgi_node *node = tgi_new_node(p, TGI_NODE_PARAMETER, p->at->place);
    tgi_set_name(p, node, tgi_expect_name(p));
    if (tgi_skip(p, TGI_TOKEN_OPERATOR, "=")) {
      node->first = tgi_parse_expression(p);
      defaults = true;
    } else if (defaults) {
      tgi_parser_fail(p, "a default, as the parameter before has one");
    }
    *last = node;
    last = &node->next;
  }
  p->at++;
  return parameters;
}

/** The body of a macro or call block, with what it mentions. */
static void parse_macro_body(tgi_parser *p, tgi_node *node, const char *end)
{
  const uint8_t outside = p->uses;
  p->uses = 0;
  node->body = parse_own_body(p, end);
  node->uses = p->uses;
  p->uses |= outside;
}

static tgi_node *parse_macro(tgi_parser *p, tgi_place place)
{
  tgi_node *node = tgi_new_node(p, TGI_NODE_MACRO, place);
  tgi_set_name(p, node, tgi_expect_name(p));
  node->first = parse_parameters(p);
  parse_macro_body(p, node, "endmacro");
  return node;
}

static tgi_node *parse_call_block(tgi_parser *p, tgi_place place)
{
  tgi_node *node = tgi_new_node(p, TGI_NODE_CALL_BLOCK, place);
  tgi_set_name(p, node, p->tree->names[TGI_NAME_CALLER]);
  if (tgi_next_is(p, TGI_TOKEN_OPERATOR, "(")) {
    node->first = parse_parameters(p);
  }
  node->second = tgi_parse_expression(p);
  if (node->second->kind != TGI_NODE_CALL) {
    p->job->place = node->second->place;
    tgi_job_fail(p->job, TG_BAD_FILE, "a call, got another expression");
  }
  parse_macro_body(p, node, "endcall");
  return node;
}

static tgi_node *parse_filter_block(tgi_parser *p, tgi_place place)
{
  tgi_node *node = tgi_new_node(p, TGI_NODE_FILTER_BLOCK, place);
  node->second = tgi_parse_filters(p, tgi_parse_filter(p, NULL));
  node->body = parse_body(p, "endfilter");
  return node;
}

static tgi_node *parse_with(tgi_parser *p, tgi_place place)
{
  tgi_node *node = tgi_new_node(p, TGI_NODE_WITH, place);
  for (tgi_node **last = &node->first; p->at->kind != TGI_TOKEN_BLOCK_END; last = &(*last)->next) {
    if (node->first) {
      tgi_expect(p, TGI_TOKEN_OPERATOR, ",");
    }
    tgi_node *bind = tgi_new_node(p, TGI_NODE_BIND, p->at->place);
    bind->first = tgi_parse_target(p, false, false);
    tgi_expect(p, TGI_TOKEN_OPERATOR, "=");
    bind->second = tgi_parse_expression(p);
    *last = bind;
  }
  node->body = parse_body(p, "endwith");
  return node;
}

static tgi_node *parse_generation(tgi_parser *p, tgi_place place)
{
  tgi_node *node = tgi_new_node(p, TGI_NODE_GENERATION, place);
  p->tree->marks_generation = true;
  node->body = parse_own_body(p, "endgeneration");
  return node;
}

static tgi_node *parse_jump(tgi_parser *p, tgi_place place, tgi_node_kind kind)
{
  if (p->loops == 0) {
    p->job->place = place;
    tgi_job_fail(p->job, TG_BAD_FILE, "a loop around break and continue, got none");
  }
  return tgi_new_node(p, kind, place);
}

static _Noreturn void refuse(tgi_parser *p, const tgi_token *token)
{
  static const char *const others[] = {"autoescape", "block",   "do",    "extends", "from",
                                       "import",     "include", "print", "trans",   NULL};
  const tgi_quoted word = tgi_quote(token->text->bytes, token->text->size);
  p->job->place = token->place;
  for (int i = 0; others[i]; i++) {
    if (strcmp(word.text, others[i]) == 0) {
      tgi_job_fail(p->job, TG_UNSUPPORTED, "a statement that is understood, got \"%s\"", word.text);
    }
  }
  tgi_job_fail(p->job, TG_BAD_FILE, "a statement, got \"%s\"", word.text);
}

/** Behind "{%". */
static tgi_node *parse_statement(tgi_parser *p)
{
  const tgi_token *token = p->at;
  const tgi_place place = token->place;
  const tgi_string *word = tgi_expect_name(p);
  tgi_node *node = NULL;
  tgi_job_enter(p->job);
  if (tgi_string_is(word, "if")) {
    node = parse_if(p, place);
  } else if (tgi_string_is(word, "for")) {
    node = parse_for(p, place);
  } else if (tgi_string_is(word, "set")) {
    node = parse_set(p, place);
  } else if (tgi_string_is(word, "macro")) {
    node = parse_macro(p, place);
  } else if (tgi_string_is(word, "call")) {
    node = parse_call_block(p, place);
  } else if (tgi_string_is(word, "filter")) {
    node = parse_filter_block(p, place);
  } else if (tgi_string_is(word, "with")) {
    node = parse_with(p, place);
  } else if (tgi_string_is(word, "generation")) {
    node = parse_generation(p, place);
  } else if (tgi_string_is(word, "break")) {
    node = parse_jump(p, place, TGI_NODE_BREAK);
  } else if (tgi_string_is(word, "continue")) {
    node = parse_jump(p, place, TGI_NODE_CONTINUE);
  } else {
    refuse(p, token);
  }
  tgi_job_leave(p->job);
  return node;
}

/* ---- the whole ---- */

static void parse(tgi_job *job, const char *text, size_t size, tgi_tree *tree)
{
  if (size > TG_CHAT_TEMPLATE_MAX_BYTES) {
    tgi_job_fail(job, TG_BAD_FILE, "at most %d bytes, got %zu", TG_CHAT_TEMPLATE_MAX_BYTES, size);
  }
  const size_t valid = tgi_utf8_valid_bytes(text, size);
  if (valid < size) {
    tgi_job_fail(job, TG_BAD_FILE, "UTF-8, got 0x%02x at byte %zu", (unsigned char)text[valid],
                 valid);
  }
  tgi_parser parser = {.job = job, .at = tgi_tokenize(job, text, size), .tree = tree};
  tgi_add_fixed_names(&parser);
  tree->statements = parse_until(&parser, NULL);
}

/** The job is the caller's, as what a jump passes by is lost. */
static bool try_parse(tgi_job *job, const char *text, size_t size, tgi_tree *tree)
{
  if (setjmp(job->out) != 0) {
    return false;
  }
  parse(job, text, size, tree);
  return true;
}

tg_status tgi_tree_parse(const char *name, const char *text, size_t size, tgi_tree *tree,
                         tg_error *error)
{
  tgi_job job = {.name = name, .error = error};
  *tree = (tgi_tree){0};
  if (!try_parse(&job, text, size, tree)) {
    tgi_arena_free(&job.arena);
    *tree = (tgi_tree){0};
    return job.status;
  }
  tree->arena = job.arena;
  return TG_OK;
}

int32_t tgi_tree_find(const tgi_tree *tree, const char *name)
{
  for (int32_t i = 0; i < tree->num_names; i++) {
    if (tgi_string_is(tree->names[i], name)) {
      return i;
    }
  }
  return -1;
}
