/**
 * The progress line of a training run, on standard error. On a terminal it is rewritten in place.
 * Elsewhere one line is printed for every twentieth of the run. With `quiet` nothing is printed.
 *
 *   step 12/200 | loss 2.3456 | norm 1.23 | lr 3.00e-04 | 123 ms | 16650 tok/s | ETA 0:23
 */
#ifndef TGI_CLI_PROGRESS_H
#define TGI_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tgi_progress {
  bool live, quiet, dirty; /* dirty: the terminal's line holds progress */
  int64_t num_steps, every, tokens_per_step;
  double mean_seconds; /* of a step, exponential moving average; 0: none yet */
} tgi_progress;

typedef struct tgi_progress_step {
  int64_t step; /* from 1 */
  double loss, grad_norm, learning_rate, seconds;
  double aux_loss; /* of routers; 0: none, and it is not shown */
} tgi_progress_step;

tgi_progress tgi_progress_start(bool quiet, int64_t num_steps, int64_t tokens_per_step);

void tgi_progress_show(tgi_progress *progress, const tgi_progress_step *step);

/** Prints a separate line between progress lines. */
void tgi_progress_say(tgi_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Ends the last progress line, so that it stays visible. */
void tgi_progress_end(tgi_progress *progress);

#endif
