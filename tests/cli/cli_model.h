/** A small model that `tegula train` makes in a scratch directory, copies of it with one file
 * replaced, and what a run prints. After cmocka.h. */
#ifndef TEGULA_TESTS_CLI_MODEL_H
#define TEGULA_TESTS_CLI_MODEL_H

#include "cli_process.h"
#include "scratch_directory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static scratch dir;
static const char *model;

static inline int make_model(void **state)
{
  (void)state;
  dir = scratch_make();
  char text[4096] = "";
  for (int i = 0; i < 80; i++) {
    strcat(text, "the cat sat on the mat and the dog. ");
  }
  write_text(scratch_file(&dir, "text"), text);
  model = strdup(scratch_file(&dir, "model"));
  EXPECT_CLI(0, "all 20 steps are done", "train", "--preset", "gpt_nano", "--train-file",
             scratch_file(&dir, "text"), "--out", model, "--steps", "20", "--batch", "2", "--seq",
             "32", "--lr", "0.01", "--threads", "1");
  return 0;
}

static inline int remove_model(void **state)
{
  (void)state;
  scratch_remove(&dir);
  free((void *)(uintptr_t)model);
  return 0;
}

static inline void expect_out(cli_result r, int code, const char *part)
{
  if (r.code != code || !strstr(r.out, part)) {
    fail_msg("expected code %d and \"%s\" on standard output, got code %d, \"%s\" and \"%s\"", code,
             part, r.code, r.out, r.err);
  }
  cli_free(&r);
}

/* Copies the model, with one file replaced (NULL: left out). */
static inline const char *broken_copy(const char *name, const char *file, const char *bytes,
                                      size_t size)
{
  static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
  char from[SCRATCH_PATH * 2], to[SCRATCH_PATH * 2];
  const char *copy = scratch_file(&dir, name);
  assert_int_equal(mkdir(copy, 0700), 0);
  for (int i = 0; i < 3; i++) {
    snprintf(from, sizeof from, "%s/%s", model, files[i]);
    snprintf(to, sizeof to, "%s/%s", copy, files[i]);
    if (strcmp(files[i], file) != 0) {
      size_t n;
      char *content = read_file(from, &n);
      write_file(to, content, n);
      free(content);
    } else if (bytes) {
      write_file(to, bytes, size);
    }
  }
  return copy;
}

static inline char *replace(const char *text, const char *old, const char *new_text)
{
  const char *at = strstr(text, old);
  assert_non_null(at);
  char *out = malloc(strlen(text) + strlen(new_text) + 1);
  sprintf(out, "%.*s%s%s", (int)(at - text), text, new_text, at + strlen(old));
  return out;
}

#endif
