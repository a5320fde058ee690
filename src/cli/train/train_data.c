#include "train_data.h"

#include "core/error_record.h"
#include "core/machine/environment.h"
#include "files/json_file.h"
#include "text/tokenizer_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kTargetsAtOnce = 4096 };

/* ---- loading ---- */

static tg_status load(const char *pattern, const tgi_train_options *o,
                      const tgi_corpus_options *how, tgi_corpus *out, tg_error *error)
{
  char *text = NULL;
  tg_status status = tgi_template_arguments(&o->of_template.arguments, &text, error);
  if (status != TG_OK) {
    return status;
  }
  tgi_json arguments = {0};
  status =
      tgi_json_parse("--template-arg", text, strlen(text), 0, JSON_ALLOW_NUL, &arguments, error);
  tgi_json_free_text(text);
  if (status == TG_OK) {
    tgi_corpus_options with = *how;
    with.template_arguments = arguments.root;
    status = tgi_corpus_load(pattern, &with, out, error);
  }
  json_decref(arguments.root);
  return status;
}

static const char *today(tgi_train_data *d)
{
  const time_t now = time(NULL);
  struct tm day;
  return localtime_r(&now, &day) && strftime(d->date, sizeof d->date, "%Y-%m-%d", &day) > 0
             ? d->date
             : NULL;
}

static tg_status load_corpora(tgi_train_data *d, tgi_train_options *o,
                              const tg_tokenizer *tokenizer, tg_error *error)
{
  char cache[TGI_CACHE_PATH_BYTES];
  const bool has_cache = !o->no_cache && tgi_environment_cache_directory(cache, sizeof cache);
  const tgi_corpus_options how = {.tokenizer = tokenizer,
                                  .vocab_size = o->vocab_size ? o->vocab_size
                                                              : tg_tokenizer_vocab_size(tokenizer),
                                  .template_directory = o->resume ? o->out : o->model,
                                  .template_source = o->of_template.source,
                                  .template_name = o->of_template.name,
                                  .date = o->of_template.date ? o->of_template.date : today(d),
                                  .cache_directory = has_cache ? cache : NULL,
                                  .log = o->log,
                                  .trust = o->trust_content,
                                  .join = o->pack && strcmp(o->pack, "concat") == 0,
                                  .documents = o->pack && strcmp(o->pack, "concat") != 0};
  tg_status status = load(o->train_file, o, &how, &d->train_corpus, error);
  if (status == TG_OK && o->val_file) {
    status = load(o->val_file, o, &how, &d->val_corpus, error);
  }
  if (status == TG_OK && (d->train_corpus.uses_date || d->val_corpus.uses_date)) {
    o->of_template.date = how.date; /* part of the run, which may go on tomorrow */
  }
  return status;
}

/* What a model was trained with is its template from then on: checkpoints hold it. */
static tg_status keep_template(const tgi_train_options *o, tg_tokenizer *tokenizer, tg_error *error)
{
  tg_chat_template *chosen = NULL;
  tg_status status = tg_chat_template_load(NULL, o->of_template.source, &chosen, error);
  const char *text = chosen ? tg_chat_template_text(chosen, "default") : NULL;
  if (text && !tgi_kept_files_put(&tokenizer->files, "chat_template.jinja", text, strlen(text))) {
    status = tgi_error_set(error, TG_NO_MEMORY, "--template: expected %zu bytes, got none",
                           strlen(text));
  }
  tg_chat_template_destroy(chosen);
  return status;
}

static void settle_packing(tgi_train_data *d, tgi_train_options *o)
{
  if (!o->pack) {
    o->pack = d->train_corpus.kind == TGI_DATA_MESSAGES ? "documents" : "concat";
  }
  (void)tgi_packing_of(o->pack, &d->packing); /* check_usage has seen it */
  if (!o->long_documents) {
    o->long_documents = d->packing == TGI_PACK_OFF ? "cut" : "split";
  }
}

/* ---- parts ---- */

static tgi_data_part stream_part(const tgi_token_store *store, int64_t first, int64_t count)
{
  return (tgi_data_part){
      .store = store, .stream = {store, first, count}, .tokens = count > 1 ? count : 0};
}

static tgi_data_part document_part(const tgi_token_store *store, int64_t first, int64_t documents)
{
  const int64_t begin = documents > 0 ? tgi_store_begin(store, first) : 0;
  const int64_t end = documents > 0 ? (int64_t)store->ends[first + documents - 1] : 0;
  return (tgi_data_part){
      .store = store, .first = first, .documents = documents, .tokens = end - begin};
}

/* The stream's end, or its last documents that have no more tokens, are set aside. */
static void set_aside(tgi_train_data *d, double fraction)
{
  const tgi_token_store *store = &d->train_corpus.store;
  const int64_t tokens = (int64_t)((double)store->count * fraction);
  if (d->packing == TGI_PACK_CONCAT) {
    d->train = stream_part(store, 0, store->count - tokens);
    d->val = stream_part(store, store->count - tokens, tokens);
    return;
  }
  int64_t first = store->num_documents;
  while (first > 0 && store->count - tgi_store_begin(store, first - 1) <= tokens) {
    first--;
  }
  d->train = document_part(store, 0, first);
  d->val = document_part(store, first, store->num_documents - first);
}

static void use_val_file(tgi_train_data *d)
{
  const tgi_token_store *train = &d->train_corpus.store, *val = &d->val_corpus.store;
  if (d->packing == TGI_PACK_CONCAT) {
    d->train = stream_part(train, 0, train->count);
    d->val = stream_part(val, 0, val->count);
  } else {
    d->train = document_part(train, 0, train->num_documents);
    d->val = document_part(val, 0, val->num_documents);
  }
}

/* At most so many targets, or one document. */
static void limit_validation(tgi_train_data *d, int64_t most)
{
  const tgi_data_part *val = &d->val;
  if (most == 0 || val->tokens <= most + 1) {
    return;
  }
  if (d->packing == TGI_PACK_CONCAT) {
    d->val = stream_part(val->store, val->stream.first, most + 1);
    return;
  }
  const int64_t begin = tgi_store_begin(val->store, val->first);
  int64_t documents = 1;
  while (documents < val->documents &&
         (int64_t)val->store->ends[val->first + documents] - begin <= most) {
    documents++;
  }
  d->val = document_part(val->store, val->first, documents);
}

tg_status tgi_train_data_load(tgi_train_data *d, tgi_train_options *o, tg_tokenizer *tokenizer,
                              tg_error *error)
{
  tg_status status = load_corpora(d, o, tokenizer, error);
  if (status == TG_OK && o->of_template.source && d->train_corpus.kind == TGI_DATA_MESSAGES) {
    status = keep_template(o, tokenizer, error);
  }
  if (status != TG_OK) {
    return status;
  }
  settle_packing(d, o);
  if (o->val_file) {
    use_val_file(d);
  } else {
    set_aside(d, o->val_fraction);
  }
  limit_validation(d, o->eval_tokens);
  return TG_OK;
}

/* ---- rows ---- */

static tg_status pack_part(tgi_data_part *part, const tgi_train_data *d, const tgi_train_options *o,
                           tg_error *error)
{
  tgi_pack_options how = {.packing = d->packing,
                          .first = part->first,
                          .count = part->documents,
                          .row_length = o->seq,
                          .seed = (uint64_t)o->seed};
  (void)tgi_long_documents_of(o->long_documents, &how.rule); /* check_usage has seen it */
  if (part->tokens == 0) {
    return TG_OK;
  }
  const tg_status status = tgi_rows_pack(part->store, &how, &part->rows, error);
  part->tokens = part->rows.num_rows > 0 ? part->tokens : 0;
  return status;
}

static tg_status check_amount(const tgi_train_data *d, const tgi_train_options *o, tg_error *error)
{
  if (d->packing != TGI_PACK_CONCAT) {
    return d->train.tokens > 0
               ? TG_OK
               : tgi_error_set(error, TG_BAD_FILE,
                               "%s: expected documents with targets to train on, got none",
                               o->train_file);
  }
  return d->train.tokens > o->seq
             ? TG_OK
             : tgi_error_set(error, TG_BAD_FILE,
                             "%s: expected at least %lld tokens to train on (--seq %d and one "
                             "more), got %lld",
                             o->train_file, (long long)o->seq + 1, o->seq,
                             (long long)d->train.stream.count);
}

/* Mean bytes of text of the targets that are validated on. */
static void measure_validation(tgi_train_data *d, const tg_tokenizer *tokenizer)
{
  int32_t targets[kTargetsAtOnce];
  int64_t bytes = 0, count = 0;
  const bool is_stream = d->packing == TGI_PACK_CONCAT;
  const int64_t pieces = is_stream ? 1 : d->val.rows.num_pieces;
  for (int64_t p = 0; p < pieces && d->val.tokens > 0; p++) {
    const tgi_stream *s = &d->val.stream;
    int64_t at = is_stream ? s->first + 1 : d->val.rows.pieces[p].first + 1;
    int64_t left = is_stream ? s->count - 1 : d->val.rows.pieces[p].count;
    while (left > 0) {
      const int64_t n = left < kTargetsAtOnce ? left : kTargetsAtOnce;
      count += tgi_store_read_targets(d->val.store, at, n, targets);
      bytes += tgi_target_bytes(tokenizer, targets, n);
      at += n;
      left -= n;
    }
  }
  d->val.tokens = count > 0 ? d->val.tokens : 0;
  d->val_bytes = count > 0 ? (double)bytes / (double)count : 0;
}

tg_status tgi_train_data_pack(tgi_train_data *d, const tgi_train_options *o,
                              const tg_tokenizer *tokenizer, tg_error *error)
{
  tg_status status = TG_OK;
  d->shape = (tgi_batch_shape){o->batch, o->seq};
  if (d->packing != TGI_PACK_CONCAT) {
    status = pack_part(&d->train, d, o, error);
    status = status ? status : pack_part(&d->val, d, o, error);
  }
  status = status ? status : check_amount(d, o, error);
  if (status != TG_OK) {
    return status;
  }
  measure_validation(d, tokenizer);
  return tgi_batch_make(d->shape, tgi_train_data_most_documents(d), &d->batch, error);
}

int32_t tgi_train_data_most_documents(const tgi_train_data *d)
{
  const int64_t train = tgi_rows_most_documents(&d->train.rows);
  const int64_t val = tgi_rows_most_documents(&d->val.rows);
  return (int32_t)(train > val ? train : val);
}

/* ---- what is said ---- */

static void describe_corpus(const tgi_corpus *corpus, const char *name, tgi_progress *progress)
{
  const tgi_token_store *store = &corpus->store;
  const long long targets = (long long)tgi_store_count_targets(store, 0, store->count);
  char files[48] = "", documents[48] = "", left_out[80] = "";
  if (corpus->num_files > 1) {
    snprintf(files, sizeof files, " in %zu files", corpus->num_files);
  }
  if (store->ends) {
    snprintf(documents, sizeof documents, "%lld documents, ", (long long)store->num_documents);
  }
  if (corpus->left_out > 0) {
    snprintf(left_out, sizeof left_out, "; %lld documents without targets are left out",
             (long long)corpus->left_out);
  }
  tgi_progress_say(progress, "data: %s: %s%s, %s%lld tokens, %lld of them targets%s", name,
                   tgi_data_kind_name(corpus->kind), files, documents, (long long)store->count,
                   targets, left_out);
  if (corpus->note[0]) {
    tgi_progress_say(progress, "cache: %s", corpus->note);
  }
  if (corpus->cache[0]) {
    tgi_progress_say(progress, "cache: %s %s", corpus->was_cached ? "read" : "wrote",
                     corpus->cache);
  }
}

static void describe_rows(const tgi_rows *rows, const char *what, const tgi_train_options *o,
                          tgi_progress *progress)
{
  const double room = (double)rows->num_rows * rows->row_length;
  if (rows->num_rows == 0) {
    return;
  }
  tgi_progress_say(progress, "%s: %lld pieces of documents in %lld rows of %d, %.1f %% full", what,
                   (long long)rows->num_pieces, (long long)rows->num_rows, rows->row_length,
                   100 * (double)rows->num_pairs / room);
  if (rows->long_documents > 0) {
    const bool cut = strcmp(o->long_documents, "cut") == 0;
    tgi_progress_say(progress, "%s: %lld documents longer than a row are %s (%lld tokens left out)",
                     what, (long long)rows->long_documents, cut ? "cut at their end" : "split",
                     (long long)rows->pairs_cut);
  }
  if (rows->left_out > 0) {
    tgi_progress_say(progress, "%s: %lld pieces without targets are left out", what,
                     (long long)rows->left_out);
  }
}

void tgi_train_data_describe(const tgi_train_data *d, const tgi_train_options *o,
                             tgi_progress *progress)
{
  describe_corpus(&d->train_corpus, o->train_file, progress);
  if (o->val_file) {
    describe_corpus(&d->val_corpus, o->val_file, progress);
  }
  describe_rows(&d->train.rows, "train", o, progress);
  describe_rows(&d->val.rows, "validation", o, progress);
  tgi_progress_say(progress, "text: %lld tokens to train on, %lld to validate on",
                   (long long)d->train.tokens, (long long)d->val.tokens);
}

/* ---- batches ---- */

static tg_train_batch as_given(const tgi_batch *batch)
{
  return (tg_train_batch){.tokens = batch->tokens,
                          .targets = batch->targets,
                          .cu_seqlens = batch->cu_seqlens,
                          .num_documents = batch->num_documents};
}

tg_train_batch tgi_train_data_step(tgi_train_data *d, uint64_t seed, int64_t step)
{
  if (d->packing == TGI_PACK_CONCAT) {
    tgi_stream_train(d->train.stream, seed, step, d->shape, &d->batch);
  } else {
    tgi_rows_train(d->train.store, &d->train.rows, seed, step, d->shape, &d->batch);
  }
  return as_given(&d->batch);
}

int64_t tgi_train_data_evaluations(const tgi_train_data *d)
{
  return d->packing == TGI_PACK_CONCAT ? tgi_stream_evaluations(d->val.stream, d->shape)
                                       : tgi_rows_evaluations(&d->val.rows, d->shape);
}

tg_train_batch tgi_train_data_evaluate(tgi_train_data *d, int64_t index, int64_t *scored)
{
  *scored = d->packing == TGI_PACK_CONCAT
                ? tgi_stream_evaluate(d->val.stream, index, d->shape, &d->batch)
                : tgi_rows_evaluate(d->val.store, &d->val.rows, index, d->shape, &d->batch);
  return as_given(&d->batch);
}

void tgi_train_data_free(tgi_train_data *d)
{
  tgi_rows_free(&d->train.rows);
  tgi_rows_free(&d->val.rows);
  tgi_batch_free(&d->batch);
  tgi_corpus_close(&d->train_corpus);
  tgi_corpus_close(&d->val_corpus);
}
