/*
 * Lets the property tests (tests/python/runtime/test_safetensors_properties.py) ask the readers
 * about bytes, many times in one process.
 *
 *   safetensors_tool OUTPUT
 *
 * It reads requests: a command byte, the number of bytes as 8 bytes little-endian, the bytes.
 *
 * c: read as safetensors. Answers "OK <tensors>", then for each tensor
 *    "<name in hex> <dtype> <offset> <bytes> [extent ...]".
 *
 * w: the same, and write the tensors to OUTPUT with the writer.
 *
 * j: read as JSON. Answers "OK 0".
 *
 * What is refused answers "<STATUS> <message>". The end of the input ends the program.
 */
#include "files/json_file.h"
#include "files/safetensors/safetensors.h"
#include "files/safetensors/safetensors_writer.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool receive(void *bytes, size_t size)
{
  return fread(bytes, 1, size, stdin) == size;
}

static void answer_error(const tg_error *error)
{
  printf("%s %s\n", tg_status_name(error->status), error->text);
}

static void list(const tgi_safetensors *file, const char *bytes)
{
  const size_t count = tgi_safetensors_count(file);
  printf("OK %zu\n", count);
  for (size_t i = 0; i < count; i++) {
    const tgi_file_tensor *t = tgi_safetensors_at(file, i);
    for (const char *c = t->name; *c; c++) {
      printf("%02x", (unsigned char)*c);
    }
    printf(" %s %td %zu", tgi_file_dtype_name(t->dtype), (const char *)t->data - bytes, t->bytes);
    for (int32_t j = 0; j < t->ndim; j++) {
      printf(" %" PRId64, t->shape[j]);
    }
    printf("\n");
  }
}

static tg_status rewrite(const tgi_safetensors *file, const char *path, tg_error *error)
{
  const size_t count = tgi_safetensors_count(file);
  tgi_tensor_source *sources = calloc(count + 1, sizeof *sources);
  if (!sources) {
    abort();
  }
  for (size_t i = 0; i < count; i++) {
    const tgi_file_tensor *t = tgi_safetensors_at(file, i);
    sources[i] = (tgi_tensor_source){t->name, t->dtype, t->ndim, t->shape, t->data};
  }
  unlink(path);
  const tg_status status = tgi_safetensors_write(path, sources, count, NULL, 0, error);
  free(sources);
  return status;
}

static void answer(char command, const char *bytes, size_t size, const char *output)
{
  tg_error error = {0};
  if (command == 'j') {
    tgi_json json;
    if (tgi_json_parse("input", bytes, size, 0, 0, &json, &error) != TG_OK) {
      answer_error(&error);
      return;
    }
    json_decref(json.root);
    printf("OK 0\n");
    return;
  }
  tgi_safetensors *file;
  if (tgi_safetensors_parse("input", bytes, size, &file, &error) != TG_OK ||
      (command == 'w' && rewrite(file, output, &error) != TG_OK)) {
    answer_error(&error);
  } else {
    list(file, bytes);
  }
  tgi_safetensors_close(file);
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    fprintf(stderr, "usage: safetensors_tool OUTPUT\n");
    return 2;
  }
  char command;
  uint64_t size;
  while (receive(&command, 1) && receive(&size, sizeof size)) {
    /* exactly as long as the request, so that a sanitizer sees a read beyond it */
    char *bytes = malloc(size > 0 ? size : 1);
    if (!bytes || !receive(bytes, size)) {
      free(bytes);
      return 1;
    }
    answer(command, bytes, size, argv[1]);
    free(bytes);
    fflush(stdout);
  }
  return 0;
}
