/* The tensors of a Hugging Face directory, in one file or in shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/safetensors/safetensors_writer.h"
#include "model/weights/weight_files.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <stdio.h>

static tg_error error;

static const int64_t shape23[] = {2, 3};
static const int64_t shape3[] = {3};
static const float floats[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
static const uint16_t halves[3] = {1, 2, 3};

static const tgi_tensor_source sources[] = {
    {"wte.weight", TGI_FILE_F32, 2, shape23, floats},
    {"h", TGI_FILE_BF16, 1, shape3, halves},
    {"a", TGI_FILE_U8, 1, shape3, "abc"},
};

#define SOURCES (sizeof sources / sizeof sources[0])

static void write_index(const scratch *dir, const char *weight_map)
{
  char text[1024];
  snprintf(text, sizeof text, "{\"metadata\": {\"total_size\": 27}, \"weight_map\": %s}",
           weight_map);
  write_text(scratch_file(dir, "model.safetensors.index.json"), text);
}

static void weights_come_from_one_file_or_from_shards(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tgi_weight_files *files;
  EXPECT_ERROR(tgi_weight_files_open(dir.path, &files, &error), TG_IO,
               "/model.safetensors: expected to open it for reading", error);
  assert_null(files);

  EXPECT_OK(tgi_safetensors_write(scratch_file(&dir, "model-1.safetensors"), &sources[0], 2, NULL,
                                  0, &error),
            error);
  EXPECT_OK(tgi_safetensors_write(scratch_file(&dir, "model-2.safetensors"), &sources[2], 1, NULL,
                                  0, &error),
            error);
  write_index(&dir, "{\"wte.weight\": \"model-1.safetensors\", \"a\": \"model-2.safetensors\"}");
  EXPECT_OK(tgi_weight_files_open(dir.path, &files, &error), error);
  assert_int_equal(tgi_weight_files_count(files), 2); /* "h" is not in the map */
  assert_null(tgi_weight_files_find(files, "h"));
  const tgi_file_tensor *a = tgi_weight_files_find(files, "a");
  assert_ptr_equal(a, tgi_weight_files_at(files, 0));
  assert_memory_equal(a->data, "abc", 3);
  assert_string_equal(tgi_safetensors_path(tgi_weight_files_home(files, a)),
                      scratch_file(&dir, "model-2.safetensors"));
  const tgi_file_tensor *wte = tgi_weight_files_find(files, "wte.weight");
  assert_memory_equal(wte->data, floats, sizeof floats);
  tgi_weight_files_close(files);

  EXPECT_OK(tgi_safetensors_write(scratch_file(&dir, "model.safetensors"), sources, SOURCES, NULL,
                                  0, &error),
            error);
  EXPECT_OK(tgi_weight_files_open(dir.path, &files, &error), error);
  assert_int_equal(tgi_weight_files_count(files), SOURCES);
  assert_non_null(tgi_weight_files_find(files, "h"));
  assert_string_equal(tgi_weight_files_at(files, 0)->name, "a");
  tgi_weight_files_close(files);
  tgi_weight_files_close(NULL);
  scratch_remove(&dir);
}

static void bad_indices_are_refused(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const scratch outside = scratch_make();
  EXPECT_OK(tgi_safetensors_write(scratch_file(&dir, "s.safetensors"), sources, 2, NULL, 0, &error),
            error);
  EXPECT_OK(
      tgi_safetensors_write(scratch_file(&outside, "s.safetensors"), sources, 2, NULL, 0, &error),
      error);
  char escape[1024];
  snprintf(escape, sizeof escape, "{\"h\": \"%s\"}", scratch_file(&outside, "s.safetensors"));
  const struct {
    const char *map;
    tg_status status;
    const char *part;
  } cases[] = {
      {"[]", TG_BAD_FILE, "weight_map: expected an object, got []"},
      {"{\"h\": 3}", TG_BAD_FILE,
       ": weight_map: \"h\": expected the name of a .safetensors file in the "
       "directory itself, got 3"},
      {escape, TG_BAD_FILE, "file in the directory itself"},
      {"{\"h\": \"../s.safetensors\"}", TG_BAD_FILE, "file in the directory itself"},
      {"{\"h\": \"x/s.safetensors\"}", TG_BAD_FILE, "file in the directory itself"},
      {"{\"h\": \"x\\\\s.safetensors\"}", TG_BAD_FILE, "file in the directory itself"},
      {"{\"h\": \"..safetensors\"}", TG_BAD_FILE, "file in the directory itself"},
      {"{\"h\": \".safetensors\"}", TG_BAD_FILE, "file in the directory itself"},
      {"{\"h\": \"s.bin\"}", TG_BAD_FILE, "file in the directory itself"},
      {"{\"h\": \"\"}", TG_BAD_FILE, "file in the directory itself"},
      {"{\"h\": \"t.safetensors\"}", TG_IO, "/t.safetensors: expected to open it"},
      {"{\"h\": \"s.safetensors\", \"g\": \"s.safetensors\"}", TG_BAD_FILE,
       "weight_map: \"g\": expected a shard that holds this tensor, got \"s.safetensors\""},
      {"{\"h\": \"s.safetensors\", \"h\": \"s.safetensors\"}", TG_BAD_FILE,
       "duplicate object key near '\"h\"'"},
      {"{", TG_BAD_FILE, "expected JSON, got this error: '}' expected near end of file"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_index(&dir, cases[i].map);
    tgi_weight_files *files;
    EXPECT_ERROR(tgi_weight_files_open(dir.path, &files, &error), cases[i].status, cases[i].part,
                 error);
    assert_null(files);
  }
  write_text(scratch_file(&dir, "model.safetensors.index.json"), "{}");
  tgi_weight_files *files;
  EXPECT_ERROR(tgi_weight_files_open(dir.path, &files, &error), TG_BAD_FILE,
               "weight_map: expected an object, got none", error);
  scratch_remove(&dir);
  scratch_remove(&outside);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_come_from_one_file_or_from_shards),
      cmocka_unit_test(bad_indices_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
