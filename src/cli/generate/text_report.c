#include "text_report.h"

#include "cli/console.h"
#include "model_cost.h"
#include "token_text.h"
#include <math.h>
#include <stdio.h>

void tgi_timings_add(tgi_timings *t, const tgi_text_run *r)
{
  const tgi_generation_options *o = r->generator->o;
  const tg_dtype cache = o->cache_dtype ? tgi_option_dtype(o->cache_dtype) : TG_DTYPE_NONE;
  const double keys = (double)r->prompt->count + 0.5 * ((double)r->passes + 1);
  t->cache_n += r->shared;
  t->prompt_n += r->prompt->count - r->shared;
  t->predicted_n += (int64_t)r->num_ids;
  t->passes += r->passes;
  t->prompt_ms += 1e3 * r->prompt_seconds;
  t->predicted_ms += 1e3 * r->seconds;
  t->pass_bytes += (double)r->passes * tgi_model_pass_bytes(r->generator->model, keys, cache);
}

/* Bytes per second of the passes; 0: there was none. */
static double speed(const tgi_timings *t)
{
  return t->passes > 0 && t->predicted_ms > 0 ? 1e3 * t->pass_bytes / t->predicted_ms : 0;
}

/* a / b, or null. */
static json_t *ratio(double a, double b)
{
  return b > 0 ? json_real(a / b) : json_null();
}

json_t *tgi_timings_json(const tgi_timings *t)
{
  json_t *j = json_object();
  json_object_set_new(j, "cache_n", json_integer(t->cache_n));
  json_object_set_new(j, "prompt_n", json_integer(t->prompt_n));
  json_object_set_new(j, "prompt_ms", json_real(t->prompt_ms));
  json_object_set_new(j, "prompt_per_token_ms", ratio(t->prompt_ms, (double)t->prompt_n));
  json_object_set_new(j, "prompt_per_second", ratio(1e3 * (double)t->prompt_n, t->prompt_ms));
  json_object_set_new(j, "predicted_n", json_integer(t->predicted_n));
  json_object_set_new(j, "predicted_ms", json_real(t->predicted_ms));
  json_object_set_new(j, "predicted_per_token_ms", ratio(t->predicted_ms, (double)t->predicted_n));
  json_object_set_new(j, "predicted_per_second",
                      ratio(1e3 * (double)t->predicted_n, t->predicted_ms));
  json_object_set_new(j, "load_ms", json_real(t->load_ms));
  json_object_set_new(j, "bytes_per_token", ratio(t->pass_bytes, (double)t->passes));
  json_object_set_new(j, "gbps", speed(t) > 0 ? json_real(1e-9 * speed(t)) : json_null());
  json_object_set_new(j, "read_gbps",
                      t->read_speed > 0 ? json_real(1e-9 * t->read_speed) : json_null());
  json_object_set_new(j, "read_share", speed(t) > 0 ? ratio(speed(t), t->read_speed) : json_null());
  return j;
}

void tgi_timings_print(const tgi_timings *t)
{
  fprintf(stderr,
          "load: %.0f ms | prompt: %lld tokens in %.1f ms (%.0f tok/s) | "
          "generated: %lld in %.1f ms",
          t->load_ms, (long long)t->prompt_n, t->prompt_ms,
          t->prompt_ms > 0 ? 1e3 * (double)t->prompt_n / t->prompt_ms : 0,
          (long long)t->predicted_n, t->predicted_ms);
  if (t->predicted_n > 0 && t->predicted_ms > 0) {
    fprintf(stderr, " (%.0f tok/s)", 1e3 * (double)t->predicted_n / t->predicted_ms);
  }
  if (speed(t) > 0) {
    fprintf(stderr, " | %s a token, %.1f GB/s", tgi_size(t->pass_bytes / (double)t->passes).text,
            1e-9 * speed(t));
  }
  if (speed(t) > 0 && t->read_speed > 0) {
    fprintf(stderr, " (%.0f %% of the %.1f GB/s of reading memory)", 100 * speed(t) / t->read_speed,
            1e-9 * t->read_speed);
  }
}

/* ---- a text ---- */

static json_t *one_logprob(const tg_tokenizer *tokenizer, int32_t id, float logprob)
{
  json_t *j = json_object();
  json_object_set_new(j, "id", json_integer(id));
  if (tokenizer) {
    json_object_set_new(j, "token", tgi_token_text(tg_tokenizer_piece(tokenizer, id)));
  }
  json_object_set_new(j, "logprob", isfinite(logprob) ? json_real((double)logprob) : json_null());
  return j;
}

static json_t *all_logprobs(const tgi_text_run *r)
{
  const tg_tokenizer *tokenizer = r->generator->tokenizer;
  json_t *list = json_array();
  for (size_t i = 0; i < r->num_ids; i++) {
    const tg_token_logprobs *at = &r->logprobs[i];
    json_t *one = one_logprob(tokenizer, r->ids[i], at->logprob);
    json_t *top = at->num_top > 0 ? json_array() : NULL;
    for (int32_t k = 0; k < at->num_top && at->top[k].id >= 0; k++) {
      json_array_append_new(top, one_logprob(tokenizer, at->top[k].id, at->top[k].logprob));
    }
    if (top) {
      json_object_set_new(one, "top", top);
    }
    json_array_append_new(list, one);
  }
  return list;
}

json_t *tgi_text_json(const tgi_text_run *r, const tgi_timings *t)
{
  static const char *const reasons[] = {"stop", "length", "interrupted"};
  json_t *j = tgi_json_new(), *ids = json_array();
  for (size_t i = 0; i < r->num_ids; i++) {
    json_array_append_new(ids, json_integer(r->ids[i]));
  }
  json_object_set_new(j, "text",
                      r->generator->tokenizer ? json_stringn(r->text, r->size) : json_null());
  json_object_set_new(j, "ids", ids);
  json_object_set_new(j, "finish_reason", json_string(reasons[r->finish]));
  if (r->with_logprobs) {
    json_object_set_new(j, "logprobs", all_logprobs(r));
  }
  json_object_set_new(j, "timings", tgi_timings_json(t));
  return j;
}
