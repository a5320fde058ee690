#include "ops/cross_entropy/cross_entropy_call.h"
#include "ops/shared/loss/loss_words.h"

/* One syntax for all directions: a backward's case is also read by its forward. */
#define SYNTAX "ROWSxVOCAB" LOSS_WORDS_SYNTAX "[_all][_nodloss]"

const char tgi_cross_entropy_fwd_syntax[] = SYNTAX;
const char tgi_cross_entropy_bwd_syntax[] = SYNTAX;
const char tgi_cross_entropy_fwdbwd_syntax[] = SYNTAX;

/* The largest direction; the others leave something away. Every word is read. */
static tg_cross_entropy_fwdbwd_args read_all(tgi_shape *s)
{
  const int64_t rows = tgi_shape_extent(s, 0), vocab = tgi_shape_extent(s, 1);
  const loss_words w = read_loss_words(s, rows);
  tg_cross_entropy_fwdbwd_args a = {
      .logits = tg_tensor_2d(NULL, s->dtype, rows, vocab),
      .targets = w.targets,
      .num_items = w.num_items,
      .loss = tg_tensor_1d(NULL, TG_F32, w.reduction == TG_REDUCTION_NONE ? rows : 1),
      .dlogits = tg_tensor_2d(NULL, s->dtype, rows, vocab),
      .ignore_index = w.ignore_index,
      .num_items_in_batch = w.num_items_in_batch,
      .label_smoothing = w.label_smoothing,
      .z_loss = w.z_loss,
      .softcap = w.softcap,
      .reduction = w.reduction,
      .has_ignore_index = w.has_ignore_index,
  };
  if (tgi_shape_flag(s, "all")) {
    a.token_loss = a.log_prob = a.lse = tg_tensor_1d(NULL, TG_F32, rows);
    a.argmax = tg_tensor_1d(NULL, w.targets.dtype, rows);
  }
  if (!tgi_shape_flag(s, "nodloss")) {
    a.dloss = a.loss;
  }
  return a;
}

void tgi_cross_entropy_fwd_shape(tgi_shape *s, tg_cross_entropy_fwd_args *a)
{
  const tg_cross_entropy_fwdbwd_args all = read_all(s);
  *a = forward_of(&all);
}

void tgi_cross_entropy_bwd_shape(tgi_shape *s, tg_cross_entropy_bwd_args *a)
{
  const tg_cross_entropy_fwdbwd_args all = read_all(s);
  *a = backward_of(&all);
  a->lse = tg_tensor_1d(NULL, TG_F32, all.logits.shape[0]);
}

void tgi_cross_entropy_fwdbwd_shape(tgi_shape *s, tg_cross_entropy_fwdbwd_args *a)
{
  *a = read_all(s);
}

/* Of each direction. */
static double pass_flops(const tg_tensor *logits)
{
  return 20.0 * (double)tgi_numel(logits);
}

void tgi_cross_entropy_fwd_cost(const tg_cross_entropy_fwd_args *a, tgi_cost *cost)
{
  cost->flops = pass_flops(&a->logits);
}

void tgi_cross_entropy_bwd_cost(const tg_cross_entropy_bwd_args *a, tgi_cost *cost)
{
  cost->flops = pass_flops(&a->logits);
}

void tgi_cross_entropy_fwdbwd_cost(const tg_cross_entropy_fwdbwd_args *a, tgi_cost *cost)
{
  cost->flops = 2 * pass_flops(&a->logits);
}
