#include "rope_tables.h"

#include "core/error_record.h"
#include "tegula/device.h"
#include <stdlib.h>

void tgi_rope_tables_lay_out(tgi_rope_tables *tables, tgi_memory_plan *plan,
                             const tgi_config *config, int64_t positions)
{
  *tables = (tgi_rope_tables){.cos = {.data = NULL}};
  if (config->position == TGI_ROPE) {
    tables->cos = tgi_take_3d(plan, TG_F32, 1, positions, config->head_dim / 2);
    tables->sin = tgi_take_3d(plan, TG_F32, 1, positions, config->head_dim / 2);
  }
}

static tg_status copy_tables(const tgi_rope_tables *to, const tgi_rope_tables *from, size_t bytes,
                             tg_context *ctx, tg_error *error)
{
  tg_status status = tg_memory_copy(ctx, to->cos.data, bytes, from->cos.data, bytes, bytes, 1);
  if (status == TG_OK) {
    status = tg_memory_copy(ctx, to->sin.data, bytes, from->sin.data, bytes, bytes, 1);
  }
  return status ? tgi_error_set(error, status, "rope tables: %s", tg_context_message(ctx)) : TG_OK;
}

tg_status tgi_rope_tables_fill(const tgi_rope_tables *tables, const tgi_config *config,
                               tg_context *ctx, tg_error *error)
{
  if (config->position != TGI_ROPE) {
    return TG_OK;
  }
  tg_rope_parameters parameters = config->rope;
  parameters.rotary_dim = config->head_dim;
  parameters.max_position_embeddings = config->max_position_embeddings;
  tgi_memory_plan plan = {NULL, 0};
  tgi_rope_tables here;
  tgi_rope_tables_lay_out(&here, &plan, config, tables->cos.shape[1]);
  plan = (tgi_memory_plan){malloc(plan.bytes), 0};
  if (!plan.block) {
    return tgi_error_set(error, TG_NO_MEMORY, "rope tables: expected memory, got none");
  }
  char *const block = plan.block;
  tgi_rope_tables_lay_out(&here, &plan, config, tables->cos.shape[1]);
  tg_status status = tg_rope_table(&parameters, TG_ROPE_HALVES, 0, here.cos, here.sin, error);
  if (status == TG_OK) {
    const size_t bytes = (size_t)(here.cos.shape[1] * here.cos.shape[2]) * sizeof(float);
    status = copy_tables(tables, &here, bytes, ctx, error);
  }
  free(block);
  return status;
}
