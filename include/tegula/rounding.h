/** Where an op's forward rounds when its tensors are f16 or bf16. */
#ifndef TEGULA_ROUNDING_H
#define TEGULA_ROUNDING_H

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The contract of each op lists its steps. With f32 tensors both policies give the same bits unless
 * the contract says otherwise. A policy defines the forward bit for bit. The backward is the same
 * for both: f32 inside, with one rounding per result.
 */
typedef enum tg_rounding {
  TG_ROUNDING_HF = 1,   /* every step is rounded, as in the model's class in transformers */
  TG_ROUNDING_ONCE = 2, /* f32 inside, one rounding of the result */
} tg_rounding;

#ifdef __cplusplus
}
#endif
#endif
