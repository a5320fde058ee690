#include "core/environment.h"

#include <stdlib.h>

const char *tgi_environment_entry(void)
{
  const char *value = getenv("TEGULA_ENTRY");
  return value && value[0] ? value : NULL;
}
