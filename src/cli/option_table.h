/**
 * Command lines as tables. A row per option holds its name, argument, range, offset of the value
 * and help text. argp parses the command line. A wrong command line prints the error and exits
 * with 2.
 */
#ifndef TGI_CLI_OPTION_TABLE_H
#define TGI_CLI_OPTION_TABLE_H

#include "tegula/context.h"
#include "tegula/tensor.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tgi_option_kind {
  TGI_OPTION_FLAG, /* bool */
  TGI_OPTION_TEXT, /* const char *, not empty */
  TGI_OPTION_I32,  /* int32_t */
  TGI_OPTION_I64,  /* int64_t */
  TGI_OPTION_F64,  /* double, finite */
  TGI_OPTION_LIST, /* tgi_option_list: may be given several times, each not empty */
} tgi_option_kind;

enum { TGI_MAX_LISTED = 64 };

typedef struct tgi_option_list {
  const char *items[TGI_MAX_LISTED];
  int count;
} tgi_option_list;

typedef struct tgi_option {
  const char *name;     /* without the dashes */
  const char *argument; /* as --help shows it; NULL: a flag */
  size_t offset;        /* of the value in the command's struct */
  double min, max;      /* of a number */
  const char *help; /* NULL: another name of the row above, as other programs have it. It is taken
                       and not shown, and the other fields do not count */
  tgi_option_kind kind;
  char letter; /* "-m" beside "--model"; 0: none. `h' is help in every command */
} tgi_option;

/** For tables: offset of a field, and the upper bound of a number without one of its own. */
#define TGI_AT(type, field) offsetof(type, field)
#define TGI_ANY_I32 2147483647.0
#define TGI_ANY_I64 9.0e18
#define TGI_ANY_F64 1.7976931348623157e308
/** For `min`: above 0. */
#define TGI_ABOVE_0 2.2250738585072014e-308

enum { TGI_MAX_OPTIONS = 64, TGI_MAX_POSITIONS = 3, TGI_EXIT_USAGE = 2 };

typedef struct tgi_command {
  const char *name;      /* "tegula train" */
  const char *positions; /* "DIR PROMPT": how --help shows the positional arguments; NULL: none */
  const char *help;      /* what the command does; after a \v, what follows the options */
  const tgi_option *options; /* ended by a NULL name */
  int most_positions;
  const tgi_option *shared; /* more rows, which several commands have; NULL: none */
  size_t shared_at;         /* where the command's struct holds the struct of their values */
} tgi_command;

typedef struct tgi_parsed {
  bool given[TGI_MAX_OPTIONS]; /* which rows, the shared ones last, were on the command line */
  const char *position[TGI_MAX_POSITIONS];
  int num_positions;
} tgi_parsed;

/** Fills `values` (which holds the defaults) and *parsed. argv[0] is ignored. */
void tgi_parse_options(const tgi_command *command, int argc, char **argv, void *values,
                       tgi_parsed *parsed);

/** Whether option `name` of the command was given. */
bool tgi_option_given(const tgi_command *command, const tgi_parsed *parsed, const char *name);

/** f32, f16 or bf16 by its name; TG_DTYPE_NONE for any other text. */
tg_dtype tgi_option_dtype(const char *name);

/** What runs a command: a backend and, of GPUs, which. */
typedef struct tgi_run_device {
  tg_backend backend;
  int32_t index;
} tgi_run_device;

/** "cpu", "cuda" (GPU 0) or "cuda:N"; NULL is "cpu". False for any other text. */
bool tgi_option_device(const char *text, tgi_run_device *device);

/** Says what is wrong with a command line and where help is; returns TGI_EXIT_USAGE. */
int tgi_usage_error(const tgi_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
