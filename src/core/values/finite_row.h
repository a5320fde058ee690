/** Error text for rows whose largest element must be finite, the same on every backend. */
#ifndef TGI_CORE_FINITE_ROW_H
#define TGI_CORE_FINITE_ROW_H

#include <stdint.h>

#define TGI_FINITE_ROW "expected numbers below infinity and a finite one, got a row without"

/** `low` of a tgi_fault of this rule; other rules have a range of integers. */
#define TGI_NOT_A_FINITE_ROW INT64_MAX

#endif
