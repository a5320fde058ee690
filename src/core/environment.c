#include "core/environment.h"

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

bool tgi_environment_no_color(void)
{
  const char *value = getenv("NO_COLOR");
  return value && value[0];
}
