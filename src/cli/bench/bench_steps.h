/** Timed steps of training, prefill and decoding, and forward passes. */
#ifndef TGI_CLI_BENCH_STEPS_H
#define TGI_CLI_BENCH_STEPS_H

#include "cli/option_table.h"
#include "tegula/model.h"

typedef struct tgi_bench_steps {
  const char *name, *device_name;
  tg_dtype dtype, training_dtype; /* of weights; of a training step's passes */
  tg_dtype logits_dtype;          /* of forward; 0: f32 */
  int32_t batch, seq, steps, threads;
  tgi_run_device device;
  bool json;
  bool ops;  /* of forward: the time of each op, too */
  bool nvtx; /* marks for a profiler; not in training */
} tgi_bench_steps;

/** Whether it is "train", "prefill", "decode" or "forward". */
bool tgi_bench_is_step(const char *mode);

/** Times and prints one mode, or with NULL all but forward; the model's weights may end in another
 * dtype. Errors: those of sessions and trainers, BAD_ARGUMENT (more tokens than positions),
 * NO_MEMORY. */
tg_status tgi_bench_steps_run(const tgi_bench_steps *o, const char *mode, tg_model *model,
                              tg_error *error);

#endif
