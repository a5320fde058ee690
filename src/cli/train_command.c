/* tegula train: runs the steps of a training run. */
#include "command.h"
#include "console.h"
#include "core/machine/clock.h"
#include "files/directories/kept_directories.h"
#include "interrupt.h"
#include "train/train_run.h"
#include "train/train_sample.h"
#include "train/train_show.h"

#include <math.h>
#include <stdlib.h>

static const char kName[] = "tegula train";

static void log_start(tgi_train_run *r)
{
  const tg_model_info info = tg_model_get_info(r->model);
  json_t *line = tgi_train_log_line("start");
  json_object_set_new(line, "version", json_string(tg_version()));
  json_object_set_new(line, "step", json_integer(tg_trainer_steps(r->trainer)));
  json_object_set_new(line, "parameters", json_integer(info.num_parameters));
  json_object_set_new(line, "train_tokens", json_integer(r->data.train.tokens));
  json_object_set_new(line, "validation_tokens", json_integer(r->data.val.tokens));
  json_object_set_new(line, "options", json_string(r->note.text));
  tgi_train_log_write(&r->log, line);
}

static void log_step(tgi_train_run *r, const tgi_progress_step *s)
{
  json_t *line = tgi_train_log_line("step");
  json_object_set_new(line, "step", json_integer(s->step));
  tgi_train_log_number(line, "loss", s->loss);
  if (s->aux_loss != 0) {
    tgi_train_log_number(line, "aux_loss", s->aux_loss);
  }
  tgi_train_log_number(line, "grad_norm", s->grad_norm);
  tgi_train_log_number(line, "lr", s->learning_rate);
  tgi_train_log_number(line, "ms", 1e3 * s->seconds);
  tgi_train_log_number(line, "tokens_per_s", (double)r->progress.tokens_per_step / s->seconds);
  tgi_train_log_write(&r->log, line);
}

static void log_event(tgi_train_run *r, const char *event, const char *reason)
{
  json_t *line = tgi_train_log_line(event);
  json_object_set_new(line, "step", json_integer(tg_trainer_steps(r->trainer)));
  if (reason) {
    json_object_set_new(line, "reason", json_string(reason));
  }
  tgi_train_log_write(&r->log, line);
}

/* Mean loss over the validation tokens. An interrupt stops it early, without a result. */
static tg_status validate(tgi_train_run *r, tg_error *error)
{
  double sum = 0;
  int64_t scored = 0;
  const int64_t batches = tgi_train_data_evaluations(&r->data);
  for (int64_t b = 0; b < batches; b++) {
    double loss;
    int64_t n;
    const tg_train_batch batch = tgi_train_data_evaluate(&r->data, b, &n);
    const tg_status status = tg_trainer_loss(r->trainer, &batch, &loss, error);
    if (status != TG_OK || tgi_interrupted()) {
      return status;
    }
    sum += loss * (double)n;
    scored += n;
  }
  const double loss = sum / (double)scored;
  const double bits = r->data.val_bytes > 0 ? loss / log(2.0) / r->data.val_bytes : NAN;
  json_t *line = tgi_train_log_line("validation");
  json_object_set_new(line, "step", json_integer(tg_trainer_steps(r->trainer)));
  tgi_train_log_number(line, "loss", loss);
  tgi_train_log_number(line, "bits_per_byte", bits);
  tgi_train_log_write(&r->log, line);
  tgi_progress_say(&r->progress, "step %lld | validation loss %.4f | %.4f bit/byte",
                   (long long)tg_trainer_steps(r->trainer), loss, bits);
  return TG_OK;
}

static tg_status save(tgi_train_run *r, tg_error *error)
{
  const int64_t step = tg_trainer_steps(r->trainer);
  const tg_status status = tg_trainer_save(r->trainer, r->tokenizer, r->note.text, r->o.out, error);
  if (status != TG_OK) {
    return status;
  }
  r->saved_step = step;
  log_event(r, "checkpoint", NULL);
  return r->o.keep > 0 ? tgi_keep_directory(r->o.out, step, r->o.keep, "trainer_state.json", error)
                       : TG_OK;
}

static tg_status take_step(tgi_train_run *r, tg_error *error)
{
  tg_step_result result;
  const double start = tgi_clock();
  const tg_train_batch batch =
      tgi_train_data_step(&r->data, (uint64_t)r->o.seed, tg_trainer_steps(r->trainer));
  const tg_status status = tg_trainer_step(r->trainer, &batch, &result, error);
  if (status == TG_OK) {
    const tgi_progress_step s = {result.step,          result.loss,         result.grad_norm,
                                 result.learning_rate, tgi_clock() - start, result.aux_loss};
    tgi_progress_show(&r->progress, &s);
    log_step(r, &s);
  }
  return status;
}

static bool is_due(int64_t step, int64_t every, bool last)
{
  return last || (every > 0 && step % every == 0);
}

static tg_status train(tgi_train_run *r, tg_error *error)
{
  const int64_t started = tg_trainer_steps(r->trainer);
  tg_status status = TG_OK;
  while (status == TG_OK && !tgi_interrupted() && tg_trainer_steps(r->trainer) < r->o.steps) {
    status = take_step(r, error);
    const int64_t step = tg_trainer_steps(r->trainer);
    const bool last = step == r->o.steps;
    if (status == TG_OK && r->data.val.tokens > 0 && !tgi_interrupted() &&
        is_due(step, r->o.eval_every, last)) {
      status = validate(r, error);
    }
    if (status == TG_OK && r->o.sample_every > 0 && !tgi_interrupted() &&
        is_due(step, r->o.sample_every, last)) {
      status = tgi_train_sample(r, error);
    }
    if (status == TG_OK && is_due(step, r->o.save_every, last)) {
      status = save(r, error);
    }
  }
  if (status == TG_OK && started < tg_trainer_steps(r->trainer) &&
      r->saved_step < tg_trainer_steps(r->trainer)) {
    status = save(r, error); /* interrupted */
  }
  return status;
}

static int finish(tgi_train_run *r, tg_status status, const tg_error *error)
{
  tgi_progress_end(&r->progress);
  const long long step = (long long)tg_trainer_steps(r->trainer);
  if (status != TG_OK) {
    log_event(r, "end", error->text);
    tgi_console_fail_with(kName, error);
    if (r->saved_step < 0) {
      return tgi_console_fail(kName, "stopped after step %lld; no checkpoint was saved yet", step);
    }
    return tgi_console_fail(kName, "stopped after step %lld; %s holds the checkpoint of step %lld",
                            step, r->o.out, (long long)r->saved_step);
  }
  if (step < r->o.steps) {
    log_event(r, "end", "interrupted");
    tgi_progress_say(&r->progress,
                     r->saved_step == step
                         ? "interrupted after step %lld, saved; resume with: tegula train --out %s "
                           "--resume"
                         : "interrupted after step %lld; nothing to save in %s",
                     step, r->o.out);
    return tgi_interrupted();
  }
  log_event(r, "end", "done");
  tgi_progress_say(&r->progress, "all %lld steps are done; the model is in %s", step, r->o.out);
  return 0;
}

static int check_data_usage(const tgi_train_options *o)
{
  const tgi_command *line = &tgi_train_command_line;
  tgi_packing packing;
  tgi_long_documents rule;
  if (o->pack && !tgi_packing_of(o->pack, &packing)) {
    return tgi_usage_error(line, "--pack: expected off, concat or documents, got %s", o->pack);
  }
  if (o->long_documents && !tgi_long_documents_of(o->long_documents, &rule)) {
    return tgi_usage_error(line, "--long-documents: expected cut, split or error, got %s",
                           o->long_documents);
  }
  return 0;
}

static int check_usage(const tgi_train_options *o)
{
  const tgi_command *line = &tgi_train_command_line;
  tgi_run_device device;
  if (!o->out && o->show_data == 0) {
    return tgi_usage_error(line, "expected --out DIR");
  }
  if (!o->resume && !o->train_file) {
    return tgi_usage_error(line, "expected --train-file FILE");
  }
  if (!o->resume && !o->preset == !o->model) {
    return tgi_usage_error(line, "expected one of --preset NAME and --model DIR, got %s",
                           o->preset ? "both" : "neither");
  }
  if (o->vocab_size && o->model) {
    return tgi_usage_error(line, "--vocab-size: expected --preset, got --model");
  }
  if (check_data_usage(o) || tgi_template_check(line, &o->of_template) ||
      tgi_train_check_preset(line, o->preset)) {
    return TGI_EXIT_USAGE;
  }
  if (!tgi_train_dtype_known(o->dtype)) {
    return tgi_usage_error(line, "--dtype: expected f32 or bf16, got %s", o->dtype);
  }
  if (!tgi_train_schedule(o->schedule)) {
    return tgi_usage_error(line, "--schedule: expected cosine, constant, linear or wsd, got %s",
                           o->schedule);
  }
  if (!o->resume && o->micro_batch && o->batch % o->micro_batch != 0) {
    return tgi_usage_error(line, "--micro-batch: expected a divisor of --batch %d, got %d",
                           o->batch, o->micro_batch);
  }
  if (!tgi_option_device(o->device, &device)) {
    return tgi_usage_error(line, "--device: expected cpu, cuda or cuda:N, got %s", o->device);
  }
  if (o->warmup > o->steps) {
    return tgi_usage_error(line, "--warmup: expected at most --steps %lld, got %lld",
                           (long long)o->steps, (long long)o->warmup);
  }
  if (o->min_lr > o->lr) {
    return tgi_usage_error(line, "--min-lr: expected at most --lr %g, got %g", o->lr, o->min_lr);
  }
  return 0;
}

int tgi_train_command(int argc, char **argv)
{
  tgi_train_run *r = calloc(1, sizeof *r);
  if (!r) {
    return tgi_console_fail(kName, "expected %zu bytes of memory, got none", sizeof *r);
  }
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  r->o = tgi_train_defaults();
  r->saved_step = -1;
  tgi_parse_options(&tgi_train_command_line, argc, argv, &r->o, &given);
  int code = check_usage(&r->o);
  if (code == 0 && r->o.show_data > 0) {
    code = tgi_train_show(r, &error) ? tgi_console_fail_with(kName, &error) : 0;
  } else if (code == 0) {
    if (tgi_train_prepare(r, &given, &error) != TG_OK) {
      code = tgi_console_fail_with(kName, &error);
    } else {
      tgi_interrupt_catch();
      log_start(r);
      const tg_status status = train(r, &error);
      code = finish(r, status, &error);
    }
  }
  tgi_train_release(r);
  free(r);
  return code;
}
