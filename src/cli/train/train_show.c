#include "train_show.h"

#include "cli/json_print.h"
#include "core/error_record.h"
#include "files/utf8_stream.h"
#include "text/tokenizer_state.h"

#include <stdlib.h>

/* JSON holds characters: what is none becomes U+FFFD. NULL without memory. */
static json_t *text_of(const tg_tokenizer *tokenizer, const int32_t *ids, size_t count)
{
  tgi_utf8_stream stream = {0};
  size_t size = 0, used = 0;
  tg_tokenizer_decode(tokenizer, ids, count, 0, NULL, 0, &size, NULL);
  char *bytes = malloc(size + 1), *text = malloc(TGI_UTF8_STREAM_BOUND(size) + 4);
  if (bytes && text &&
      tg_tokenizer_decode(tokenizer, ids, count, 0, bytes, size, &size, NULL) == TG_OK) {
    used = tgi_utf8_stream_push(&stream, bytes, size, text);
    used += tgi_utf8_stream_finish(&stream, text + used);
  }
  json_t *out = text ? json_stringn(text, used) : NULL;
  free(bytes);
  free(text);
  return out;
}

static json_t *document(const tg_tokenizer *tokenizer, const tgi_token_store *store, int64_t index,
                        const int32_t *ids, int64_t count)
{
  const int64_t first = tgi_store_begin(store, index);
  json_t *root = tgi_json_new(), *numbers = json_array(), *counted = json_array();
  json_t *targets = json_array();
  int64_t begin = 0;
  for (int64_t i = 0; i < count; i++) {
    const bool counts = tgi_store_counts(store, first + i);
    json_array_append_new(numbers, json_integer(ids[i]));
    json_array_append_new(counted, json_integer(counts));
    begin = counts ? begin : i + 1;
    if (counts && (i + 1 == count || !tgi_store_counts(store, first + i + 1))) {
      json_array_append_new(targets, text_of(tokenizer, ids + begin, (size_t)(i + 1 - begin)));
    }
  }
  json_object_set_new(root, "document", json_integer(index + 1));
  json_object_set_new(root, "text", text_of(tokenizer, ids, (size_t)count));
  json_object_set_new(root, "targets", targets);
  json_object_set_new(root, "ids", numbers);
  json_object_set_new(root, "counted", counted);
  return root;
}

static tg_status show(const tgi_train_run *r, tg_error *error)
{
  const tgi_token_store *store = &r->data.train_corpus.store;
  const int64_t most = r->o.show_data;
  for (int64_t d = 0; d < store->num_documents && d < most; d++) {
    const int64_t first = tgi_store_begin(store, d), count = (int64_t)store->ends[d] - first;
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    if (!ids) {
      return tgi_error_set(error, TG_NO_MEMORY,
                           "--show-data: expected %lld bytes of memory, got "
                           "none",
                           (long long)count * 4);
    }
    tgi_store_read(store, first, count, ids);
    tgi_json_print(document(r->tokenizer, store, d, ids, count), JSON_COMPACT);
    free(ids);
  }
  return TG_OK;
}

tg_status tgi_train_show(tgi_train_run *r, tg_error *error)
{
  r->progress = tgi_progress_start(r->o.quiet, r->o.steps, 0);
  tg_status status = tgi_train_load_tokenizer(r, error);
  status = status ? status : tgi_train_data_load(&r->data, &r->o, r->tokenizer, error);
  if (status == TG_OK) {
    tgi_train_data_describe(&r->data, &r->o, &r->progress);
    status = show(r, error);
  }
  return status;
}
