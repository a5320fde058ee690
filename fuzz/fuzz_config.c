/* Any bytes: config.json is read or refused with a message, and what is read can be checked. */
#include "model/config/config.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
  if (!condition) {
    abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  tgi_config config;
  tg_error error = {0};
  const tg_status status = tgi_config_parse("fuzz", (const char *)data, size, &config, &error);
  require(status == error.status);
  if (status == TG_OK) {
    require(tgi_config_check(&config, &error) == TG_OK); /* reading is at least as strict */
    return 0;
  }
  require(status == TG_BAD_FILE || status == TG_UNSUPPORTED);
  require(strncmp(error.text, "fuzz: ", 6) == 0 && strstr(error.text, ": expected "));
  require(strncmp(error.text, "fuzz: byte ", 11) != 0 ||
          strtoull(error.text + 11, NULL, 10) <= size);
  return 0;
}
