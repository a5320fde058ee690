/** One value in the form that a format asks for, shared by `%` and `format`. */
#ifndef TGI_CHAT_VALUES_TEMPLATE_FORMAT_H
#define TGI_CHAT_VALUES_TEMPLATE_FORMAT_H

#include "template_value.h"

enum { TGI_MAX_FORMAT_WIDTH = 1000 };

typedef struct tgi_format_spec {
  uint32_t fill;        /* 0: a space */
  char align;           /* '<', '>', '^', '=' (between sign and digits); 0: by the type */
  char sign;            /* '+', ' ' or 0: of numbers that are not negative */
  char type;            /* a letter of printf, '%' or 0 */
  bool alternate, zero; /* "#"; "0" without an alignment, which texts do not follow */
  int width;
  int precision; /* -1: none */
} tgi_format_spec;

/** Decimal digits at `*at`, at most TGI_MAX_FORMAT_WIDTH; 0 where there are none. */
int tgi_format_count(tgi_job *job, const tgi_string *format, size_t *at);

/** Text, cut at the precision and padded. */
void tgi_format_string(tgi_writer *writer, const tgi_format_spec *spec, const tgi_string *s);

/** A whole number with type d, x, X, o or b; a real one with e, f, g, E, F, G or %. */
void tgi_format_number(tgi_writer *writer, const tgi_format_spec *spec, tgi_value number);

#endif
