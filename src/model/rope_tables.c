#include "rope_tables.h"

void tgi_rope_tables_lay_out(tgi_rope_tables *tables, tgi_memory_plan *plan,
                             const tgi_config *config, int64_t positions)
{
  *tables = (tgi_rope_tables){.cos = {.data = NULL}};
  if (config->position == TGI_ROPE) {
    tables->cos = tgi_take_3d(plan, TG_F32, 1, positions, config->head_dim / 2);
    tables->sin = tgi_take_3d(plan, TG_F32, 1, positions, config->head_dim / 2);
  }
}

tg_status tgi_rope_tables_fill(const tgi_rope_tables *tables, const tgi_config *config,
                               tg_error *error)
{
  if (config->position != TGI_ROPE) {
    return TG_OK;
  }
  tg_rope_parameters parameters = config->rope;
  parameters.rotary_dim = config->head_dim;
  parameters.max_position_embeddings = config->max_position_embeddings;
  return tg_rope_table(&parameters, TG_ROPE_HALVES, 0, tables->cos, tables->sin, error);
}
