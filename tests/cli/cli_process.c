#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "cli_process.h"
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMaxArguments = 64, kNotStarted = 127 };

static void execute(const char *const *arguments)
{
  setenv("TEGULA_CACHE_DIR", TEGULA_TEST_CACHE, 0); /* never the user's own */
  char *argv[kMaxArguments + 2] = {(char *)(uintptr_t)TEGULA_CLI};
  for (int i = 0; i < kMaxArguments && arguments[i]; i++) {
    argv[i + 1] = (char *)(uintptr_t)arguments[i];
  }
  execv(TEGULA_CLI, argv);
  _exit(kNotStarted);
}

static int end_code(int status)
{
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int cli_wait(pid_t pid)
{
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return end_code(status);
}

typedef struct text {
  char *bytes;
  size_t size;
} text;

static void append(text *t, const char *bytes, size_t size)
{
  t->bytes = realloc(t->bytes, t->size + size + 1);
  assert_non_null(t->bytes);
  memcpy(t->bytes + t->size, bytes, size);
  t->size += size;
  t->bytes[t->size] = '\0';
}

/* Reads both until their ends. A terminal whose last user is gone gives EIO. */
static void drain(int out, int err, text *out_text, text *err_text)
{
  struct pollfd fds[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  text *texts[2] = {out_text, err_text};
  append(out_text, "", 0);
  append(err_text, "", 0);
  for (int open_ends = 2 - (out < 0); open_ends > 0;) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) {
      break;
    }
    for (int i = 0; i < 2; i++) {
      char bytes[4096];
      if (fds[i].fd < 0 || !fds[i].revents) {
        continue;
      }
      const ssize_t n = read(fds[i].fd, bytes, sizeof bytes);
      if (n > 0) {
        append(texts[i], bytes, (size_t)n);
      } else if (n == 0 || errno != EINTR) {
        fds[i].fd = -1;
        open_ends--;
      }
    }
  }
}

int cli_has_terminals(void)
{
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0) {
    close(terminal);
  }
  return terminal >= 0;
}

typedef struct ends {
  int in[2], out[2], err[2]; /* [0] is read, [1] written; a terminal: err[0] ours, err[1] its */
} ends;

static void open_ends(const cli_setup *setup, ends *e)
{
  assert_int_equal(pipe2(e->in, O_CLOEXEC), 0);
  assert_int_equal(pipe2(e->out, O_CLOEXEC), 0);
  if (!setup->term) {
    assert_int_equal(pipe2(e->err, O_CLOEXEC), 0);
    return;
  }
  e->err[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  assert_true(e->err[0] >= 0);
  assert_int_equal(grantpt(e->err[0]), 0);
  assert_int_equal(unlockpt(e->err[0]), 0);
  e->err[1] = open(ptsname(e->err[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
  assert_true(e->err[1] >= 0);
}

static void become_child(const cli_setup *setup, const ends *e, const char *const *arguments)
{
  dup2(e->in[0], STDIN_FILENO);
  dup2(e->out[1], STDOUT_FILENO);
  dup2(e->err[1], STDERR_FILENO);
  if (setup->term) {
    setenv("TERM", setup->term, 1);
  }
  for (int i = 0; setup->environment && setup->environment[i]; i++) {
    putenv((char *)(uintptr_t)setup->environment[i]);
  }
  if (setup->file_size_limit) {
    const struct rlimit limit = {(rlim_t)setup->file_size_limit, (rlim_t)setup->file_size_limit};
    signal(SIGXFSZ, SIG_IGN); /* then writing fails with EFBIG */
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  execute(arguments);
}

cli_result cli_run(const cli_setup *setup, const char *const *arguments)
{
  ends e;
  open_ends(setup, &e);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (setup->closed_output) {
      close(e.out[0]);
    }
    become_child(setup, &e, arguments);
  }
  close(e.in[0]);
  close(e.out[1]);
  close(e.err[1]);
  if (setup->closed_output) {
    close(e.out[0]);
    e.out[0] = -1;
  }
  void (*before)(int) = signal(SIGPIPE, SIG_IGN);
  for (size_t done = 0, size = setup->input ? strlen(setup->input) : 0; done < size;) {
    const ssize_t n = write(e.in[1], setup->input + done, size - done);
    if (n <= 0) {
      break;
    }
    done += (size_t)n;
  }
  close(e.in[1]);
  text out = {NULL, 0}, err = {NULL, 0};
  drain(e.out[0], e.err[0], &out, &err);
  const int code = cli_wait(pid);
  signal(SIGPIPE, before);
  if (e.out[0] >= 0) {
    close(e.out[0]);
  }
  close(e.err[0]);
  return (cli_result){code, out.bytes, err.bytes, out.size};
}

void cli_free(cli_result *result)
{
  free(result->out);
  free(result->err);
  *result = (cli_result){0, NULL, NULL, 0};
}

pid_t cli_start(const char *log_path, const char *const *arguments)
{
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    const int log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execute(arguments);
  }
  return pid;
}

void cli_expect(cli_result *result, int code, const char *part)
{
  if (result->code != code || !strstr(result->err, part)) {
    fail_msg("expected code %d and \"%s\" on standard error, got code %d and \"%s\"", code, part,
             result->code, result->err);
  }
  cli_free(result);
}
