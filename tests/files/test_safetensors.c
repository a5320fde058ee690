/* Reader and writer of safetensors files; the reader's error table is
 * golden/safetensors/. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/safetensors/safetensors.h"
#include "files/safetensors/safetensors_writer.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

static tg_error error;

/* ---- reader ---- */

static tg_status status_named(const char *name)
{
  for (int status = TG_OK; status <= TG_BAD_FILE; status++) {
    if (strcmp(tg_status_name((tg_status)status), name) == 0) {
      return (tg_status)status;
    }
  }
  fail_msg("expected.tsv: no status is called %s", name);
  return TG_OK;
}

static void check_golden(const char *name, tg_status wanted, const char *byte, const char *part)
{
  char path[1024], mark[64];
  snprintf(path, sizeof path, "%s/safetensors/%s", TEGULA_GOLDEN, name);
  snprintf(mark, sizeof mark, byte[0] ? ": byte %s: " : ".safetensors: %s", byte);
  size_t size;
  char *bytes = read_file(path, &size);
  for (int mapped = 0; mapped < 2; mapped++) {
    tgi_safetensors *file = NULL;
    memset(&error, 0, sizeof error);
    const tg_status got = mapped ? tgi_safetensors_open(path, &file, &error)
                                 : tgi_safetensors_parse(path, bytes, size, &file, &error);
    if (got != wanted) {
      fail_msg("%s: expected %s, got %s: %s", name, tg_status_name(wanted), tg_status_name(got),
               error.text);
    }
    const bool placed = strstr(error.text, ": byte ") != NULL;
    if (got != TG_OK &&
        (!strstr(error.text, mark) || !strstr(error.text, part) || placed != (byte[0] != '\0'))) {
      fail_msg("%s: expected \"%s\" with \"%s\", got \"%s\"", name, mark, part, error.text);
    }
    assert_int_equal(file == NULL, got != TG_OK);
    tgi_safetensors_close(file);
  }
  free(bytes);
}

static void reader_agrees_with_the_golden_table(void **state)
{
  (void)state;
  char *table = read_file(TEGULA_GOLDEN "/safetensors/expected.tsv", NULL);
  int rows = 0;
  char *rest = NULL;
  for (char *line = strtok_r(table, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (line[0] == '#') {
      continue;
    }
    char *field[4];
    char *at = line;
    for (int i = 0; i < 4; i++) {
      field[i] = at;
      at = i < 3 ? strchr(at, '\t') : NULL;
      assert_true(i == 3 || at != NULL);
      if (at) {
        *at++ = '\0';
      }
    }
    check_golden(field[0], status_named(field[1]), field[2], field[3]);
    rows++;
  }
  free(table);
  /* every file in the folder has a row: expected.tsv and generate.py are the other two */
  assert_int_equal(rows, count_entries(TEGULA_GOLDEN "/safetensors") - 2);
}

static tgi_safetensors *open_golden(const char *name)
{
  char path[1024];
  snprintf(path, sizeof path, "%s/safetensors/%s", TEGULA_GOLDEN, name);
  tgi_safetensors *file;
  EXPECT_OK(tgi_safetensors_open(path, &file, &error), error);
  assert_string_equal(tgi_safetensors_path(file), path);
  return file;
}

static void reader_gives_tensors_in_the_order_of_their_data(void **state)
{
  (void)state;
  tgi_safetensors *file = open_golden("ok_order.safetensors");
  assert_int_equal(tgi_safetensors_count(file), 2);
  assert_string_equal(tgi_safetensors_at(file, 0)->name, "y");
  assert_string_equal(tgi_safetensors_at(file, 1)->name, "z");
  const tgi_file_tensor *z = tgi_safetensors_find(file, "z");
  assert_ptr_equal(z, tgi_safetensors_at(file, 1));
  assert_int_equal(z->bytes, 2);
  assert_memory_equal(z->data, "zz", 2);
  assert_int_equal(z->ndim, 1);
  assert_int_equal(z->shape[0], 2);
  assert_null(tgi_safetensors_find(file, "x"));
  assert_null(tgi_safetensors_find(file, ""));
  assert_null(tgi_safetensors_metadata(file, "format"));
  tgi_safetensors_close(file);
}

static void reader_takes_scalars_empty_tensors_and_any_rank(void **state)
{
  (void)state;
  tgi_safetensors *file = open_golden("ok_scalar.safetensors");
  const tgi_file_tensor *s = tgi_safetensors_find(file, "s");
  assert_int_equal(s->ndim, 0);
  assert_int_equal(s->bytes, 8);
  assert_int_equal(s->dtype, TGI_FILE_I64);
  tgi_safetensors_close(file);

  file = open_golden("ok_no_elements.safetensors");
  const tgi_file_tensor *e = tgi_safetensors_find(file, "e");
  assert_int_equal(e->bytes, 0);
  assert_non_null(e->data);
  assert_int_equal(e->shape[0], 0);
  assert_int_equal(e->shape[1], 5);
  tgi_safetensors_close(file);

  file = open_golden("ok_rank_9.safetensors");
  assert_int_equal(tgi_safetensors_find(file, "a")->ndim, 9);
  tgi_safetensors_close(file);

  file = open_golden("ok_empty.safetensors");
  assert_int_equal(tgi_safetensors_count(file), 0);
  assert_null(tgi_safetensors_find(file, "a"));
  tgi_safetensors_close(file);
}

static void reader_decodes_names_and_metadata(void **state)
{
  (void)state;
  tgi_safetensors *file = open_golden("ok_escaped_name.safetensors");
  assert_non_null(tgi_safetensors_find(file, "ab\xf0\x9f\x99\x82"));
  tgi_safetensors_close(file);
  file = open_golden("ok_metadata.safetensors");
  assert_string_equal(tgi_safetensors_metadata(file, "format"), "pt");
  assert_string_equal(tgi_safetensors_metadata(file, "k"), "\xc3\xa9\n");
  assert_null(tgi_safetensors_metadata(file, "K"));
  assert_int_equal(tgi_safetensors_count(file), 1);
  tgi_safetensors_close(file);
  file = open_golden("ok_nul_in_metadata.safetensors");
  assert_string_equal(tgi_safetensors_metadata(file, "k"), "v");
  tgi_safetensors_close(file);
  file = open_golden("ok_metadata_null.safetensors");
  assert_null(tgi_safetensors_metadata(file, "format"));
  assert_int_equal(tgi_safetensors_count(file), 1);
  tgi_safetensors_close(file);
}

static void reader_names_files_that_it_cannot_open(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tgi_safetensors *file;
  EXPECT_ERROR(tgi_safetensors_open(scratch_file(&dir, "none"), &file, &error), TG_IO,
               "/none: expected to open it for reading, got No such file", error);
  assert_null(file);
  EXPECT_ERROR(tgi_safetensors_open(dir.path, &file, &error), TG_BAD_FILE,
               "expected a regular file, got a directory", error);
  const char *pipe = scratch_file(&dir, "pipe");
  assert_int_equal(mkfifo(pipe, 0600), 0);
  EXPECT_ERROR(tgi_safetensors_open(pipe, &file, &error), TG_BAD_FILE,
               "expected a regular file, got a pipe", error);
  write_text(scratch_file(&dir, "empty"), "");
  EXPECT_ERROR(tgi_safetensors_open(scratch_file(&dir, "empty"), &file, &error), TG_BAD_FILE,
               "8 bytes of header length, got a file of 0 bytes", error);
  assert_int_equal(tgi_safetensors_open(scratch_file(&dir, "none"), &file, NULL), TG_IO);
  scratch_remove(&dir);
}

static void dtypes_of_ops_map_both_ways(void **state)
{
  (void)state;
  int mapped = 0;
  for (int i = 0; i < TGI_FILE_DTYPES; i++) {
    const tgi_file_dtype file = (tgi_file_dtype)i;
    const tg_dtype op = tgi_file_dtype_to_op(file);
    if (op == TG_DTYPE_NONE) {
      continue;
    }
    assert_int_equal(tgi_file_dtype_of_op(op), file);
    assert_int_equal(tgi_file_dtype_bits(file), 8 * tg_dtype_bytes(op));
    mapped++;
  }
  assert_int_equal(mapped, 6); /* every tg_dtype */
  assert_int_equal(tgi_file_dtype_of_op(TG_DTYPE_NONE), TGI_FILE_DTYPES);
  assert_int_equal(tgi_file_dtype_of_op((tg_dtype)99), TGI_FILE_DTYPES);
}

/* ---- writer ---- */

static const int64_t shape23[] = {2, 3};
static const int64_t shape3[] = {3};
static const int64_t shape0[] = {0, 7};
static const float floats[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
static const uint16_t halves[3] = {1, 2, 3};
static const uint64_t longs[1] = {UINT64_MAX};
static const char bytes3[3] = "abc";

static const tgi_tensor_source sources[] = {
    {"wte.weight", TGI_FILE_F32, 2, shape23, floats},
    {"h", TGI_FILE_BF16, 1, shape3, halves},
    {"a", TGI_FILE_U8, 1, shape3, bytes3},
    {"z", TGI_FILE_U64, 0, NULL, longs},
    {"nothing", TGI_FILE_F16, 2, shape0, NULL},
    {"b\"\\\n\xc3\xa9", TGI_FILE_I16, 1, shape3, halves},
};

#define SOURCES (sizeof sources / sizeof sources[0])

static void writer_output_reads_back(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "w.safetensors");
  const tgi_metadata_source extra[] = {{"step", "12"}};
  EXPECT_OK(tgi_safetensors_write(path, sources, SOURCES, extra, 1, &error), error);
  tgi_safetensors *file;
  EXPECT_OK(tgi_safetensors_open(path, &file, &error), error);
  assert_int_equal(tgi_safetensors_count(file), SOURCES);
  assert_string_equal(tgi_safetensors_metadata(file, "format"), "pt");
  assert_string_equal(tgi_safetensors_metadata(file, "step"), "12");
  for (size_t i = 0; i < SOURCES; i++) {
    const tgi_file_tensor *t = tgi_safetensors_find(file, sources[i].name);
    assert_non_null(t);
    assert_int_equal(t->dtype, sources[i].dtype);
    assert_int_equal(t->ndim, sources[i].ndim);
    if (t->ndim > 0) {
      assert_memory_equal(t->shape, sources[i].shape, (size_t)t->ndim * sizeof *t->shape);
    }
    if (t->bytes > 0) {
      assert_memory_equal(t->data, sources[i].data, t->bytes);
    }
    /* mapped files start at a page, so addresses show the alignment in the file */
    assert_int_equal((uintptr_t)t->data % (tgi_file_dtype_bits(t->dtype) / 8), 0);
  }
  assert_string_equal(tgi_safetensors_at(file, 0)->name, "z");
  assert_string_equal(tgi_safetensors_at(file, 1)->name, "wte.weight");
  tgi_safetensors_close(file);
  scratch_remove(&dir);
}

static void writer_gives_the_same_bytes_in_any_order(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tgi_tensor_source turned[SOURCES];
  for (size_t i = 0; i < SOURCES; i++) {
    turned[i] = sources[(i * 5 + 3) % SOURCES];
  }
  const char *one = scratch_file(&dir, "one");
  const char *two = scratch_file(&dir, "two");
  EXPECT_OK(tgi_safetensors_write(one, sources, SOURCES, NULL, 0, &error), error);
  EXPECT_OK(tgi_safetensors_write(two, turned, SOURCES, NULL, 0, &error), error);
  size_t size, size_two;
  char *bytes = read_file(one, &size);
  char *bytes_two = read_file(two, &size_two);
  assert_int_equal(size, size_two);
  assert_memory_equal(bytes, bytes_two, size);
  free(bytes);
  free(bytes_two);
  assert_int_equal(count_entries(dir.path), 2); /* no temporary file is left */
  scratch_remove(&dir);
}

static void writer_layout_is_the_documented_one(void **state)
{
  (void)state;
  static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                               "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "w");
  EXPECT_OK(tgi_safetensors_write(path, &sources[2], 1, NULL, 0, &error), error);
  size_t size;
  char *bytes = read_file(path, &size);
  const size_t padded = (sizeof header - 1 + 7) / 8 * 8;
  assert_int_equal(size, 8 + padded + 3);
  uint64_t length;
  memcpy(&length, bytes, sizeof length);
  assert_int_equal(length, padded);
  assert_memory_equal(bytes + 8, header, sizeof header - 1);
  for (size_t i = 8 + sizeof header - 1; i < 8 + padded; i++) {
    assert_int_equal(bytes[i], ' ');
  }
  assert_memory_equal(bytes + 8 + padded, "abc", 3);
  free(bytes);
  scratch_remove(&dir);
}

static void writer_refuses_what_no_file_can_hold(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "w");
  const int64_t negative[] = {-1};
  const int64_t huge[] = {INT64_MAX, 3};
  const int64_t large[] = {(int64_t)1 << 61};
  const struct {
    tgi_tensor_source source;
    const char *part;
  } cases[] = {
      {{NULL, TGI_FILE_F32, 1, shape3, floats}, "a tensor name in UTF-8, got none for tensor 0"},
      {{"\xff", TGI_FILE_F32, 1, shape3, floats}, "a tensor name in UTF-8"},
      {{"__metadata__", TGI_FILE_F32, 1, shape3, floats}, "a tensor name in UTF-8"},
      {{"x", TGI_FILE_DTYPES, 1, shape3, floats}, "a dtype for tensor x, got 22"},
      {{"x", TGI_FILE_F32, 1, negative, floats}, "extents that are not negative"},
      {{"x", TGI_FILE_F32, -1, shape3, floats}, "extents that are not negative"},
      {{"x", TGI_FILE_F32, 2, huge, floats}, "bytes that fit memory"},
      {{"x", TGI_FILE_F32, 1, large, floats}, "bytes that fit memory"},
      {{"x", TGI_FILE_F4, 1, shape3, floats}, "for tensor x"},
      {{"x", TGI_FILE_F32, 1, shape3, NULL}, "12 bytes of data for tensor x, got NULL"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    EXPECT_ERROR(tgi_safetensors_write(path, &cases[i].source, 1, NULL, 0, &error), TG_BAD_ARGUMENT,
                 cases[i].part, error);
  }
  const tgi_tensor_source twice[] = {
      sources[0], sources[2], {"wte.weight", TGI_FILE_U8, 1, shape3, bytes3}};
  EXPECT_ERROR(tgi_safetensors_write(path, twice, 3, NULL, 0, &error), TG_BAD_ARGUMENT,
               "each tensor once, got wte.weight twice", error);
  const tgi_metadata_source metadata[][2] = {{{"format", "x"}, {"k", "v"}},
                                             {{"k", "v"}, {"k", "w"}},
                                             {{"k", NULL}, {"l", "w"}},
                                             {{"\xc0", ""}, {"l", "w"}}};
  for (size_t i = 0; i < 4; i++) {
    EXPECT_ERROR(tgi_safetensors_write(path, sources, 1, metadata[i], 2, &error), TG_BAD_ARGUMENT,
                 "metadata of distinct keys", error);
  }
  assert_int_equal(count_entries(dir.path), 0);
  scratch_remove(&dir);
}

static void writer_keeps_the_old_file_when_the_disk_is_full(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "w");
  write_text(path, "old");
  const int64_t many[] = {1 << 16};
  float *data = calloc(1 << 16, sizeof *data);
  const tgi_tensor_source big = {"big", TGI_FILE_F32, 1, many, data};
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 100000; /* writing stops there, as on a full disk, with EFBIG for ENOSPC */
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  memset(&error, 0, sizeof error);
  const tg_status status = tgi_safetensors_write(path, &big, 1, NULL, 0, &error);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  assert_int_equal(status, TG_IO);
  assert_non_null(
      strstr(error.text, ": byte 100000: expected to write more bytes, got File too large"));
  char *text = read_file(path, NULL);
  assert_string_equal(text, "old");
  assert_int_equal(count_entries(dir.path), 1);
  free(text);
  free(data);
  EXPECT_ERROR(tgi_safetensors_write(scratch_file(&dir, "no/w"), sources, 1, NULL, 0, &error),
               TG_IO, "expected to create a temporary file beside it, got No such file", error);
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reader_agrees_with_the_golden_table),
      cmocka_unit_test(reader_gives_tensors_in_the_order_of_their_data),
      cmocka_unit_test(reader_takes_scalars_empty_tensors_and_any_rank),
      cmocka_unit_test(reader_decodes_names_and_metadata),
      cmocka_unit_test(reader_names_files_that_it_cannot_open),
      cmocka_unit_test(dtypes_of_ops_map_both_ways),
      cmocka_unit_test(writer_output_reads_back),
      cmocka_unit_test(writer_gives_the_same_bytes_in_any_order),
      cmocka_unit_test(writer_layout_is_the_documented_one),
      cmocka_unit_test(writer_refuses_what_no_file_can_hold),
      cmocka_unit_test(writer_keeps_the_old_file_when_the_disk_is_full),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
