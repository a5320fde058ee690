#include "prompt_batch.h"

#include "cli/interrupt.h"
#include "cli/json_print.h"
#include "core/error_record.h"
#include "core/machine/clock.h"
#include "files/directories/durable_file.h"
#include <stdlib.h>
#include <string.h>

/* A prompt at work, or done and waiting for those before it. */
typedef struct batch_text {
  tgi_text_run run;
  tg_error error;
  double submitted, first; /* when; 0: not yet */
  bool ended;
} batch_text;

typedef struct batch {
  tgi_prompt_batch *b;
  tgi_durable_file file;
  uint64_t complete; /* bytes of the file that are whole lines */
  batch_text **text; /* [prompts]; NULL: not submitted yet, or written */
  size_t sent;
} batch;

static void drop_text(batch_text *t)
{
  if (t) {
    tgi_stop_strings_destroy(t->run.stops);
    tgi_text_run_free(&t->run);
    free(t);
  }
}

/* ---- events ---- */

static bool take_event(void *user, const tg_event *event)
{
  batch_text *t = user;
  const double now = tgi_clock();
  if (event->finish == TG_FINISH_NONE) {
    t->first = t->first > 0 ? t->first : now;
    return tgi_text_run_take(&t->run, event->id);
  }
  t->ended = true;
  t->run.shared = event->shared_tokens;
  t->run.prompt_seconds = (t->first > 0 ? t->first : now) - t->submitted;
  t->run.seconds = now - (t->first > 0 ? t->first : now);
  if (event->error) {
    t->error = *event->error;
    t->run.status = event->error->status;
  }
  return true;
}

static tg_status submit(batch *w, tg_error *error)
{
  const tgi_prompt_batch *b = w->b;
  const tgi_generator *g = b->generator;
  const tgi_listed_prompt *p = &b->prompts->items[w->sent];
  batch_text *t = calloc(1, sizeof *t);
  if (!t) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: expected memory for a text, got none", b->out);
  }
  w->text[w->sent] = t;
  t->run = (tgi_text_run){.generator = g,
                          .numbers = &p->numbers,
                          .prompt = &p->prompt,
                          .with_logprobs = b->with_logprobs,
                          .num_top = b->num_top};
  tg_status status =
      tgi_stop_strings_create(g->o->stop.items, (size_t)g->o->stop.count, &t->run.stops, error);
  if (status == TG_OK) {
    tgi_text_run_begin(&t->run, &t->error);
    t->submitted = tgi_clock();
    const tg_request request = {.ids = p->prompt.ids,
                                .count = p->prompt.count,
                                .how = t->run.how,
                                .on_event = take_event,
                                .user = t};
    int64_t number;
    status = tg_engine_submit(g->engine, &request, &number, error);
  }
  w->sent++;
  return status;
}

/* ---- results ---- */

static tg_status write_line(batch *w, const tgi_text_run *r, tg_error *error)
{
  tgi_prompt_batch *b = w->b;
  tgi_timings own = {.load_ms = b->sum.load_ms};
  const double run_ms = b->sum.predicted_ms;
  tgi_timings_add(&own, r);
  tgi_timings_add(&b->sum, r);
  b->sum.predicted_ms = run_ms;
  json_t *object = tgi_text_json(r, &own), *line = json_object();
  json_object_set_new(line, "index", json_integer((json_int_t)b->done));
  json_object_update(line, object);
  json_decref(object);
  char *text = NULL;
  tg_status status = tgi_json_text(b->out, line, JSON_COMPACT | TGI_JSON_DIGITS, &text, error);
  status = status ? status : tgi_durable_file_write(&w->file, text, strlen(text), error);
  status = status ? status : tgi_durable_file_write(&w->file, "\n", 1, error);
  tgi_json_free_text(text);
  return status;
}

/* Lines of the prompts that are done, up to the first one that is not. */
static tg_status write_done(batch *w, tg_error *error)
{
  tgi_prompt_batch *b = w->b;
  tg_status status = TG_OK;
  while (status == TG_OK && b->done < w->sent && w->text[b->done]->ended) {
    batch_text *t = w->text[b->done];
    status = tgi_text_run_end(&t->run);
    if (status != TG_OK) {
      return tgi_error_set(error, status, "%s", t->error.text);
    }
    if (t->run.finish == TGI_FINISH_BROKEN) { /* interrupted */
      break;
    }
    status = write_line(w, &t->run, error);
    if (status == TG_OK) {
      drop_text(t);
      w->text[b->done++] = NULL;
      w->complete = w->file.written;
    }
  }
  return status;
}

/* Those that the engine has not ended. */
static size_t count_at_work(const batch *w)
{
  size_t count = 0;
  for (size_t i = w->b->done; i < w->sent; i++) {
    count += !w->text[i]->ended;
  }
  return count;
}

static tg_status run_all(batch *w, tg_error *error)
{
  tgi_prompt_batch *b = w->b;
  const double start = tgi_clock();
  tg_status status = TG_OK;
  while (status == TG_OK && b->done < b->prompts->count && !tgi_interrupted()) {
    size_t at_work = count_at_work(w);
    while (status == TG_OK && at_work < (size_t)b->parallel && w->sent < b->prompts->count) {
      status = submit(w, error);
      at_work++;
    }
    status = status ? status : tg_engine_step(b->generator->engine, NULL, error);
    b->sum.predicted_ms = 1e3 * (tgi_clock() - start);
    status = status ? status : write_done(w, error);
  }
  return status;
}

tg_status tgi_prompt_batch_run(tgi_prompt_batch *b, tg_error *error)
{
  batch w = {.b = b, .text = calloc(b->prompts->count, sizeof(batch_text *))};
  if (!w.text) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: expected memory for %zu texts, got none", b->out,
                         b->prompts->count);
  }
  tg_status status = tgi_durable_file_begin(b->out, &w.file, error);
  if (status == TG_OK) {
    status = run_all(&w, error);
    /* On a full disk the last line may be a part. */
    if (b->done == 0 || tgi_durable_file_cut(&w.file, w.complete, NULL) != TG_OK) {
      tgi_durable_file_drop(&w.file);
    } else {
      const tg_status kept = tgi_durable_file_commit(&w.file, status ? NULL : error);
      status = status ? status : kept;
    }
  }
  for (size_t i = 0; i < w.sent; i++) {
    drop_text(w.text[i]);
  }
  free(w.text);
  return status;
}
