/*
 * Any bytes: the safetensors reader accepts or refuses them, and what it accepts keeps the
 * promises of the format. Seeds: tests/golden/safetensors/.
 */
#include "files/safetensors/safetensors.h"
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
  tgi_safetensors *file;
  tg_error error = {0};
  if (tgi_safetensors_parse("fuzz", data, size, &file, &error) != TG_OK) {
    require(file == NULL && error.status == TG_BAD_FILE);
    require(strncmp(error.text, "fuzz: ", 6) == 0 && strstr(error.text, ": expected ") &&
            strstr(error.text, ", got "));
    /* the byte lies in the file or just behind it */
    require(strncmp(error.text, "fuzz: byte ", 11) != 0 ||
            strtoull(error.text + 11, NULL, 10) <= size);
    return 0;
  }
  const size_t count = tgi_safetensors_count(file);
  const uint8_t *end = data + size;
  unsigned sum = 0;
  for (size_t i = count; i-- > 0;) {
    const tgi_file_tensor *t = tgi_safetensors_at(file, i);
    require((const uint8_t *)t->data + t->bytes == end); /* no hole, no overlap */
    end = t->data;
    uint64_t bytes;
    require(tgi_file_dtype_bytes(t->dtype, t->ndim, t->shape, &bytes) && bytes == t->bytes);
    for (size_t j = 0; j < t->bytes; j++) {
      sum += ((const uint8_t *)t->data)[j]; /* under ASan: it is readable */
    }
    require(tgi_safetensors_find(file, t->name) == t);
  }
  require(sum != 1u << 31 && end >= data + 8);
  tgi_safetensors_metadata(file, "format");
  tgi_safetensors_close(file);
  return 0;
}
