/* Tokens by id and by name, and the words that short strings are compared by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "text/bpe/byte_alphabet.h"
#include "text/bpe/byte_words.h"
#include "text/bpe/vocabulary.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static void alphabet_is_a_bijection(void **state)
{
  (void)state;
  int seen = 0;
  for (uint32_t point = 0; point < 0x200; point++) {
    const int byte = tgi_point_to_byte(point);
    if (byte < 0) {
      continue;
    }
    assert_int_equal(tgi_byte_to_point((unsigned char)byte), point);
    seen++;
  }
  assert_int_equal(seen, 256);
  assert_int_equal(tgi_byte_to_point(' '), 0x120); /* the G with a dot of GPT-2's files */
  assert_int_equal(tgi_byte_to_point('\n'), 0x10a);
  assert_int_equal(tgi_byte_to_point(0xad), 0x143);
  assert_int_equal(tgi_byte_to_point('A'), 'A');
}

static void words_differ_where_bytes_differ(void **state)
{
  (void)state;
  for (size_t size = 0; size <= 8; size++) {
    char *bytes = malloc(size); /* of this size: a sanitizer sees reads beyond */
    memset(bytes, 0x5a, size);
    const uint64_t word = tgi_short_word(bytes, size);
    for (size_t i = 0; i < size; i++) {
      assert_int_equal(word >> 8 * i & 0xff, 0x5a);
      bytes[i] = (char)0xa5;
      assert_int_equal(tgi_short_word(bytes, size), word ^ (uint64_t)0xff << 8 * i);
      bytes[i] = 0x5a;
    }
    assert_true(size == 8 || word >> 8 * size == 0);
    free(bytes);
  }
}

static int32_t find(const tgi_vocabulary *v, const char *bytes)
{
  return tgi_vocabulary_find(v, bytes, strlen(bytes));
}

static int32_t find_name(tgi_vocabulary *v, const char *name)
{
  bool short_of_memory;
  const int32_t id = tgi_vocabulary_find_name(v, name, strlen(name), &short_of_memory);
  assert_false(short_of_memory);
  return id;
}

static tgi_insertion insert(tgi_vocabulary *v, const char *name, int32_t id)
{
  return tgi_vocabulary_insert(v, name, strlen(name), id, TG_TOKEN_ORDINARY);
}

static void names_are_spelled_or_kept(void **state)
{
  (void)state;
  tgi_vocabulary v = {0};
  assert_int_equal(find(&v, "a"), -1);
  assert_int_equal(insert(&v, "\xc4\xa0the", 5), TGI_INSERTED);
  assert_int_equal(insert(&v, "a b", 2), TGI_INSERTED); /* a space is not in the alphabet */
  assert_int_equal(insert(&v,
                          "a\xc4\xa0"
                          "b",
                          3),
                   TGI_INSERTED); /* here it is spelled */
  assert_int_equal(v.count, 6);
  assert_int_equal(v.entries, 3);
  assert_int_equal(find(&v, " the"), 5);
  assert_int_equal(find(&v, "a b"), 3);
  assert_int_equal(find_name(&v, "a b"), 2);
  assert_int_equal(find_name(&v, "\xc4\xa0the"), 5);
  assert_int_equal(find(&v, "\xc4\xa0the"), -1);
  assert_int_equal(insert(&v, "a b", 9), TGI_NAME_TAKEN);
  assert_int_equal(insert(&v, "new", 5), TGI_ID_TAKEN);
  assert_int_equal(v.count, 6);
  const tg_token token = tgi_vocabulary_token(&v, 5);
  assert_int_equal(token.size, 4);
  assert_memory_equal(token.bytes, " the", 4);
  assert_int_equal(token.kind, TG_TOKEN_ORDINARY);
  for (int32_t id = -1; id < 9; id += id == 1 ? 3 : 1) {
    if (id != 5) {
      assert_int_equal(tgi_vocabulary_token(&v, id).kind, TG_TOKEN_NONE);
      assert_int_equal(tgi_vocabulary_token(&v, id).size, 0);
    }
  }
  tgi_vocabulary_free(&v);
}

static void renamed_tokens_stand_for_their_new_names(void **state)
{
  (void)state;
  tgi_vocabulary v = {0};
  assert_int_equal(insert(&v, "before", 0), TGI_INSERTED);
  assert_int_equal(insert(&v, "other", 1), TGI_INSERTED);
  assert_true(tgi_vocabulary_rename(&v, 0, "\xc4\xa0next", 6));
  assert_int_equal(find(&v, "before"), -1);
  assert_int_equal(find(&v, " next"), 0);
  assert_memory_equal(tgi_vocabulary_token(&v, 0).bytes, " next", 5);
  assert_true(tgi_vocabulary_rename(&v, 0, "other", 5));
  assert_int_equal(find(&v, "other"), 1);
  assert_int_equal(tgi_vocabulary_token(&v, 0).size, 5);
  tgi_vocabulary_free(&v);
}

static void many_names_are_found(void **state)
{
  (void)state;
  tgi_vocabulary v = {0};
  char name[64];
  for (int32_t i = 0; i < 30000; i++) {
    sprintf(name, "%d%.*s", i, i % 20, "abcdefghijklmnopqrst");
    assert_int_equal(insert(&v, name, 29999 - i), TGI_INSERTED);
  }
  assert_true(v.num_slots > 2 * v.entries);
  for (int32_t i = 0; i < 30000; i++) {
    sprintf(name, "%d%.*s", i, i % 20, "abcdefghijklmnopqrst");
    assert_int_equal(find(&v, name), 29999 - i);
  }
  assert_int_equal(find(&v, "30000"), -1);
  tgi_vocabulary_free(&v);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alphabet_is_a_bijection),
      cmocka_unit_test(words_differ_where_bytes_differ),
      cmocka_unit_test(names_are_spelled_or_kept),
      cmocka_unit_test(renamed_tokens_stand_for_their_new_names),
      cmocka_unit_test(many_names_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
