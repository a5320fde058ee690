/** How weight files hold parameters: by name, maybe without a prefix, maybe in blocks of MXFP4. */
#ifndef TGI_MODEL_WEIGHTS_HELD_H
#define TGI_MODEL_WEIGHTS_HELD_H

#include "weights.h"

/** The tensor of a parameter's name, which may lack the prefix "transformer." or "model."; NULL. */
const tgi_file_tensor *tgi_held_find(const tgi_weight_files *files, const char *name);

/** BAD_FILE: no tensor of that name; a tensor of another dtype or shape. */
tg_status tgi_held_refuse_missing(const tgi_weight_files *files, const char *name, tg_error *error);
tg_status tgi_held_refuse(const char *path, const char *name, const char *dtypes, int ndim,
                          const int64_t *shape, const tgi_file_tensor *t, tg_error *error);

/**
 * MXFP4 (OCP Microscaling Formats 1.0), as checkpoints of GPT-OSS hold the matrices of experts: 32
 * values of a row share a scale, which is a power of two, and have 4 bits each.
 *
 *   <name>_blocks [experts, out, in / 32, 16]  u8   value 2i in the low bits of byte i
 *   <name>_scales [experts, out, in / 32]      u8   the exponent + 127
 *
 * Rows run along `in`, while files with other elements hold [experts, in, out].
 */
bool tgi_mxfp4_is_held(const tgi_parameter *q, const tgi_weight_files *files);

/** Claims both tensors. Errors: BAD_FILE. */
tg_status tgi_mxfp4_check(const tgi_parameter *q, tgi_weight_files *files, tg_error *error);

/**
 * Writes the values of a checked parameter to a block, [experts, in, out], with the numbers that
 * transformers gives them: those beyond the dtype are infinite. Errors: NO_MEMORY.
 */
tg_status tgi_mxfp4_read(tg_context *ctx, const tgi_parameter *q, const tgi_weight_files *files,
                         void *block, tg_dtype dtype, tg_error *error);

/**
 * Packs the blocks and scales of a checked parameter, as they are, for grouped_linear_mxfp4.
 * Errors: UNSUPPORTED (a scale above 252, whose values f32 does not have).
 */
tg_status tgi_mxfp4_pack(const tgi_parameter *q, const tgi_weight_files *files, void *packed,
                         tg_error *error);

#endif
