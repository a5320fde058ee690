/** The tables of cosines and sines that rope reads, for every position of a session or trainer. */
#ifndef TGI_MODEL_ROPE_TABLES_H
#define TGI_MODEL_ROPE_TABLES_H

#include "memory_plan.h"
#include "model/config/config.h"

/** f32 [1, positions, head_dim / 2]; zeroed views for a model without rope. */
typedef struct tgi_rope_tables {
  tg_tensor cos, sin;
} tgi_rope_tables;

void tgi_rope_tables_lay_out(tgi_rope_tables *tables, tgi_memory_plan *plan,
                             const tgi_config *config, int64_t positions);

/** Writes the rows from position `first` on, into memory of the context's device. Errors: those of
 * tg_rope_table, NO_MEMORY, DEVICE. */
tg_status tgi_rope_tables_fill(const tgi_rope_tables *tables, int64_t first,
                               const tgi_config *config, tg_context *ctx, tg_error *error);

#endif
