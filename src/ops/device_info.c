#include "ops/chain.h"

#include <stdio.h>
#include <string.h>

int32_t tg_device_count(void)
{
  return tgi_device_count();
}

static void list_kernels(unsigned entries, char *text, size_t bytes)
{
  const tgi_device device = {.entries = entries};
  const tgi_chain chain = tgi_chain_of(TG_BACKEND_CUDA, NULL, &device);
  size_t used = 0;
  for (int i = 0; i < chain.length && used < bytes; i++) {
    used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? " -> " : "", chain.entry[i]);
  }
}

tg_status tg_device_get_info(int32_t index, tg_device_info *out, tg_error *error)
{
  if (error) {
    memset(error, 0, sizeof *error);
  }
  if (!out) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "device_get_info: out: expected a pointer, got NULL");
  }
  memset(out, 0, sizeof *out);
  unsigned entries = 0;
  const tg_status status = tgi_device_describe(index, out, &entries, error);
  if (status == TG_OK && out->supported) {
    list_kernels(entries, out->kernels, sizeof out->kernels);
  }
  return status;
}
