/**
 * Shape strings: one grammar for test cases, benchmark rows and `tegula explain`.
 *
 *   16384x4096                        extents
 *   b1_h32_kv8_s4096_d128_causal      keys with a number, and flags
 *   16384x4096_gptoss_wf32            both
 *
 * Each op reads its own strings in <op>_shape.c: it fills the views of an args struct with dtypes
 * and shapes (no memory), sets the scalars, and says what the call costs.
 */
#ifndef TGI_OPS_SHAPE_H
#define TGI_OPS_SHAPE_H

#include "ops/kernels.h"

enum { TGI_SHAPE_MAX_WORDS = 24, TGI_SHAPE_MAX_TEXT = 160, TGI_SHAPE_MAX_LISTED = 64 };

typedef struct tgi_shape {
  tg_dtype dtype;                /* of the activations */
  char text[TGI_SHAPE_MAX_TEXT]; /* the words, each terminated */
  const char *word[TGI_SHAPE_MAX_WORDS];
  bool used[TGI_SHAPE_MAX_WORDS];
  int num_words;
  tg_tensor *listed; /* room for the elements of tensor lists */
  int num_listed;
  tg_error error; /* of the first thing that was wrong */
} tgi_shape;

/** What a call moves and computes: bytes of each tensor that it needs once, of one that it reads
 * and writes twice; 2 flops per fma. */
typedef struct tgi_cost {
  double read_bytes, written_bytes, flops;
} tgi_cost;

/** Bytes of a tensor's elements. */
double tgi_cost_bytes(const tg_tensor *t);

/** Extent `axis` of the word of extents ("16384x4096"); missing is an error. */
int64_t tgi_shape_extent(tgi_shape *s, int axis);

/** Number behind a key ("h" in "h32"); `fallback` if the word is absent. */
int64_t tgi_shape_number(tgi_shape *s, const char *key, int64_t fallback);

/** The same for a number below 2^31; a larger one is an error. */
int32_t tgi_shape_i32(tgi_shape *s, const char *key, int32_t fallback);

/** True if the word is there. */
bool tgi_shape_flag(tgi_shape *s, const char *word);

/** Room for a list of `n` tensors, zeroed, that lives as long as the args struct. */
tg_tensor *tgi_shape_list(tgi_shape *s, int64_t n);

/** Functions that <op>_shape.c defines for each direction. */
#define OP(op, dir, ws)                                                                            \
  extern const char tgi_##op##_##dir##_syntax[];                                                   \
  void tgi_##op##_##dir##_shape(tgi_shape *s, tg_##op##_##dir##_args *args);                       \
  void tgi_##op##_##dir##_cost(const tg_##op##_##dir##_args *args, tgi_cost *cost);
#include "ops/ops.def"

enum { TGI_ARGS_MAX_BYTES = 4096 };

/** An args struct of any op, filled from a shape string. */
typedef struct tgi_shaped {
  const tg_op_info *info;
  union {
    max_align_t align;
    unsigned char bytes[TGI_ARGS_MAX_BYTES];
  } args;
  tg_tensor listed[TGI_SHAPE_MAX_LISTED]; /* elements of tensor lists */
  tgi_cost cost; /* bytes from the slots unless the op knows better; flops from the op */
} tgi_shaped;

/** Errors: BAD_ARGUMENT (no such op; malformed, missing or unknown word, with the syntax; a tensor
 * of 2^47 bytes or more). */
tg_status tgi_shape_fill(const char *op_dir, const char *text, tg_dtype dtype, tgi_shaped *out,
                         tg_error *error);

/** What a call with these args moves and computes; `args` are those of info->run. Without memory
 * for the count all are 0. */
tgi_cost tgi_cost_of(const tg_op_info *info, const void *args);

/** The line of syntax of row "rms_norm_fwd"; NULL if there is no such row. */
const char *tgi_shape_syntax(const char *op_dir);

/**
 * Gives the tensors addresses apart from each other, as those of a call have. Nothing is there:
 * this is for plans, which compare addresses and compute with them.
 */
void tgi_shaped_place(tgi_shaped *shaped);

/** How the context's first kernel would run the call, one that op->workspace takes: one line. */
void tgi_shape_explain(const tg_context *ctx, const tgi_shaped *shaped, char *text, size_t bytes);

/** Copies; the lists of the copy are its own. */
void tgi_shaped_copy(tgi_shaped *to, const tgi_shaped *from);

/** A tensor of an args struct: a TENSOR slot, or one element of a LIST. */
typedef struct tgi_shaped_view {
  const tg_slot_info *slot;
  int64_t index; /* in a list; -1: not a list */
  tg_tensor *tensor;
} tgi_shaped_view;

/** The present tensors of an args struct, in the order of its slots; returns their number. */
int tgi_shaped_views(tgi_shaped *shaped, tgi_shaped_view *views, int capacity);

/** View that slot `name` of a shaped args struct holds; NULL if there is no such tensor slot. */
tg_tensor *tgi_shaped_tensor(tgi_shaped *shaped, const char *name);

#endif
