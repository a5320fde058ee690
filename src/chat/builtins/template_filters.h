/** The tables of filters, a NULL name ends each; and what filters share. */
#ifndef TGI_CHAT_BUILTINS_TEMPLATE_FILTERS_H
#define TGI_CHAT_BUILTINS_TEMPLATE_FILTERS_H

#include "template_call.h"

extern const tgi_builtin tgi_value_filters[];     /* of single values */
extern const tgi_builtin tgi_selection_filters[]; /* of whatever can be gone through */
extern const tgi_builtin tgi_order_filters[];     /* of that, too */

/** An iterator whose items `make` gives when the first is asked for. */
tgi_value tgi_lazy(tgi_call *call, tgi_list *(*make)(tgi_call *call));

/**
 * The attribute of an item by its path: "name", "name.0.name", 0; none: the item itself.
 * `otherwise` where a part of it is undefined, unless that is MISSING.
 */
tgi_value tgi_look_up(tgi_job *job, tgi_value item, tgi_value attribute, tgi_value otherwise);

#endif
