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

/* Rows of `from` to those of `to` that begin at position `first`. */
static tg_status copy_rows(const tg_tensor *to, int64_t first, const tg_tensor *from,
                           tg_context *ctx)
{
  const int64_t width = from->shape[2];
  const size_t bytes = (size_t)(from->shape[1] * width) * sizeof(float);
  return tg_memory_copy(ctx, (float *)to->data + first * width, bytes, from->data, bytes, bytes, 1);
}

tg_status tgi_rope_tables_fill(const tgi_rope_tables *tables, int64_t first,
                               const tgi_config *config, tg_context *ctx, tg_error *error)
{
  const int64_t rows = tables->cos.shape[1] - first;
  if (config->position != TGI_ROPE || rows == 0) {
    return TG_OK;
  }
  tg_rope_parameters parameters = config->rope;
  parameters.rotary_dim = config->head_dim;
  parameters.max_position_embeddings = config->max_position_embeddings;
  tgi_memory_plan plan = {NULL, 0};
  tgi_rope_tables here;
  tgi_rope_tables_lay_out(&here, &plan, config, rows);
  plan = (tgi_memory_plan){malloc(plan.bytes), 0};
  if (!plan.block) {
    return tgi_error_set(error, TG_NO_MEMORY, "rope tables: expected memory, got none");
  }
  char *const block = plan.block;
  tgi_rope_tables_lay_out(&here, &plan, config, rows);
  tg_status status = tg_rope_table(&parameters, TG_ROPE_HALVES, first, here.cos, here.sin, error);
  if (status == TG_OK) {
    status = copy_rows(&tables->cos, first, &here.cos, ctx);
    status = status ? status : copy_rows(&tables->sin, first, &here.sin, ctx);
    status =
        status ? tgi_error_set(error, status, "rope tables: %s", tg_context_message(ctx)) : TG_OK;
  }
  free(block);
  return status;
}
