/**
 * Normalisation form C (Unicode Standard Annex 15) as Hugging Face's tokenizers have it: that of
 * Unicode 9. utf8proc does the work, on the stretches of a text that hold anything to be done. As
 * it knows a newer Unicode, it sees code points of the table alone, which Unicode's stability
 * policy keeps as they are.
 */
#ifndef TGI_TEXT_NFC_H
#define TGI_TEXT_NFC_H

#include "point_map.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A stretch of a text, and what it became. Between them text is copied. */
typedef struct tgi_nfc_edit {
  size_t from, to;         /* in the text */
  size_t out_from, out_to; /* in what comes out */
} tgi_nfc_edit;

/** Memory of calls, to be reused; starts zeroed, ends with tgi_nfc_free. */
typedef struct tgi_nfc {
  char *text; /* the normalised text */
  size_t size, capacity;
  tgi_nfc_edit *edits;
  size_t num_edits, edit_capacity;
  int32_t *points, *spare;
  size_t point_capacity, spare_capacity;
} tgi_nfc;

/**
 * Normalises valid UTF-8. *changed says whether anything had to be looked at: if not, the text is
 * normalised as it stands, and `nfc` holds no copy. False without memory. `map` is of
 * tgi_nfc_points.
 */
bool tgi_nfc_normalise(tgi_nfc *nfc, const tgi_point_map *map, const char *text, size_t size,
                       bool *changed);

void tgi_nfc_free(tgi_nfc *nfc);

#endif
