/** `tegula train --show-data N`: what a run would be trained on. */
#ifndef TGI_CLI_TRAIN_SHOW_H
#define TGI_CLI_TRAIN_SHOW_H

#include "train_run.h"

/**
 * Prints the first documents as lines of JSON:
 *
 *   {"document":1,"text":"...","targets":["..."],"ids":[72,105],"counted":[0,1]}
 *
 * `targets` is the text of each stretch of tokens that count. Errors: those of loading the data.
 */
tg_status tgi_train_show(tgi_train_run *run, tg_error *error);

#endif
