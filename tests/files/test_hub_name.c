/* Models by their hub name: where they are looked for, and what is said of those that are not
 * there. */
#define _DEFAULT_SOURCE /* setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/hub_name.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static scratch dir;
static tg_error error;

/* Makes directory and parents below the scratch directory. */
static const char *folder(const char *path)
{
  char part[SCRATCH_PATH];
  for (const char *slash = path; slash; slash = strchr(slash + 1, '/')) {
    const char *next = strchr(slash + 1, '/');
    snprintf(part, sizeof part, "%.*s", next ? (int)(next - path) : (int)strlen(path), path);
    (void)mkdir(scratch_file(&dir, part), 0700);
  }
  return scratch_file(&dir, path);
}

static void add_model(const char *cache, const char *name, const char *revision)
{
  char path[SCRATCH_PATH];
  snprintf(path, sizeof path, "%s/%s/refs", cache, name);
  folder(path);
  strcat(path, "/main");
  write_text(scratch_file(&dir, path), revision);
  snprintf(path, sizeof path, "%s/%s/snapshots/abc123", cache, name);
  folder(path);
}

static int open_directory(void **state)
{
  (void)state;
  dir = scratch_make();
  static const char *const names[] = {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"};
  for (int i = 0; i < 4; i++) {
    unsetenv(names[i]);
  }
  return chdir(dir.path);
}

static int close_directory(void **state)
{
  (void)state;
  scratch_remove(&dir);
  return 0;
}

static const char *find(const char *given)
{
  static tgi_model_path path;
  memset(&path, 0, sizeof path);
  EXPECT_OK(tgi_model_path_find(given, &path, &error), error);
  return path.text;
}

static void expect_snapshot(const char *given, const char *cache, const char *name)
{
  char want[3 * SCRATCH_PATH];
  snprintf(want, sizeof want, "%s/%s/snapshots/abc123", scratch_file(&dir, cache), name);
  assert_string_equal(find(given), want);
}

/* What exists wins over a model of that name; what is no hub name is a path, found or not. */
static void paths(void **state)
{
  (void)state;
  static const char *const others[] = {"a/b/c", "./gpt2",   "../gpt2", "/none", "a--b/c",
                                       "a b",   "org/.git", "-m",      "a/",    "/",
                                       "",      "a/b-",     "a\nb"};
  setenv("HF_HUB_CACHE", scratch_file(&dir, "hub"), 1);
  add_model("hub", "models--org--here", "abc123");
  expect_snapshot("org/here", "hub", "models--org--here");
  folder("org/here");
  assert_string_equal(find("org/here"), "org/here");
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    assert_string_equal(find(others[i]), others[i]);
  }
  char longer[TGI_MODEL_PATH_BYTES + 8];
  memset(longer, '/', sizeof longer);
  longer[sizeof longer - 1] = '\0';
  longer[1] = 'x';
  tgi_model_path path;
  EXPECT_ERROR(tgi_model_path_find(longer, &path, &error), TG_BAD_ARGUMENT,
               "model: expected a path of less than 4096 bytes, got 4103", error);
}

static void the_first_variable_counts(void **state)
{
  (void)state;
  add_model("home/.cache/huggingface/hub", "models--gpt2", "abc123");
  add_model("xdg/huggingface/hub", "models--gpt2", "abc123");
  add_model("hf/hub", "models--gpt2", "abc123\n");
  add_model("cache", "models--gpt2", "abc123");
  setenv("HF_HUB_CACHE", scratch_file(&dir, "cache"), 1);
  setenv("HF_HOME", scratch_file(&dir, "hf"), 1);
  setenv("XDG_CACHE_HOME", scratch_file(&dir, "xdg"), 1);
  setenv("HOME", scratch_file(&dir, "home"), 1);
  expect_snapshot("gpt2", "cache", "models--gpt2");
  setenv("HF_HUB_CACHE", "", 1);
  expect_snapshot("gpt2", "hf/hub", "models--gpt2");
  unsetenv("HF_HOME");
  expect_snapshot("gpt2", "xdg/huggingface/hub", "models--gpt2");
  unsetenv("XDG_CACHE_HOME");
  expect_snapshot("gpt2", "home/.cache/huggingface/hub", "models--gpt2");
  unsetenv("HOME");
  tgi_model_path path;
  EXPECT_ERROR(tgi_model_path_find("gpt2", &path, &error), TG_IO,
               "gpt2: expected this directory, or a cache of Hugging Face's hub to find it in, got "
               "neither",
               error);
}

static void what_is_not_there(void **state)
{
  (void)state;
  tgi_model_path path;
  char want[2 * SCRATCH_PATH];
  setenv("HF_HUB_CACHE", scratch_file(&dir, "hub"), 1);
  snprintf(want, sizeof want,
           "Qwen/Qwen9: expected to find this directory, or models--Qwen--Qwen9/refs/main in "
           "%.200s (nothing is downloaded), got No such file",
           scratch_file(&dir, "hub"));
  EXPECT_ERROR(tgi_model_path_find("Qwen/Qwen9", &path, &error), TG_IO, want, error);
  static const char *const damaged[] = {"", "\n", "../../etc", "..", "a b", "a/b"};
  for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
    add_model("hub", "models--bad--ref", damaged[i]);
    EXPECT_ERROR(tgi_model_path_find("bad/ref", &path, &error), TG_BAD_FILE,
                 "refs/main: expected the name of a snapshot, got \"", error);
  }
  add_model("hub", "models--bad--ref", "def456");
  EXPECT_ERROR(tgi_model_path_find("bad/ref", &path, &error), TG_IO,
               "/snapshots/def456: expected to find this snapshot, which refs/main names", error);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(paths),
      cmocka_unit_test(the_first_variable_counts),
      cmocka_unit_test(what_is_not_there),
  };
  return cmocka_run_group_tests(tests, open_directory, close_directory);
}
