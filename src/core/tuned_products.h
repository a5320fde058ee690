/**
 * Products that were measured on this machine (tg_tune_begin), and which candidate won: a table of
 * a context, kept in a file of the user's cache directory for each GPU, driver and build. Host code
 * alone, tested without a GPU.
 *
 * The file is text: a head that names GPU, driver and build, a line for each product, and a last
 * line with their number and a sum over all bytes before it. It is written beside its place and
 * renamed, so a reader meets a whole file or none. One that is damaged, or of another GPU, driver
 * or build, is ignored, and a text says why.
 */
#ifndef TGI_CORE_TUNED_PRODUCTS_H
#define TGI_CORE_TUNED_PRODUCTS_H

#include "tegula/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What multiplies a product: cublasLt, or tiles of so many columns. */
enum { TGI_TUNED_NONE = 0, TGI_TUNED_LT = 1 };

/** A product as a table has it. All of it is compared; there is no padding. */
typedef struct tgi_tuned_key {
  int64_t m, n, k;
  int32_t dtype, c_dtype, a_major, b_major;
  int32_t adds, finishes; /* finishes: 1 for an activation or saved values, 2 for old ones read */
} tgi_tuned_key;

typedef struct tgi_tuned_product {
  tgi_tuned_key key;
  int32_t candidate;  /* TGI_TUNED_LT, or a width of tiles; TGI_TUNED_NONE: a free place */
  float microseconds; /* whole nanoseconds in the file */
  bool fresh;         /* measured since tg_tune_begin; not in the file */
} tgi_tuned_product;

enum { TGI_TUNED_PLACES = 2048, TGI_TUNED_MOST = 1024, TGI_TUNED_PATH = 512 };

/** Whose measurements a table has. */
typedef struct tgi_tuned_owner {
  char gpu[128], driver[32], build[64];
} tgi_tuned_owner;

typedef struct tgi_tuned {
  tgi_tuned_owner owner;
  int count;
  char path[TGI_TUNED_PATH];      /* "": no cache directory */
  char why[TGI_TUNED_PATH + 160]; /* why the file was ignored; "": it was not, or there is none */
  tgi_tuned_product places[TGI_TUNED_PLACES];
} tgi_tuned;

/** The owner's table from its file, empty where there is none or it is ignored. NULL: no memory. */
tgi_tuned *tgi_tuned_open(const tgi_tuned_owner *owner);
void tgi_tuned_close(tgi_tuned *tuned);

/** The candidate of a product, or TGI_TUNED_NONE; NULL has none. */
int tgi_tuned_find(const tgi_tuned *tuned, const tgi_tuned_key *key);

/** True if it was measured since `fresh` was cleared. */
bool tgi_tuned_is_fresh(const tgi_tuned *tuned, const tgi_tuned_key *key);
void tgi_tuned_clear_fresh(tgi_tuned *tuned);

/** False: the table is full. */
bool tgi_tuned_put(tgi_tuned *tuned, const tgi_tuned_product *product);

/** Writes what is fresh to the file of the table, beside what others have written there since. Of
 * more than TGI_TUNED_MOST products together, some of the others' are left out. Errors: IO. */
tg_status tgi_tuned_save(const tgi_tuned *tuned, tg_error *error);

/** Which table a context goes by: "built in", or this one's file and number of products; why a file
 * was ignored. */
void tgi_tuned_text(const tgi_tuned *tuned, char *text, size_t bytes);

/** Removes all tables of the cache directory, of any GPU, driver and build. Errors: IO. */
tg_status tgi_tuned_clear(int64_t *removed, tg_error *error);

#ifdef __cplusplus
}
#endif
#endif
