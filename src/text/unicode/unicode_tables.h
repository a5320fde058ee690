/**
 * What Hugging Face's tokenizers know of Unicode, where PCRE2 and utf8proc know something else:
 * their classes are those of Unicode 16, their normalisation is that of Unicode 9. The tables are
 * written by scripts/unicode_tables.py; ranges are in order.
 */
#ifndef TGI_TEXT_UNICODE_TABLES_H
#define TGI_TEXT_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

typedef enum tgi_point_kind {
  TGI_POINT_NONE, /* not in the table */
  /* Of tgi_nfc_points: all that NFC (Unicode 9) does anything with. */
  TGI_POINT_CONVERT, /* may change, move, or join what stands before it */
  TGI_POINT_HEAD,    /* may be joined by what follows, or taken apart for it */
  /* Of tgi_late_points: code points that Unicode 14 does not assign, by their class in 16. */
  TGI_POINT_OTHER, /* in none of the following; most are not assigned at all */
  TGI_POINT_LU,
  TGI_POINT_LL,
  TGI_POINT_LT,
  TGI_POINT_LM,
  TGI_POINT_LO,
  TGI_POINT_M,
  TGI_POINT_ND,
  TGI_POINT_N, /* but for Nd */
  TGI_POINT_P,
  TGI_POINT_S,
} tgi_point_kind;

typedef struct tgi_point_range {
  uint32_t first, last, kind;
} tgi_point_range;

extern const tgi_point_range tgi_late_points[];
extern const size_t tgi_late_points_count;
extern const tgi_point_range tgi_nfc_points[];
extern const size_t tgi_nfc_points_count;

#endif
