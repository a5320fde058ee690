#include "prompt_batch.h"

#include "cli/interrupt.h"
#include "cli/json_print.h"
#include "files/durable_file.h"
#include <string.h>

static tg_status write_line(tgi_prompt_batch *b, tgi_text_run *r, tgi_durable_file *file,
                            tg_error *error)
{
  tgi_timings own = {.load_ms = b->sum.load_ms, .read_speed = b->read_speed};
  tgi_timings_add(&own, r);
  tgi_timings_add(&b->sum, r);
  json_t *object = tgi_text_json(r, &own), *line = json_object();
  json_object_set_new(line, "index", json_integer((json_int_t)b->done));
  json_object_update(line, object);
  json_decref(object);
  char *text = NULL;
  tg_status status = tgi_json_text(b->out, line, JSON_COMPACT | TGI_JSON_DIGITS, &text, error);
  status = status ? status : tgi_durable_file_write(file, text, strlen(text), error);
  status = status ? status : tgi_durable_file_write(file, "\n", 1, error);
  tgi_json_free_text(text);
  return status;
}

static tg_status run_prompt(tgi_prompt_batch *b, tgi_durable_file *file, tg_error *error)
{
  const tgi_listed_prompt *p = &b->prompts->items[b->done];
  tgi_text_run r = {.generator = b->generator,
                    .numbers = &p->numbers,
                    .prompt = &p->prompt,
                    .with_logprobs = b->with_logprobs,
                    .num_top = b->num_top};
  tg_status status = tgi_text_run_prompt(&r, error);
  status = status ? status : tgi_text_run_generate(&r, error);
  if (status == TG_OK && r.finish != TGI_FINISH_BROKEN) {
    status = write_line(b, &r, file, error);
    b->done += status == TG_OK;
  }
  tgi_text_run_free(&r);
  return status;
}

tg_status tgi_prompt_batch_run(tgi_prompt_batch *b, tg_error *error)
{
  tgi_durable_file file;
  tg_status status = tgi_durable_file_begin(b->out, &file, error);
  if (status != TG_OK) {
    return status;
  }
  while (status == TG_OK && b->done < b->prompts->count && !tgi_interrupted()) {
    status = run_prompt(b, &file, error);
  }
  if (b->done == 0 || status == TG_IO) { /* the last line may be a part */
    tgi_durable_file_drop(&file);
    return status;
  }
  const tg_status kept = tgi_durable_file_commit(&file, status ? NULL : error);
  return status ? status : kept;
}
