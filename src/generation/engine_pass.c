/* An engine's passes. Rows of one step are sorted by the width of their block tables, which follows
 * from a sequence's own length: attention is one call for each width. */
#include "engine_state.h"
#include "tegula/device.h"

#include <string.h>

/* Blocks of the table of a sequence with so many tokens: a power of two, whatever others have. */
static int64_t table_width(int64_t tokens)
{
  int64_t width = 4;
  while (width * TG_BLOCK_TOKENS < tokens) {
    width *= 2;
  }
  return width;
}

/* ---- what the host tells ---- */

enum { kIds, kPositions, kSlots, kKeyCounts, kTables };

static int64_t input_at(const tg_engine *e, int which)
{
  return which * e->inputs.rows;
}

static tg_tensor input_view(const tg_engine *e, int64_t at, int64_t count)
{
  int32_t *data = e->inputs.all.data;
  return tg_tensor_1d(data ? data + at : NULL, TG_I32, count);
}

/* Where token `position` of a sequence lies: a row of the pool. */
static int32_t slot_of(const tgi_sequence *s, int64_t position)
{
  return (int32_t)(s->blocks[position / TG_BLOCK_TOKENS] * TG_BLOCK_TOKENS +
                   position % TG_BLOCK_TOKENS);
}

/* Entries behind the sequence's blocks hold no key and are not looked at. */
static void write_table(int32_t *to, const tgi_sequence *s, int64_t width)
{
  memcpy(to, s->blocks, (size_t)s->num_blocks * sizeof *to);
  memset(to + s->num_blocks, 0, (size_t)(width - s->num_blocks) * sizeof *to);
}

static tg_status upload(tg_engine *e, int64_t count)
{
  const size_t bytes = (size_t)count * sizeof(int32_t);
  return e->on_gpu
             ? tg_memory_copy(e->ctx, e->inputs.all.data, bytes, e->inputs.host, bytes, bytes, 1)
             : TG_OK;
}

static tgi_page_group view_group(const tg_engine *e, int64_t first, int64_t count, int64_t table,
                                 int64_t width)
{
  tgi_page_group g = {.first = first,
                      .count = count,
                      .block_table = input_view(e, table, count),
                      .key_count = input_view(e, input_at(e, kKeyCounts) + first, count)};
  g.block_table = tg_tensor_2d(g.block_table.data, TG_I32, count, width);
  return g;
}

/* ---- passes ---- */

static tgi_pass make_pass(tg_engine *e, int64_t batch, int64_t seq)
{
  e->pages.group = e->group;
  e->pages.slots = input_view(e, input_at(e, kSlots), batch * seq);
  return (tgi_pass){.ctx = e->ctx,
                    .model = &e->model,
                    .a = &e->a,
                    .batch = batch,
                    .seq = seq,
                    .ids = input_view(e, input_at(e, kIds), batch * seq),
                    .rope = e->rope,
                    .cache = e->cache,
                    .cast = e->cache_dtype == e->model.dtype ? NULL : &e->cast,
                    .pages = &e->pages,
                    .workspace = e->workspace,
                    .workspace_bytes = e->workspace_bytes};
}

/* A table with a row a sequence, as [rows, 1, width]. */
static tg_tensor by_sequence(const tg_tensor *table, int64_t rows)
{
  const int64_t shape[] = {rows, 1, table->shape[2]};
  return table->ndim ? tg_tensor_view(table->data, table->dtype, 3, shape) : *table;
}

static tgi_pass rows_pass(tg_engine *e, int64_t rows)
{
  tgi_pass pass = make_pass(e, rows, 1);
  e->pages.positions = input_view(e, input_at(e, kPositions), rows);
  e->pages.every = e->rope;
  pass.rope = (tgi_rope_tables){by_sequence(&e->row.cos, rows), by_sequence(&e->row.sin, rows)};
  return pass;
}

static tgi_pass prompt_pass(tg_engine *e, int64_t past, int64_t count, int64_t width)
{
  tgi_pass pass = make_pass(e, 1, count);
  e->pages.positions = (tg_tensor){.data = NULL};
  e->pages.num_groups = 1;
  e->group[0] = view_group(e, 0, 1, input_at(e, kTables), width);
  pass.ctx = e->prompts;
  pass.past = past;
  return pass;
}

static void bind(tg_engine *e, int64_t batch, int64_t seq, int64_t logit_rows)
{
  tgi_memory_plan plan = {e->block, 0};
  tgi_engine_lay_out(e, &plan, batch, seq, logit_rows);
}

/* By width, and by age among equals; there are at most 64. */
static void sort_rows(tgi_step_plan *plan)
{
  for (int32_t i = 1; i < plan->num_rows; i++) {
    tgi_sequence *s = plan->row[i];
    int32_t at = i;
    for (; at > 0 && table_width(plan->row[at - 1]->length + 1) > table_width(s->length + 1);
         at--) {
      plan->row[at] = plan->row[at - 1];
    }
    plan->row[at] = s;
  }
}

/* Tables and groups of the plan's rows; returns the end of what is to be uploaded. */
static int64_t write_groups(tg_engine *e, const tgi_step_plan *plan)
{
  int64_t end = input_at(e, kTables);
  e->pages.num_groups = 0;
  for (int32_t first = 0, i = 0; first < plan->num_rows; first = i) {
    const int64_t width = table_width(plan->row[first]->length + 1), begin = end;
    for (; i < plan->num_rows && table_width(plan->row[i]->length + 1) == width; i++) {
      write_table(e->inputs.host + end, plan->row[i], width);
      end += width;
    }
    e->group[e->pages.num_groups++] = view_group(e, first, i - first, begin, width);
  }
  return end;
}

tg_status tgi_engine_run_rows(tg_engine *e, tgi_step_plan *plan)
{
  int32_t *in = e->inputs.host;
  sort_rows(plan);
  for (int32_t i = 0; i < plan->num_rows; i++) {
    const tgi_sequence *s = plan->row[i];
    in[input_at(e, kIds) + i] = s->ids[s->length];
    in[input_at(e, kPositions) + i] = (int32_t)s->length;
    in[input_at(e, kSlots) + i] = slot_of(s, s->length);
    in[input_at(e, kKeyCounts) + i] = (int32_t)s->length + 1;
  }
  bind(e, plan->num_rows, 1, plan->num_rows);
  tgi_pass pass = rows_pass(e, plan->num_rows);
  const tg_status status = upload(e, write_groups(e, plan));
  return status ? status : tgi_engine_run_recorded(e, &pass);
}

tg_status tgi_engine_run_prompt(tg_engine *e, const tgi_step_plan *plan)
{
  const tgi_sequence *s = plan->prompt;
  const int64_t count = plan->count, end = s->length + count, width = table_width(end);
  int32_t *in = e->inputs.host;
  for (int64_t i = 0; i < count; i++) {
    in[input_at(e, kIds) + i] = s->ids[s->length + i];
    in[input_at(e, kSlots) + i] = slot_of(s, s->length + i);
  }
  in[input_at(e, kKeyCounts)] = (int32_t)end;
  write_table(in + input_at(e, kTables), s, width);
  bind(e, 1, count, end == s->known);
  tgi_pass pass = prompt_pass(e, s->length, count, width);
  const tg_status status = upload(e, input_at(e, kTables) + width);
  return status ? status : tgi_transformer_forward(&pass);
}

/* ---- sizing ---- */

static tg_status size(tg_engine *e, tgi_pass *pass)
{
  pass->sizing = true;
  pass->workspace_bytes = e->workspace_bytes;
  const tg_status status = tgi_transformer_forward(pass);
  e->workspace_bytes = pass->workspace_bytes;
  return status;
}

static tg_status size_rows(tg_engine *e, int64_t rows, int64_t width)
{
  const tg_sampling how = {.temperature = 1};
  tgi_memory_plan plan = {NULL, 0};
  tgi_engine_lay_out(e, &plan, rows, 1, rows);
  tgi_pass pass = rows_pass(e, rows);
  e->pages.num_groups = 1;
  e->group[0] = view_group(e, 0, rows, input_at(e, kTables), width);
  tg_status status = size(e, &pass);
  pass.workspace_bytes = e->workspace_bytes;
  status = status ? status : tgi_engine_sample(e, &pass, &how, 0, rows, e->pages.positions, 1);
  e->workspace_bytes = pass.workspace_bytes;
  return status;
}

static tg_status size_prompt(tg_engine *e, int64_t count, int64_t width)
{
  tgi_memory_plan plan = {NULL, 0};
  tgi_engine_lay_out(e, &plan, 1, count, 1);
  const int64_t most = e->scheduler.most_tokens, end = width * TG_BLOCK_TOKENS;
  tgi_pass pass = prompt_pass(e, (end < most ? end : most) - count, count, width);
  return size(e, &pass);
}

tg_status tgi_engine_size_workspace(tg_engine *e)
{
  const tgi_scheduler *s = &e->scheduler;
  tg_status status = TG_OK;
  e->workspace_bytes = 0;
  for (int64_t width = table_width(1); status == TG_OK; width *= 2) {
    const bool last = width >= table_width(s->most_tokens);
    const int64_t fits = s->most_tokens < s->piece ? s->most_tokens : s->piece;
    for (int64_t n = 1; n <= s->batch && status == TG_OK; n++) {
      status = size_rows(e, n, width);
    }
    for (int64_t n = 1; n <= fits && status == TG_OK; n++) {
      status = size_prompt(e, n, width);
    }
    if (last) {
      break;
    }
  }
  return status;
}
