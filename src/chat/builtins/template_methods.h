/** The tables of methods of texts; a NULL name ends each. */
#ifndef TGI_CHAT_BUILTINS_TEMPLATE_METHODS_H
#define TGI_CHAT_BUILTINS_TEMPLATE_METHODS_H

#include "template_call.h"

extern const tgi_builtin tgi_search_methods[];
extern const tgi_builtin tgi_cut_methods[];

#endif
