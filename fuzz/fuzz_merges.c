/* merges.txt texts, with a vocabulary that has all pairs of a, b and c and what they make. */
#include "text/bpe/merging.h"
#include "text/token_lists.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
  if (!condition) {
    abort();
  }
}

/* Every word of a, b and c up to four letters. */
static void fill(tgi_vocabulary *v)
{
  int32_t id = 0;
  for (int length = 1, words = 3; length <= 4; length++, words *= 3) {
    for (int word = 0; word < words; word++) {
      char name[4];
      for (int i = 0, rest = word; i < length; i++, rest /= 3) {
        name[i] = (char)('a' + rest % 3);
      }
      require(tgi_vocabulary_insert(v, name, (size_t)length, id++, TG_TOKEN_ORDINARY) ==
              TGI_INSERTED);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  tgi_vocabulary v = {0};
  tgi_merge_table table = {0};
  tgi_merging merging = {0};
  tg_error error = {0};
  fill(&v);
  const tg_status status =
      tgi_read_merges_text("fuzz", (const char *)data, size, &v, &table, &error);
  if (status != TG_OK) {
    require(status == TG_BAD_FILE && status == error.status);
    require(strncmp(error.text, "fuzz: byte ", 11) == 0 && strstr(error.text, ": expected "));
    require(strtoull(error.text + 11, NULL, 10) < size);
  }
  static const char text[] =
      "abcabcaabbccabcabcaabbccabcabcaabbccabcabcaabbccabcabcaabbccabcabcaabbcc";
  int32_t byte_ids[256] = {['a'] = 0, ['b'] = 1, ['c'] = 2};
  size_t total = 0;
  const size_t count = tgi_merge_piece(&merging, &table, byte_ids, text, sizeof text - 1);
  for (size_t i = 0; i < count; i++) {
    const tg_token token = tgi_vocabulary_token(&v, merging.ids[i]);
    require(token.size > 0 && memcmp(token.bytes, text + total, token.size) == 0);
    total += token.size;
  }
  require(total == sizeof text - 1);
  tgi_merging_free(&merging);
  tgi_merge_table_free(&table);
  tgi_vocabulary_free(&v);
  return 0;
}
