#include "ops/cross_entropy/loss_words.h"

/* One syntax for both directions: a backward's case is also read by its forward. */
#define SYNTAX "ROWSxVOCAB" LOSS_WORDS_SYNTAX "[_all][_nodloss]"

const char tgi_cross_entropy_fwd_syntax[] = SYNTAX;
const char tgi_cross_entropy_bwd_syntax[] = SYNTAX;

void tgi_cross_entropy_fwd_shape(tgi_shape *s, tg_cross_entropy_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), vocab = tgi_shape_extent(s, 1);
  const loss_words w = read_loss_words(s, rows);
  *a = (tg_cross_entropy_fwd_args){
      .logits = tg_tensor_2d(NULL, s->dtype, rows, vocab),
      .targets = w.targets,
      .num_items = w.num_items,
      .loss = tg_tensor_1d(NULL, TG_F32, w.reduction == TG_REDUCTION_NONE ? rows : 1),
      .ignore_index = w.ignore_index,
      .num_items_in_batch = w.num_items_in_batch,
      .label_smoothing = w.label_smoothing,
      .z_loss = w.z_loss,
      .softcap = w.softcap,
      .reduction = w.reduction,
      .has_ignore_index = w.has_ignore_index,
  };
  if (tgi_shape_flag(s, "all")) {
    a->token_loss = a->log_prob = a->lse = tg_tensor_1d(NULL, TG_F32, rows);
    a->argmax = tg_tensor_1d(NULL, w.targets.dtype, rows);
  }
  (void)tgi_shape_flag(s, "nodloss");
}

void tgi_cross_entropy_fwd_cost(const tg_cross_entropy_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 20.0 * (double)tgi_numel(&a->logits);
}

void tgi_cross_entropy_bwd_shape(tgi_shape *s, tg_cross_entropy_bwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), vocab = tgi_shape_extent(s, 1);
  const loss_words w = read_loss_words(s, rows);
  *a = (tg_cross_entropy_bwd_args){
      .logits = tg_tensor_2d(NULL, s->dtype, rows, vocab),
      .targets = w.targets,
      .num_items = w.num_items,
      .lse = tg_tensor_1d(NULL, TG_F32, rows),
      .dlogits = tg_tensor_2d(NULL, s->dtype, rows, vocab),
      .ignore_index = w.ignore_index,
      .num_items_in_batch = w.num_items_in_batch,
      .label_smoothing = w.label_smoothing,
      .z_loss = w.z_loss,
      .softcap = w.softcap,
      .reduction = w.reduction,
      .has_ignore_index = w.has_ignore_index,
  };
  if (!tgi_shape_flag(s, "nodloss")) {
    a->dloss = tg_tensor_1d(NULL, TG_F32, w.reduction == TG_REDUCTION_NONE ? rows : 1);
  }
  (void)tgi_shape_flag(s, "all");
}

void tgi_cross_entropy_bwd_cost(const tg_cross_entropy_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 20.0 * (double)tgi_numel(&a->logits);
}
