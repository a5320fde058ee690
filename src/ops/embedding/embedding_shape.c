#include "ops/shape.h"

/* One syntax for both directions: a backward's case is also read by its forward. p: rows of
 * positions (none without), s: seq_len, o: position_offset. */
#define SYNTAX                                                                                     \
  "TOKENSxVOCABxDIM[_pROWS[_sLEN][_oOFFSET][_pids]][_i32][_nodtable][_nodpositions][_df32]"

const char tgi_embedding_fwd_syntax[] = SYNTAX;
const char tgi_embedding_bwd_syntax[] = SYNTAX;

static tg_tensor ids_view(tgi_shape *s)
{
  return tg_tensor_1d(NULL, tgi_shape_flag(s, "i32") ? TG_I32 : TG_I64, tgi_shape_extent(s, 0));
}

void tgi_embedding_fwd_shape(tgi_shape *s, tg_embedding_fwd_args *a)
{
  const int64_t dim = tgi_shape_extent(s, 2), rows = tgi_shape_number(s, "p", 0);
  a->ids = ids_view(s);
  a->table = tg_tensor_2d(NULL, s->dtype, tgi_shape_extent(s, 1), dim);
  if (rows > 0) {
    a->positions = tg_tensor_2d(NULL, s->dtype, rows, dim);
  }
  if (tgi_shape_flag(s, "pids")) {
    a->position_ids = ids_view(s);
  }
  a->y = tg_tensor_2d(NULL, s->dtype, a->ids.shape[0], dim);
  a->seq_len = tgi_shape_number(s, "s", 0);
  a->position_offset = tgi_shape_number(s, "o", 0);
  (void)tgi_shape_flag(s, "nodtable"), (void)tgi_shape_flag(s, "nodpositions");
  (void)tgi_shape_flag(s, "df32");
}

/* A gather reads one row of the table for each token, whatever the table's size. */
void tgi_embedding_fwd_cost(const tg_embedding_fwd_args *a, tgi_cost *cost)
{
  const double elements = (double)tgi_numel(&a->y);
  const double bytes = elements * (double)tg_dtype_bytes(a->y.dtype);
  const bool positions = tgi_present(&a->positions);
  cost->read_bytes =
      bytes * (positions ? 2 : 1) + (double)a->ids.shape[0] * (double)tg_dtype_bytes(a->ids.dtype);
  cost->flops = positions ? elements : 0;
}

void tgi_embedding_bwd_shape(tgi_shape *s, tg_embedding_bwd_args *a)
{
  const int64_t dim = tgi_shape_extent(s, 2), rows = tgi_shape_number(s, "p", 0);
  const tg_dtype sums = tgi_shape_flag(s, "df32") ? TG_F32 : s->dtype;
  a->ids = ids_view(s);
  a->dy = tg_tensor_2d(NULL, s->dtype, a->ids.shape[0], dim);
  if (tgi_shape_flag(s, "pids")) {
    a->position_ids = ids_view(s);
  }
  if (!tgi_shape_flag(s, "nodtable")) {
    a->dtable = tg_tensor_2d(NULL, sums, tgi_shape_extent(s, 1), dim);
  }
  const bool positions = !tgi_shape_flag(s, "nodpositions");
  if (rows > 0 && positions) {
    a->dpositions = tg_tensor_2d(NULL, sums, rows, dim);
  }
  a->seq_len = tgi_shape_number(s, "s", 0);
  a->position_offset = tgi_shape_number(s, "o", 0);
}

/* At most one row of the accumulators is read and written for each token. */
void tgi_embedding_bwd_cost(const tg_embedding_bwd_args *a, tgi_cost *cost)
{
  const double elements = (double)tgi_numel(&a->dy);
  const tg_tensor *sums[2] = {&a->dtable, &a->dpositions};
  cost->read_bytes = elements * (double)tg_dtype_bytes(a->dy.dtype);
  cost->written_bytes = 0;
  for (int k = 0; k < 2; k++) {
    if (tgi_present(sums[k])) {
      const double size = (double)tgi_numel(sums[k]);
      const double bytes =
          (size < elements ? size : elements) * (double)tg_dtype_bytes(sums[k]->dtype);
      cost->read_bytes += bytes;
      cost->written_bytes += bytes;
      cost->flops += elements;
    }
  }
}
