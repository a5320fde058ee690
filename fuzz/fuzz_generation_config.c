/* Any bytes: generation_config.json is read or refused with a message, and what is read is in
 * range. */
#include "model/config/generation_config.h"
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
  const tgi_config config = {
      .bos_token_id = 1, .eos_token_ids = {2, 3, 4, 5, 6, 7, 8, 9}, .num_eos_token_ids = 8};
  tgi_generation_config c;
  tg_error error = {0};
  tgi_generation_config_start(&config, &c);
  const tg_status status =
      tgi_generation_config_parse("fuzz", (const char *)data, size, &c, &error);
  require(status == error.status);
  if (status != TG_OK) {
    require(status == TG_BAD_FILE);
    require(strncmp(error.text, "fuzz: ", 6) == 0 && strstr(error.text, ": expected "));
    require(strncmp(error.text, "fuzz: byte ", 11) != 0 ||
            strtoull(error.text + 11, NULL, 10) <= size);
    return 0;
  }
  const tg_generation_config *s = &c.says;
  require(s->given && s->temperature >= 0 && s->top_k >= 0 && s->max_new_tokens >= 0);
  require(s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
  require(s->repetition_penalty >= 0 && s->bos_token_id >= -1 && s->pad_token_id >= -1);
  require(c.num_stop_ids >= 8 && c.num_stop_ids <= TGI_MAX_STOP_IDS);
  for (int32_t i = 0; i < c.num_stop_ids; i++) {
    require(c.stop_ids[i] >= 0);
  }
  return 0;
}
