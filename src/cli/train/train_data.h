/**
 * The data of a training run: files as tokens, what is set aside for validation, and batches of
 * them, as one stream or as packed rows.
 */
#ifndef TGI_CLI_TRAIN_DATA_H
#define TGI_CLI_TRAIN_DATA_H

#include "cli/progress.h"
#include "data/batches.h"
#include "data/corpus.h"
#include "train_options.h"

/** A part of a corpus: what is trained on, or what is validated on. */
typedef struct tgi_data_part {
  const tgi_token_store *store;
  tgi_stream stream;        /* of packing concat */
  int64_t first, documents; /* of other packings */
  tgi_rows rows;            /* the same, once they are packed */
  int64_t tokens;           /* 0: there is none */
} tgi_data_part;

/** Zeroed: none. */
typedef struct tgi_train_data {
  tgi_corpus train_corpus, val_corpus;
  tgi_packing packing;
  tgi_data_part train, val;
  double val_bytes; /* mean bytes of text of a target of `val` */
  tgi_batch_shape shape;
  tgi_batch batch;
  char date[16]; /* today, where a template asks for it and --date does not say */
} tgi_train_data;

/**
 * Loads --train-file and --val-file, and splits what is for validation off. Options that follow
 * from the data are filled in: --pack, --long-documents and --date. A --template that conversations
 * were made with is kept beside the tokenizer, to be saved with it. Errors: those of
 * tgi_corpus_load, BAD_ARGUMENT (--template-arg).
 */
tg_status tgi_train_data_load(tgi_train_data *data, tgi_train_options *options,
                              tg_tokenizer *tokenizer, tg_error *error);

/** Packs rows and takes memory for a batch, once --seq is known. Errors: BAD_FILE (too little
 * data), NO_MEMORY. */
tg_status tgi_train_data_pack(tgi_train_data *data, const tgi_train_options *options,
                              const tg_tokenizer *tokenizer, tg_error *error);

/** Says what was found, and how it is packed. */
void tgi_train_data_describe(const tgi_train_data *data, const tgi_train_options *options,
                             tgi_progress *progress);

/** Documents that a row may have, for the trainer. */
int32_t tgi_train_data_most_documents(const tgi_train_data *data);

/** Fills data->batch for step `step`, from 0. */
tg_train_batch tgi_train_data_step(tgi_train_data *data, uint64_t seed, int64_t step);

int64_t tgi_train_data_evaluations(const tgi_train_data *data);

/** Fills data->batch with batch `index` of the validation; *scored is how many targets count. */
tg_train_batch tgi_train_data_evaluate(tgi_train_data *data, int64_t index, int64_t *scored);

void tgi_train_data_free(tgi_train_data *data);

#endif
