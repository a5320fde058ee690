/* Caches of tokens: what was written is read back, and nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "data/token_cache.h"
#include "expect.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const tgi_hash128 key = {1, 2};
static const int32_t first[] = {5, 0, 299, 7}, second[] = {1, 2}, third[] = {42};
static const uint8_t counted[] = {0, 1, 0, 1};

/* A cache of three documents; without a path, in memory. */
static tgi_token_store write_documents(const char *path, int32_t vocab_size, bool some_count,
                                       tgi_token_cache_info *info)
{
  tgi_token_writer writer;
  tgi_token_store store;
  tg_error error;
  EXPECT_OK(tgi_token_writer_begin(path, key, vocab_size, &writer, &error), error);
  EXPECT_OK(tgi_token_writer_add(&writer, first, some_count ? counted : NULL, 4, &error), error);
  EXPECT_OK(tgi_token_writer_add(&writer, second, NULL, 2, &error), error);
  EXPECT_OK(tgi_token_writer_add(&writer, third, NULL, 1, &error), error);
  writer.left_out = 3;
  EXPECT_OK(tgi_token_writer_commit(&writer, &store, info, &error), error);
  return store;
}

static void check_documents(const tgi_token_store *store, bool some_count)
{
  const int32_t wanted[] = {5, 0, 299, 7, 1, 2, 42};
  const int32_t ignored = TGI_IGNORED, targets[] = {ignored, 0, ignored, 7, 1, 2, 42};
  int32_t got[7];
  int64_t at;
  assert_int_equal(store->count, 7);
  assert_int_equal(store->num_documents, 3);
  assert_int_equal(store->ends[0], 4);
  assert_int_equal(store->ends[1], 6);
  assert_int_equal(store->ends[2], 7);
  tgi_store_read(store, 0, 7, got);
  assert_memory_equal(got, wanted, sizeof wanted);
  assert_int_equal(tgi_store_read_targets(store, 0, 7, got), some_count ? 5 : 7);
  assert_int_equal(tgi_store_count_targets(store, 0, 7), some_count ? 5 : 7);
  assert_int_equal(tgi_store_count_targets(store, 1, 3), some_count ? 2 : 3);
  assert_memory_equal(got, some_count ? targets : wanted, sizeof wanted);
  assert_int_equal(tgi_store_largest(store, &at), 299);
  assert_int_equal(at, 2);
}

static void what_is_written_is_read(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "tokens.bin");
  tgi_token_cache_info info, again;
  tg_error error;
  for (int c = 0; c < 8; c++) {
    const int32_t vocab_size = c & 1 ? 300 : 70000; /* ids of 2 and of 4 bytes */
    const bool some_count = c & 2, in_memory = c & 4;
    tgi_token_store store = write_documents(in_memory ? NULL : path, vocab_size, some_count, &info);
    check_documents(&store, some_count);
    assert_int_equal(info.left_out, 3);
    tgi_store_close(&store);
    if (!in_memory) {
      EXPECT_OK(tgi_token_cache_open(path, key, vocab_size, &store, &again, &error), error);
      check_documents(&store, some_count);
      assert_true(tgi_hash_equal(info.hash, again.hash));
      assert_int_equal(again.left_out, 3);
      tgi_store_close(&store);
    }
  }
  assert_int_equal(count_entries(dir.path), 1); /* no temporary file */
  scratch_remove(&dir);
}

static void expect_refusal(const char *path, tgi_hash128 of, int32_t vocab_size)
{
  tgi_token_store store;
  tgi_token_cache_info info;
  tg_error error;
  EXPECT_ERROR(tgi_token_cache_open(path, of, vocab_size, &store, &info, &error), TG_BAD_FILE,
               "expected tokens as they were written, got ", error);
  assert_null(store.maps);
}

static void damage_is_seen(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "tokens.bin"), *other = scratch_file(&dir, "other.bin");
  tgi_token_cache_info info;
  tgi_token_store store = write_documents(path, 300, true, &info);
  tgi_store_close(&store);
  size_t size;
  char *bytes = read_file(path, &size);
  for (size_t i = 0; i < size; i++) { /* any byte, any bit */
    bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
    write_file(other, bytes, size);
    expect_refusal(other, key, 300);
    bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
    write_file(other, bytes, i); /* cut off there */
    expect_refusal(other, key, 300);
  }
  write_file(other, bytes, size);
  expect_refusal(other, (tgi_hash128){1, 3}, 300);
  expect_refusal(other, key, 299); /* an id that this vocabulary has not */
  expect_refusal(other, key, 70000);
  free(bytes);
  scratch_remove(&dir);
}

static void an_empty_cache_is_a_cache(void **state)
{
  (void)state;
  tgi_token_writer writer;
  tgi_token_store store;
  tgi_token_cache_info info;
  tg_error error;
  EXPECT_OK(tgi_token_writer_begin(NULL, key, 300, &writer, &error), error);
  EXPECT_OK(tgi_token_writer_commit(&writer, &store, &info, &error), error);
  assert_int_equal(store.count, 0);
  assert_int_equal(store.num_documents, 0);
  tgi_store_close(&store);
}

/* Values of the method's author, and bytes that come in pieces. */
static void hashes_are_known(void **state)
{
  (void)state;
  const char *fox = "The quick brown fox jumps over the lazy dog";
  assert_string_equal(tgi_hash_print(tgi_hash_bytes("", 0)).text,
                      "00000000000000000000000000000000");
  assert_string_equal(tgi_hash_print(tgi_hash_bytes("hello", 5)).text,
                      "cbd8a7b341bd9b025b1e906a48ae1d19");
  assert_string_equal(tgi_hash_print(tgi_hash_bytes(fox, strlen(fox))).text,
                      "e34bbc7bbc071b6c7a433ca9c49a9347");
  for (size_t piece = 1; piece < strlen(fox); piece++) {
    tgi_hasher h = {0};
    for (size_t at = 0; at < strlen(fox); at += piece) {
      tgi_hasher_add(&h, fox + at, strlen(fox) - at < piece ? strlen(fox) - at : piece);
    }
    assert_true(tgi_hash_equal(tgi_hasher_end(&h), tgi_hash_bytes(fox, strlen(fox))));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read),
      cmocka_unit_test(damage_is_seen),
      cmocka_unit_test(an_empty_cache_is_a_cache),
      cmocka_unit_test(hashes_are_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
