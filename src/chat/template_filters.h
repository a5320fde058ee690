/** The tables of filters; a NULL name ends each. */
#ifndef TGI_CHAT_TEMPLATE_FILTERS_H
#define TGI_CHAT_TEMPLATE_FILTERS_H

#include "template_call.h"

extern const tgi_builtin tgi_value_filters[];     /* of single values */
extern const tgi_builtin tgi_selection_filters[]; /* of whatever can be gone through */

#endif
