/** Numbers as Python has them, but whole numbers of 64 bits: what exceeds them is an error. */
#ifndef TGI_CHAT_VALUES_TEMPLATE_NUMBER_H
#define TGI_CHAT_VALUES_TEMPLATE_NUMBER_H

#include "template_value.h"

/** 2^63, the first whole number that int64_t does not hold. */
#define TGI_INTEGER_END 9223372036854775808.0

/** What stands between two expressions. */
typedef enum tgi_operation {
  TGI_OP_ADD,
  TGI_OP_SUB,
  TGI_OP_MUL,
  TGI_OP_DIV,
  TGI_OP_FLOORDIV,
  TGI_OP_MOD,
  TGI_OP_POW,
  TGI_OP_EQ,
  TGI_OP_NE,
  TGI_OP_LT,
  TGI_OP_LE,
  TGI_OP_GT,
  TGI_OP_GE,
  TGI_OP_IN,
  TGI_OP_NOT_IN
} tgi_operation;

static inline bool tgi_is_number(tgi_value v)
{
  return v.kind == TGI_BOOL || v.kind == TGI_INT || v.kind == TGI_REAL;
}

double tgi_to_real(tgi_value number);

/** A number beyond 64 bits ends the job. */
_Noreturn void tgi_fail_range(tgi_job *job);

typedef enum tgi_order { TGI_BELOW, TGI_SAME, TGI_ABOVE, TGI_UNORDERED } tgi_order;

/** Exact also between whole and real numbers. */
tgi_order tgi_number_order(tgi_value a, tgi_value b);

/** TGI_OP_ADD to TGI_OP_POW; fails at a division by 0 and beyond the range. */
tgi_value tgi_arithmetic(tgi_job *job, tgi_operation operation, tgi_value a, tgi_value b);

tgi_value tgi_negate(tgi_job *job, tgi_value number);

/** Truncates, as int() does. */
int64_t tgi_truncate(tgi_job *job, double real);

/** repr() of a float: the shortest digits that read back the same. */
enum { TGI_REAL_BYTES = 48 };
void tgi_print_real(double real, char out[TGI_REAL_BYTES]);

/**
 * Reads all of the text: digits, of which a base of 0 has the prefix choose as in Python, with
 * single underscores between; a sign if `sign`. False: it is none. Fails beyond 64 bits.
 */
bool tgi_parse_integer(tgi_job *job, const char *text, size_t size, int base, bool sign,
                       int64_t *integer);

/** Reads all of the text: decimal digits with a point, an exponent, or both. False: it is none. */
bool tgi_parse_real(tgi_job *job, const char *text, size_t size, double *real);

#endif
