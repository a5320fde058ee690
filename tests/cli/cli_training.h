/** Runs of `tegula train` on a small text in a scratch directory, and what they leave. After
 * cmocka.h. */
#ifndef TEGULA_TESTS_CLI_TRAINING_H
#define TEGULA_TESTS_CLI_TRAINING_H

#include "cli_process.h"
#include "scratch_directory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kTextBytes = 6000, kMostArguments = 48 };

static scratch dir;
static const char *text; /* a training text */

static inline int make_text(void **state)
{
  (void)state;
  char bytes[kTextBytes + 1];
  uint32_t random = 7;
  for (int i = 0; i < kTextBytes; i++) {
    random = random * 1664525u + 1013904223u;
    bytes[i] = "etaoin shrdlu.\n"[(random >> 16) % 15];
  }
  bytes[kTextBytes] = '\0';
  dir = scratch_make();
  text = strdup(scratch_file(&dir, "text"));
  write_text(text, bytes);
  return 0;
}

static inline int remove_text(void **state)
{
  (void)state;
  scratch_remove(&dir);
  free((void *)(uintptr_t)text);
  return 0;
}

/* `tegula train` of a small model into `out`, with more arguments (ended by NULL). */
typedef struct command {
  const char *argument[kMostArguments];
  int count;
} command;

static inline void add(command *c, const char *const *more)
{
  for (; *more; more++) {
    assert_true(c->count < kMostArguments - 1);
    c->argument[c->count++] = *more;
  }
  c->argument[c->count] = NULL;
}

static inline command train_into(const char *out, const char *const *more)
{
  command c = {.count = 0};
  add(&c, (const char *const[]){"train", "--preset", "gpt_nano", "--train-file", text, "--out", out,
                                "--batch", "2", "--seq", "16", "--threads", "1", NULL});
  add(&c, more);
  return c;
}

static inline command resume(const char *out, const char *const *more)
{
  command c = {.count = 0};
  add(&c, (const char *const[]){"train", "--out", out, "--resume", NULL});
  add(&c, more);
  return c;
}

static inline cli_result run(command c)
{
  return cli_run(&(cli_setup){0}, c.argument);
}

#define MORE(...) ((const char *const[]){__VA_ARGS__, NULL})
#define TRAIN(out, ...) run(train_into(out, MORE(__VA_ARGS__)))
#define RESUME(out, ...) run(resume(out, MORE(__VA_ARGS__)))

static inline void expect(cli_result r, int code, const char *part)
{
  cli_expect(&r, code, part);
}

static inline char *file_in(const char *directory, const char *name, size_t *size)
{
  char path[SCRATCH_PATH * 2];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return read_file(path, size);
}

static inline int count(const char *haystack, const char *needle)
{
  int n = 0;
  for (const char *at = haystack; (at = strstr(at, needle)); at += strlen(needle)) {
    n++;
  }
  return n;
}

static inline void nap(long milliseconds)
{
  const struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&t, NULL);
}

/* Waits until the run's log holds `n` lines of an event. */
static inline void wait_for(const char *log, const char *event, int n)
{
  for (int i = 0; i < 6000; i++) {
    if (file_exists(log)) {
      size_t size;
      char *content = read_file(log, &size);
      const int seen = count(content, event);
      free(content);
      if (seen >= n) {
        return;
      }
    }
    nap(10);
  }
  fail_msg("%s: expected %d times %s within a minute", log, n, event);
}

/* The number behind the key in the log's line of a step. */
static inline double logged(const char *log, int step, const char *key)
{
  size_t size;
  char *lines = read_file(log, &size), name[64];
  snprintf(name, sizeof name, "{\"event\":\"step\",\"step\":%d,", step);
  const char *line = strstr(lines, name);
  assert_non_null(line);
  snprintf(name, sizeof name, "\"%s\":", key);
  const double value = strtod(strstr(line, name) + strlen(name), NULL);
  free(lines);
  return value;
}

static inline void expect_same_weights(const char *a, const char *b)
{
  static const char *const files[] = {"model.safetensors", "optimizer_exp_avg.safetensors",
                                      "optimizer_exp_avg_sq.safetensors"};
  for (int i = 0; i < 3; i++) {
    size_t na, nb;
    char *x = file_in(a, files[i], &na), *y = file_in(b, files[i], &nb);
    if (na != nb || memcmp(x, y, na) != 0) {
      fail_msg("%s of %s and %s differ", files[i], a, b);
    }
    free(x);
    free(y);
  }
}

#endif
