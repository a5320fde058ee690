#include "token_file.h"

#include "core/error_record.h"
#include "files/durable_file.h"
#include <string.h>

static const char kMagic[8] = {'T', 'G', 'T', 'O', 'K', 'E', 'N', 'S'};

enum {
  kLlmcBytes = 1024,
  kTegulaBytes = 256,
  kPiece = 1 << 14, /* ids written at a time */
};

bool tgi_token_format_of(const char *name, tgi_token_format *format)
{
  *format = strcmp(name, "tegula") == 0 ? TGI_TOKENS_TEGULA : TGI_TOKENS_LLMC;
  return *format == TGI_TOKENS_TEGULA || strcmp(name, "llm.c") == 0;
}

size_t tgi_token_bytes(int32_t vocab_size)
{
  return vocab_size <= 1 << 16 ? 2 : 4;
}

static void put_number(unsigned char *out, uint64_t value, int bytes)
{
  for (int i = 0; i < bytes; i++) {
    out[i] = (unsigned char)(value >> 8 * i);
  }
}

static tg_status write_header(tgi_durable_file *file, tgi_token_format format, size_t count,
                              int32_t vocab_size, tg_error *error)
{
  unsigned char header[kLlmcBytes] = {0};
  const int bytes = (int)tgi_token_bytes(vocab_size);
  if (format == TGI_TOKENS_LLMC) {
    put_number(header, bytes == 2 ? 20240520 : 20240801, 4);
    put_number(header + 4, bytes == 2 ? 1 : 7, 4);
    put_number(header + 8, count, 4);
    return tgi_durable_file_write(file, header, kLlmcBytes, error);
  }
  memcpy(header, kMagic, sizeof kMagic);
  put_number(header + 8, 1, 4);
  put_number(header + 12, (uint64_t)bytes, 4);
  put_number(header + 16, count, 8);
  put_number(header + 24, (uint64_t)vocab_size, 8);
  return tgi_durable_file_write(file, header, kTegulaBytes, error);
}

static tg_status write_ids(tgi_durable_file *file, const int32_t *ids, size_t count, int bytes,
                           tg_error *error)
{
  unsigned char piece[4 * kPiece];
  tg_status status = TG_OK;
  for (size_t from = 0; from < count && status == TG_OK; from += kPiece) {
    const size_t some = count - from < kPiece ? count - from : kPiece;
    for (size_t i = 0; i < some; i++) {
      put_number(piece + i * (size_t)bytes, (uint64_t)ids[from + i], bytes);
    }
    status = tgi_durable_file_write(file, piece, some * (size_t)bytes, error);
  }
  return status;
}

tg_status tgi_token_file_write(const char *path, tgi_token_format format, const int32_t *ids,
                               size_t count, int32_t vocab_size, tg_error *error)
{
  tgi_durable_file file;
  if (format == TGI_TOKENS_LLMC && count > INT32_MAX) {
    return tgi_error_set(
        error, TG_UNSUPPORTED,
        "%s: expected less than 2^31 ids for llm.c (the format tegula takes more), "
        "got %zu",
        path, count);
  }
  tg_status status = tgi_durable_file_begin(path, &file, error);
  if (status != TG_OK) {
    return status;
  }
  status = write_header(&file, format, count, vocab_size, error);
  status = status ? status : write_ids(&file, ids, count, (int)tgi_token_bytes(vocab_size), error);
  if (status == TG_OK) {
    return tgi_durable_file_commit(&file, error);
  }
  tgi_durable_file_drop(&file);
  return status;
}
