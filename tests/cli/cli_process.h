/** The command line as a child process, for tests: what it prints and how it ends. */
#ifndef TEGULA_TESTS_CLI_PROCESS_H
#define TEGULA_TESTS_CLI_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

typedef struct cli_result {
  int code;        /* exit code, or 128 + the signal that ended it */
  char *out, *err; /* terminated; to be freed by cli_free */
  size_t out_size;
} cli_result;

/** How to start it; zeroed: no input, no limits, standard error in a pipe. */
typedef struct cli_setup {
  const char *input;    /* standard input */
  long file_size_limit; /* bytes that a file may have (RLIMIT_FSIZE), as on a full disk; 0: any */
  const char *term;     /* a terminal of this TERM is standard error; NULL: a pipe */
  int closed_output;    /* standard output is a pipe that nobody reads */
  const char *const *environment; /* "NAME=value", ended by NULL, beside the caller's */
} cli_setup;

/** Whether this system hands out terminals: a bare root directory without /dev/pts does not. */
int cli_has_terminals(void);

/** Runs `tegula` with the arguments (argv without the program, ended by NULL) to its end. */
cli_result cli_run(const cli_setup *setup, const char *const *arguments);
void cli_free(cli_result *result);

#define CLI(...) cli_run(&(cli_setup){0}, (const char *const[]){__VA_ARGS__, NULL})

/** Starts it with standard output and error going to the file; ends with cli_wait. */
pid_t cli_start(const char *log_path, const char *const *arguments);
int cli_wait(pid_t pid); /* as cli_result.code */

/** Fails the test unless the run ended with `code` and standard error holds `part`. */
void cli_expect(cli_result *result, int code, const char *part); /* and frees */

#define EXPECT_CLI(code, part, ...)                                                                \
  do {                                                                                             \
    cli_result expect_result = CLI(__VA_ARGS__);                                                   \
    cli_expect(&expect_result, code, part);                                                        \
  } while (0)

#endif
