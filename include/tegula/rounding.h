/** Where an op's forward rounds when its tensors are f16 or bf16. */
#ifndef TEGULA_ROUNDING_H
#define TEGULA_ROUNDING_H

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Each op's contract lists its steps. With f32 tensors both policies give the same bits unless the
 * contract says otherwise. Policies bind the forward bit for bit; backwards are f32 inside with one
 * rounding per result under either.
 */
typedef enum tg_rounding {
  TG_ROUNDING_HF = 1,   /* every step is rounded, as the class of Hugging Face transformers does */
  TG_ROUNDING_ONCE = 2, /* f32 inside, one rounding of the result */
} tg_rounding;

#ifdef __cplusplus
}
#endif
#endif
