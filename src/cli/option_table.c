#include "option_table.h"

#include "console.h"
#include "files/file_error.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kFirstKey = 1024 }; /* keys above every character, for options without a letter */

typedef struct parse {
  const tgi_command *command;
  char *values;
  tgi_parsed *parsed;
} parse;

static tgi_quoted quoted(const char *text)
{
  return tgi_quote(text, strlen(text));
}

static void refuse_range(struct argp_state *state, const tgi_option *o, const char *given)
{
  const tgi_quoted shown = quoted(given);
  const char *text = shown.text;
  const char *what = o->kind == TGI_OPTION_F64 ? "a number" : "a whole number";
  if (o->min == TGI_ABOVE_0 && o->max < TGI_ANY_I32) {
    argp_error(state, "--%s: expected %s above 0, at most %.15g, got %s", o->name, what, o->max,
               text);
  } else if (o->min == TGI_ABOVE_0) {
    argp_error(state, "--%s: expected %s above 0, got %s", o->name, what, text);
  } else if (o->max >= TGI_ANY_I32) {
    argp_error(state, "--%s: expected %s of at least %.15g, got %s", o->name, what, o->min, text);
  } else {
    argp_error(state, "--%s: expected %s from %.15g to %.15g, got %s", o->name, what, o->min,
               o->max, text);
  }
}

static int64_t parse_whole(struct argp_state *state, const tgi_option *o, const char *text)
{
  char *end;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno != 0 || (double)value < o->min || (double)value > o->max) {
    refuse_range(state, o, text);
  }
  return value;
}

static double parse_real(struct argp_state *state, const tgi_option *o, const char *text)
{
  char *end;
  const double value = strtod(text, &end);
  if (end == text || *end || !isfinite(value) || value < o->min || value > o->max) {
    refuse_range(state, o, text);
  }
  return value;
}

static void refuse_empty(struct argp_state *state, const tgi_option *o, const char *text)
{
  if (!text[0]) {
    argp_error(state, "--%s: expected %s, got an empty text", o->name, o->argument);
  }
}

static void add(struct argp_state *state, const tgi_option *o, tgi_option_list *list,
                const char *text)
{
  if (list->count == TGI_MAX_LISTED) {
    argp_error(state, "--%s: expected at most %d of them, got more", o->name, TGI_MAX_LISTED);
  }
  list->items[list->count++] = text;
}

static int count_rows(const tgi_option *rows)
{
  int n = 0;
  while (rows && rows[n].name) {
    n++;
  }
  return n;
}

/* Row `index` of the command, those it shares with others last, and the struct of its value; NULL:
 * past the end. */
static const tgi_option *row_at(const tgi_command *command, int index, size_t *struct_at)
{
  const int own = count_rows(command->options), shared = count_rows(command->shared);
  *struct_at = index < own ? 0 : command->shared_at;
  return index < own            ? &command->options[index]
         : index < own + shared ? &command->shared[index - own]
                                : NULL;
}

/* The row whose other name row `index` is, or itself. */
static int main_row(const tgi_command *command, int index)
{
  size_t struct_at;
  while (!row_at(command, index, &struct_at)->help) {
    index--;
  }
  return index;
}

static void store(struct argp_state *state, parse *p, int given, const char *text)
{
  size_t struct_at;
  const int row = main_row(p->command, given);
  const char *name = row_at(p->command, given, &struct_at)->name;
  tgi_option named = *row_at(p->command, row, &struct_at);
  named.name = name; /* messages say what was given */
  const tgi_option *o = &named;
  void *value = p->values + struct_at + o->offset;
  p->parsed->given[row] = true;
  switch (o->kind) {
  case TGI_OPTION_FLAG:
    *(bool *)value = true;
    break;
  case TGI_OPTION_TEXT:
    refuse_empty(state, o, text);
    *(const char **)value = text;
    break;
  case TGI_OPTION_LIST:
    refuse_empty(state, o, text);
    add(state, o, value, text);
    break;
  case TGI_OPTION_I32:
    *(int32_t *)value = (int32_t)parse_whole(state, o, text);
    break;
  case TGI_OPTION_I64:
    *(int64_t *)value = parse_whole(state, o, text);
    break;
  case TGI_OPTION_F64:
    *(double *)value = parse_real(state, o, text);
    break;
  }
}

static int key_of(const tgi_option *option, int row)
{
  return option->letter ? option->letter : kFirstKey + row;
}

static error_t take(int key, char *text, struct argp_state *state)
{
  parse *p = state->input;
  const tgi_command *c = p->command;
  const tgi_option *row;
  size_t struct_at;
  for (int i = 0; (row = row_at(c, i, &struct_at)) != NULL; i++) {
    if (key == key_of(row, i)) {
      store(state, p, i, text);
      return 0;
    }
  }
  if (key == 'h') {
    argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP); /* and exits */
  }
  if (key == ARGP_KEY_ARG && p->parsed->num_positions < c->most_positions) {
    p->parsed->position[p->parsed->num_positions++] = text;
    return 0;
  }
  if (key == ARGP_KEY_ARG) {
    argp_error(state, "expected at most %d argument%s, got an extra \"%s\"", c->most_positions,
               c->most_positions == 1 ? "" : "s", quoted(text).text);
  }
  return ARGP_ERR_UNKNOWN;
}

static struct argp_option describe(const tgi_command *command, int index)
{
  size_t struct_at;
  const tgi_option *given = row_at(command, index, &struct_at);
  const tgi_option *row = row_at(command, main_row(command, index), &struct_at);
  return (struct argp_option){given->name,   key_of(given, index),
                              row->argument, given->help ? 0 : OPTION_HIDDEN,
                              given->help,   0};
}

void tgi_parse_options(const tgi_command *command, int argc, char **argv, void *values,
                       tgi_parsed *parsed)
{
  struct argp_option rows[TGI_MAX_OPTIONS + 2];
  memset(rows, 0, sizeof rows);
  size_t struct_at;
  int n = 0;
  for (; n < TGI_MAX_OPTIONS && row_at(command, n, &struct_at); n++) {
    rows[n] = describe(command, n);
  }
  /* argp's own letter for help is `-?', in a group of its own at the end. */
  rows[n] = (struct argp_option){NULL, 'h', NULL, 0, "the same as --help", -1};
  const struct argp argp = {rows, take, command->positions, command->help, NULL, NULL, NULL};
  memset(parsed, 0, sizeof *parsed);
  parse p = {command, values, parsed};
  /* argp prints the name in argv[0]. */
  char *name = argv[0];
  argv[0] = (char *)(uintptr_t)command->name;
  (void)argp_parse(&argp, argc, argv, 0, NULL, &p);
  argv[0] = name;
}

bool tgi_option_given(const tgi_command *command, const tgi_parsed *parsed, const char *name)
{
  const tgi_option *row;
  size_t struct_at;
  for (int i = 0; (row = row_at(command, i, &struct_at)) != NULL; i++) {
    if (strcmp(row->name, name) == 0) {
      return parsed->given[i];
    }
  }
  return false;
}

tg_dtype tgi_option_dtype(const char *name)
{
  static const tg_dtype dtypes[] = {TG_F32, TG_F16, TG_BF16};
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
    if (strcmp(tg_dtype_name(dtypes[i]), name) == 0) {
      return dtypes[i];
    }
  }
  return TG_DTYPE_NONE;
}

bool tgi_option_device(const char *text, tgi_run_device *device)
{
  *device = (tgi_run_device){TG_BACKEND_CPU, 0};
  if (!text || strcmp(text, "cpu") == 0) {
    return true;
  }
  if (strncmp(text, "cuda", 4) != 0 || (text[4] != 0 && text[4] != ':')) {
    return false;
  }
  device->backend = TG_BACKEND_CUDA;
  if (text[4] == 0) {
    return true;
  }
  char *end;
  const long index = strtol(text + 5, &end, 10);
  device->index = (int32_t)index;
  return text[5] >= '0' && text[5] <= '9' && *end == 0 && index <= 1023;
}

int tgi_usage_error(const tgi_command *command, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  tgi_console_fail_list(command->name, format, arguments);
  fprintf(stderr, "Try `%s --help' for more information.\n", command->name);
  va_end(arguments);
  return TGI_EXIT_USAGE;
}
