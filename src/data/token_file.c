#include "token_file.h"

#include "core/error_record.h"
#include "files/directories/durable_file.h"
#include "files/file_error.h"
#include <string.h>

static const char kMagic[8] = {'T', 'G', 'T', 'O', 'K', 'E', 'N', 'S'};

enum {
  kNarrowMagic = 20240520, /* llm.c's, of uint16 */
  kWideMagic = 20240801,   /* of uint32 */
  kNarrowVersion = 1,
  kWideVersion = 7,
  kLlmcBytes = 1024,
  kTegulaBytes = 256,
  kPiece = 1 << 14, /* ids written at a time */
};

/* ---- writing ---- */

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
    put_number(header, bytes == 2 ? kNarrowMagic : kWideMagic, 4);
    put_number(header + 4, bytes == 2 ? kNarrowVersion : kWideVersion, 4);
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

/* ---- reading ---- */

static uint64_t get_number(const char *bytes, int size)
{
  uint64_t value = 0;
  for (int i = size; i-- > 0;) {
    value = value << 8 | (unsigned char)bytes[i];
  }
  return value;
}

static bool is_ours(const char *bytes, size_t size)
{
  return size >= sizeof kMagic && memcmp(bytes, kMagic, sizeof kMagic) == 0;
}

bool tgi_token_file_begins(const char *bytes, size_t size)
{
  const uint64_t magic = size >= 4 ? get_number(bytes, 4) : 0;
  return magic == kNarrowMagic || magic == kWideMagic || is_ours(bytes, size);
}

/* Fills in what the header of llm.c says. */
static tg_status read_llmc(const char *path, tgi_token_file *file, tg_error *error)
{
  const char *data = file->map.data;
  const uint64_t magic = get_number(data, 4), version = get_number(data + 4, 4);
  const uint64_t wanted = magic == kNarrowMagic ? kNarrowVersion : kWideVersion;
  if (version != wanted) {
    return tgi_file_error(
        error, TG_BAD_FILE, path, 4, "version %llu behind the magic %llu, got %llu",
        (unsigned long long)wanted, (unsigned long long)magic, (unsigned long long)version);
  }
  file->id_bytes = magic == kNarrowMagic ? 2 : 4;
  file->count = (int64_t)get_number(data + 8, 4);
  file->vocab_size = -1;
  file->ids = data + kLlmcBytes;
  return TG_OK;
}

static tg_status read_ours(const char *path, tgi_token_file *file, tg_error *error)
{
  const char *data = file->map.data;
  const uint64_t version = get_number(data + 8, 4), bytes = get_number(data + 12, 4);
  const uint64_t count = get_number(data + 16, 8), vocab_size = get_number(data + 24, 8);
  if (version != 1) {
    return tgi_file_error(error, TG_BAD_FILE, path, 8, "version 1, got %llu",
                          (unsigned long long)version);
  }
  if (bytes != 2 && bytes != 4) {
    return tgi_file_error(error, TG_BAD_FILE, path, 12, "2 or 4 bytes of an id, got %llu",
                          (unsigned long long)bytes);
  }
  if (count > SIZE_MAX / 8) { /* no file has so many */
    return tgi_file_error(error, TG_BAD_FILE, path, 16, "a number of ids, got %llu",
                          (unsigned long long)count);
  }
  if (vocab_size > INT32_MAX) {
    return tgi_file_error(error, TG_BAD_FILE, path, 24, "ids of a vocabulary below 2^31, got %llu",
                          (unsigned long long)vocab_size);
  }
  file->id_bytes = (int32_t)bytes;
  file->count = (int64_t)count;
  file->vocab_size = (int64_t)vocab_size;
  file->ids = data + kTegulaBytes;
  return TG_OK;
}

static tg_status read_header(const char *path, tgi_token_file *file, tg_error *error)
{
  const char *data = file->map.data;
  const size_t size = file->map.size;
  const bool ours = is_ours(data, size);
  const size_t header = ours ? kTegulaBytes : kLlmcBytes;
  if (!tgi_token_file_begins(data, size)) {
    return tgi_file_error(error, TG_BAD_FILE, path, 0,
                          "ids as llm.c or tegula tokenize --out writes them, got other bytes");
  }
  if (size < header) {
    return tgi_file_error(error, TG_BAD_FILE, path, size, "a header of %zu bytes, got the end",
                          header);
  }
  const tg_status status = ours ? read_ours(path, file, error) : read_llmc(path, file, error);
  if (status != TG_OK) {
    return status;
  }
  const uint64_t wanted = header + (uint64_t)file->count * (uint64_t)file->id_bytes;
  return wanted == size ? TG_OK
                        : tgi_file_error(error, TG_BAD_FILE, path, wanted < size ? wanted : size,
                                         "%llu bytes (%lld ids of %d bytes), got %zu",
                                         (unsigned long long)wanted, (long long)file->count,
                                         file->id_bytes, size);
}

tg_status tgi_token_file_open(const char *path, tgi_token_file *file, tg_error *error)
{
  *file = (tgi_token_file){.vocab_size = -1};
  tg_status status = tgi_file_map_open(path, SIZE_MAX / 8, &file->map, error);
  status = status ? status : read_header(path, file, error);
  if (status != TG_OK) {
    tgi_token_file_close(file);
  }
  return status;
}

void tgi_token_file_close(tgi_token_file *file)
{
  tgi_file_map_close(&file->map);
  *file = (tgi_token_file){.vocab_size = -1};
}
