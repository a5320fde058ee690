/**
 * Documents in rows of a batch.
 *
 * A document of n tokens has n - 1 pairs of a token and its target, the token that follows. A row
 * holds pieces, each some pairs of one document, one behind another. Every pair of a document is in
 * one piece, but for what is cut off and for pieces without a target that counts.
 */
#ifndef TGI_DATA_PACKING_H
#define TGI_DATA_PACKING_H

#include "token_store.h"

typedef enum tgi_packing {
  TGI_PACK_OFF,       /* one piece in a row */
  TGI_PACK_CONCAT,    /* no rows: the store is one stream, cut anywhere */
  TGI_PACK_DOCUMENTS, /* several pieces in a row */
} tgi_packing;

/** What is done with a document of more pairs than a row has. */
typedef enum tgi_long_documents {
  TGI_LONG_CUT,    /* its end is left out */
  TGI_LONG_SPLIT,  /* it is cut into pieces, each a full row but the last */
  TGI_LONG_REFUSE, /* an error */
} tgi_long_documents;

/** By the names of the options: off, concat, documents; cut, split, error. False for others. */
bool tgi_packing_of(const char *name, tgi_packing *packing);
bool tgi_long_documents_of(const char *name, tgi_long_documents *rule);

/** Pairs first .. first + count - 1 of the store: token i and target i + 1. */
typedef struct tgi_piece {
  int64_t first;
  int32_t count;
} tgi_piece;

typedef struct tgi_pack_options {
  tgi_packing packing; /* OFF or DOCUMENTS */
  tgi_long_documents rule;
  int64_t first, count; /* documents of the store */
  int32_t row_length;   /* pairs */
  uint64_t seed;        /* which of equally long pieces are put together */
} tgi_pack_options;

/** Zeroed: none. */
typedef struct tgi_rows {
  tgi_piece *pieces; /* row after row */
  int64_t num_pieces;
  int64_t *begins; /* [num_rows + 1]: a row's first piece */
  int64_t num_rows;
  int32_t row_length;
  int32_t most_pieces; /* of a row */
  int64_t num_pairs, num_targets;
  int64_t long_documents; /* that were cut or split */
  int64_t pairs_cut;      /* that were left out of them */
  int64_t left_out;       /* pieces without targets */
} tgi_rows;

/**
 * Packs by best fit, the longest pieces first: a piece goes into the row that it leaves the least
 * room in (Johnson 1974). Depends on nothing but the options and the store. Errors: NO_MEMORY,
 * BAD_FILE (a document that is too long, by its number from 1).
 */
tg_status tgi_rows_pack(const tgi_token_store *store, const tgi_pack_options *options,
                        tgi_rows *rows, tg_error *error);

void tgi_rows_free(tgi_rows *rows);

#endif
