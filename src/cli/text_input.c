#include "text_input.h"

#include "core/error_record.h"
#include "core/growing.h"
#include <errno.h>
#include <string.h>

enum { kPiece = 1 << 16 };

static tg_status read_standard_input(tgi_text_input *input, tg_error *error)
{
  size_t capacity = 0, got = 1;
  while (got > 0) {
    char *grown = tgi_grow(input->block, &capacity, input->size + kPiece, 1);
    if (!grown) {
      return tgi_error_set(error, TG_NO_MEMORY,
                           "standard input: expected %zu bytes of memory, got none",
                           input->size + kPiece);
    }
    input->block = grown;
    got = fread(grown + input->size, 1, kPiece, stdin);
    input->size += got;
  }
  input->text = input->block;
  return ferror(stdin) ? tgi_error_set(error, TG_IO, "standard input: expected to read, got %s",
                                       strerror(errno))
                       : TG_OK;
}

tg_status tgi_text_input_open(const char *path, tgi_text_input *input, tg_error *error)
{
  *input = (tgi_text_input){.name = "standard input", .text = ""};
  if (!path || strcmp(path, "-") == 0) {
    return read_standard_input(input, error);
  }
  input->name = path;
  const tg_status status = tgi_file_map_open(path, SIZE_MAX / 8, &input->map, error);
  if (status == TG_OK) {
    input->text = input->map.data;
    input->size = input->map.size;
  }
  return status;
}

void tgi_text_input_close(tgi_text_input *input)
{
  free(input->block);
  tgi_file_map_close(&input->map);
  *input = (tgi_text_input){0};
}
