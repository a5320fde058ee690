#include "core/machine/environment.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tgi_environment_entry(void)
{
  const char *value = getenv("TEGULA_ENTRY");
  return value && value[0] ? value : NULL;
}

bool tgi_environment_dumb_terminal(void)
{
  const char *value = getenv("TERM");
  return !value || !value[0] || strcmp(value, "dumb") == 0;
}

int tgi_environment_threads(void)
{
  const char *value = getenv("OMP_NUM_THREADS");
  char *end = NULL;
  const long number = value ? strtol(value, &end, 10) : 0;
  const size_t blanks = end ? strspn(end, " \t") : 0;
  const bool ends = end && (end[blanks] == 0 || end[blanks] == ',');
  return ends && number > 0 && number <= INT_MAX ? (int)number : 0;
}

bool tgi_environment_no_color(void)
{
  const char *value = getenv("NO_COLOR");
  return value && value[0];
}

bool tgi_environment_nvtx(void)
{
  const char *value = getenv("NVTX_INJECTION64_PATH");
  return value && value[0];
}

bool tgi_environment_cache_directory(char *path, size_t bytes)
{
  const char *own = getenv("TEGULA_CACHE_DIR"), *user = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME");
  int size = -1;
  if (own && own[0]) {
    size = snprintf(path, bytes, "%s", own);
  } else if (user && user[0] == '/') {
    size = snprintf(path, bytes, "%s/tegula", user);
  } else if (home && home[0]) {
    size = snprintf(path, bytes, "%s/.cache/tegula", home);
  }
  return size > 0 && (size_t)size < bytes;
}

bool tgi_environment_hub_cache(char *path, size_t bytes)
{
  static const struct {
    const char *name, *below;
  } places[] = {{"HF_HUB_CACHE", ""},
                {"HF_HOME", "/hub"},
                {"XDG_CACHE_HOME", "/huggingface/hub"},
                {"HOME", "/.cache/huggingface/hub"}};
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    const char *value = getenv(places[i].name);
    if (value && value[0]) {
      const int size = snprintf(path, bytes, "%s%s", value, places[i].below);
      return size > 0 && (size_t)size < bytes;
    }
  }
  return false;
}
