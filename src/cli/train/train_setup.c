/* Prepares a training run. */
#include "cli/console.h"
#include "core/error_record.h"
#include "files/directories/atomic_directory.h"
#include "files/directories/kept_directories.h"
#include "model/weights/weights.h"
#include "train_run.h"
#include "train_sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { kPlanLines = 16, kPathBytes = 4096, kDefaultSeq = 256 };

static const double kBeta1 = 0.9, kBeta2 = 0.99, kEps = 1e-8;

/* Refuses a run before it starts if its checkpoint could not be written at the end. */
static tg_status check_place(const char *out, tg_error *error)
{
  struct stat info;
  char path[kPathBytes];
  size_t size = strlen(out);
  while (size > 1 && out[size - 1] == '/') {
    size--;
  }
  if (size + sizeof "/config.json" > sizeof path) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "--out: expected a shorter path, got %zu bytes",
                         size);
  }
  memcpy(path, out, size);
  path[size] = '\0';
  if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) {
    return tgi_error_set(error, TG_IO, "--out: expected a directory or a new name, got the file %s",
                         path);
  }
  char *slash = strrchr(path, '/');
  if (slash) {
    slash[slash == path] = '\0';
  }
  const char *parent = slash ? path : ".";
  if (access(parent, W_OK | X_OK) != 0) {
    return tgi_error_set(error, TG_IO, "--out: %s: expected to write into %s, got %s", out, parent,
                         strerror(errno));
  }
  return TG_OK;
}

/* A new run replaces no model. check_place has seen that the path is short. */
static tg_status check_no_model(const char *out, tg_error *error)
{
  char path[kPathBytes];
  snprintf(path, sizeof path, "%s/config.json", out);
  return access(path, F_OK) != 0
             ? TG_OK
             : tgi_error_set(
                   error, TG_IO,
                   "--out: expected a directory without a model (or --resume), got the model in %s",
                   out);
}

/* --model by its hub name. */
static tg_status find_model(tgi_train_run *r, tg_error *error)
{
  if (r->o.resume || !r->o.model) {
    return TG_OK;
  }
  const tg_status status = tgi_model_path_find(r->o.model, &r->model_path, error);
  r->o.model = r->model_path.text;
  return status;
}

tg_status tgi_train_load_tokenizer(tgi_train_run *r, tg_error *error)
{
  const tg_status status = find_model(r, error);
  if (status != TG_OK) {
    return status;
  }
  const char *from = r->o.resume ? r->o.out : r->o.model;
  return from ? tg_tokenizer_load(from, &r->tokenizer, error)
              : tg_tokenizer_create_bytes(&r->tokenizer, error);
}

static tg_status load_model(tgi_train_run *r, tg_error *error)
{
  if (r->o.resume || r->o.model) {
    return tg_model_load(r->o.resume ? r->o.out : r->o.model, TG_F32, &r->model, error);
  }
  const int32_t vocab = r->o.vocab_size ? r->o.vocab_size : tg_tokenizer_vocab_size(r->tokenizer);
  const tg_status status =
      tg_model_create(r->o.preset, vocab, (uint64_t)r->o.seed, &r->model, error);
  if (status == TG_OK) { /* a preset ends text by its last id, which a wider vocabulary never has */
    tgi_config *config = &r->model->config;
    config->bos_token_id = config->eos_token_ids[0] =
        tg_tokenizer_special(r->tokenizer, "eos_token");
  }
  return status;
}

/* Fills in options that depend on others, and checks text and tokenizer against the model. */
static tg_status settle(tgi_train_run *r, tg_error *error)
{
  const tg_model_info info = tg_model_get_info(r->model);
  if (r->o.seq == 0) {
    r->o.seq =
        info.max_position_embeddings < kDefaultSeq ? info.max_position_embeddings : kDefaultSeq;
  }
  r->o.min_lr = r->o.min_lr < 0 ? r->o.lr / 10 : r->o.min_lr;
  r->o.warmup = r->o.warmup < 0 ? r->o.steps / 20 : r->o.warmup;
  if (tg_tokenizer_vocab_size(r->tokenizer) > info.vocab_size) {
    return tgi_error_set(error, TG_BAD_FILE,
                         "tokenizer.json: expected at most the model's %d ids, got %d",
                         info.vocab_size, tg_tokenizer_vocab_size(r->tokenizer));
  }
  if (!tgi_train_dtype_known(r->o.dtype)) {
    return tgi_error_set(error, TG_BAD_FILE,
                         "trainer_state.json: dtype: expected f32 or bf16, got %s",
                         r->o.dtype ? r->o.dtype : "none");
  }
  if (!tgi_train_schedule(r->o.schedule)) {
    return tgi_error_set(error, TG_BAD_FILE,
                         "trainer_state.json: schedule: expected cosine, constant, linear or wsd, "
                         "got %s",
                         r->o.schedule);
  }
  return TG_OK;
}

static tg_trainer_options trainer_options(const tgi_train_run *r)
{
  const tgi_train_options *o = &r->o;
  tgi_run_device device;
  (void)tgi_option_device(o->device, &device); /* check_usage validated it */
  const tg_schedule schedule = tgi_train_schedule(o->schedule);
  return (tg_trainer_options){.batch_size = o->batch,
                              .micro_batch_size = o->micro_batch,
                              .sequence_length = o->seq,
                              .max_documents = tgi_train_data_most_documents(&r->data),
                              .num_threads = o->threads,
                              .num_steps = o->steps,
                              .schedule = schedule,
                              .decay_fraction = schedule == TG_SCHEDULE_WSD ? o->decay_fraction : 0,
                              .warmup_steps = o->warmup,
                              .learning_rate = o->lr,
                              .min_learning_rate = o->min_lr,
                              .beta1 = kBeta1,
                              .beta2 = kBeta2,
                              .eps = kEps,
                              .weight_decay = o->weight_decay,
                              .max_grad_norm = o->clip,
                              .freeze_experts = o->freeze_experts,
                              .has_router_aux_loss_coef = o->router_aux_loss >= 0,
                              .router_aux_loss_coef =
                                  o->router_aux_loss >= 0 ? o->router_aux_loss : 0,
                              .dtype = tgi_option_dtype(o->dtype),
                              .backend = device.backend,
                              .device_index = device.index};
}

static void print_plan(tgi_train_run *r, const tg_plan_line *lines, size_t count)
{
  const tg_model_info info = tg_model_get_info(r->model);
  double sum = 0;
  tgi_progress_say(&r->progress, "model: %s, %d layers, width %d, %d ids, %.2f M parameters",
                   info.model_type, info.num_hidden_layers, info.hidden_size, info.vocab_size,
                   (double)info.num_parameters / 1e6);
  tgi_train_data_describe(&r->data, &r->o, &r->progress);
  tgi_progress_say(&r->progress, "memory:");
  for (size_t i = 0; i < count; i++) {
    tgi_progress_say(&r->progress, "  %-18s %12s", lines[i].name,
                     tgi_size((double)lines[i].bytes).text);
    sum += (double)lines[i].bytes;
  }
  const uint64_t mapped =
      tgi_store_bytes(&r->data.train_corpus.store) + tgi_store_bytes(&r->data.val_corpus.store);
  tgi_progress_say(&r->progress, "  %-18s %12s", "total", tgi_size(sum).text);
  tgi_progress_say(&r->progress, "  %-18s %12s", "tokens, mapped", tgi_size((double)mapped).text);
}

static tg_status make_trainer(tgi_train_run *r, tg_error *error)
{
  const tg_trainer_options options = trainer_options(r);
  tg_plan_line lines[kPlanLines];
  size_t count = 0;
  tg_status status = tg_trainer_plan(r->model, &options, lines, kPlanLines, &count, error);
  if (status != TG_OK) {
    return status;
  }
  print_plan(r, lines, count < kPlanLines ? count : kPlanLines);
  status = tg_trainer_create(r->model, &options, &r->trainer, error);
  if (status == TG_OK && r->o.resume) {
    status = tg_trainer_resume(r->trainer, r->o.out, NULL, 0, error);
    r->saved_step = tg_trainer_steps(r->trainer);
  }
  return status;
}

static tg_status check_identity(const tgi_train_run *r, const tgi_text_identity *was,
                                const tgi_text_identity *is, tg_error *error)
{
  if (!r->o.resume || (was->hash == is->hash && was->train_tokens == is->train_tokens)) {
    return TG_OK;
  }
  return tgi_error_set(error, TG_BAD_ARGUMENT,
                       "--train-file: expected the text that the checkpoint was trained on "
                       "(%lld tokens, hash %016llx), got %s (%lld tokens, hash %016llx)",
                       (long long)was->train_tokens, (unsigned long long)was->hash, r->o.train_file,
                       (long long)is->train_tokens, (unsigned long long)is->hash);
}

/* The auxiliary loss of routers is computed of each micro-batch, so with it their size is a part of
 * the objective. */
static tg_status check_micro_batch(const tgi_train_run *r, int32_t was, tg_error *error)
{
  const tgi_config *config = &r->model->config;
  const bool balances =
      r->o.router_aux_loss >= 0
          ? r->o.router_aux_loss > 0
          : config->num_experts && config->output_router_logits && config->router_aux_loss_coef > 0;
  const int32_t before = was ? was : r->o.batch,
                now = r->o.micro_batch ? r->o.micro_batch : r->o.batch;
  if (!r->o.resume || !balances || before == now) {
    return TG_OK;
  }
  return tgi_error_set(error, TG_BAD_ARGUMENT,
                       "--micro-batch: expected %d (the checkpoint's: the auxiliary loss of "
                       "routers depends on it), got %d",
                       before, now);
}

static void name_log(tgi_train_run *r)
{
  if (!r->o.log) {
    size_t size = strlen(r->o.out);
    while (size > 1 && r->o.out[size - 1] == '/') {
      size--;
    }
    snprintf(r->log_path, sizeof r->log_path, "%.*s.jsonl", (int)size, r->o.out);
    r->o.log = r->log_path;
  }
}

tg_status tgi_train_prepare(tgi_train_run *r, const tgi_parsed *given, tg_error *error)
{
  tgi_text_identity was = {0, 0};
  int32_t micro_batch = 0;
  tg_status status = check_place(r->o.out, error);
  status = status ? status : tgi_directory_lock_take(r->o.out, &r->lock, error);
  if (status == TG_OK && !r->o.resume) {
    status = check_no_model(r->o.out, error);
    status = status ? status : tgi_expect_none_kept(r->o.out, error);
  } else if (status == TG_OK) {
    status = tgi_atomic_directory_recover(r->o.out, error);
    status = status ? status
                    : tgi_train_note_apply(&r->o, given, &was, &micro_batch, &r->old_note, error);
    if (status == TG_OK && !r->o.train_file) { /* JSON cannot store a name that is not UTF-8 */
      status =
          tgi_error_set(error, TG_BAD_ARGUMENT,
                        "--train-file: expected FILE (the checkpoint stores no name), got none");
    }
  }
  name_log(r);
  r->progress = tgi_progress_start(r->o.quiet, r->o.steps, 0);
  status = status ? status : tgi_train_load_tokenizer(r, error);
  status = status ? status : tgi_train_data_load(&r->data, &r->o, r->tokenizer, error);
  const tgi_text_identity is = {r->data.train_corpus.hash.high, r->data.train.tokens};
  status = status ? status : check_identity(r, &was, &is, error);
  status = status ? status : load_model(r, error);
  status = status ? status : check_micro_batch(r, micro_batch, error);
  status = status ? status : settle(r, error);
  status = status ? status : tgi_train_data_pack(&r->data, &r->o, r->tokenizer, error);
  status = status ? status : tgi_train_sample_prepare(r, error);
  status = status ? status : tgi_train_note_write(&r->o, &is, &r->note, error);
  status = status ? status : make_trainer(r, error);
  status = status ? status : tgi_train_log_open(&r->log, r->o.log, r->o.resume, error);
  r->progress.tokens_per_step = (int64_t)r->o.batch * r->o.seq;
  return status;
}

void tgi_train_release(tgi_train_run *r)
{
  tgi_train_log_close(&r->log);
  tg_trainer_destroy(r->trainer);
  tg_model_destroy(r->model);
  tg_tokenizer_destroy(r->tokenizer);
  tgi_train_data_free(&r->data);
  tgi_prompt_free(&r->sample_prompt);
  tgi_directory_lock_drop(r->lock);
}
