/** The table of global functions; a NULL name ends it. */
#ifndef TGI_CHAT_BUILTINS_TEMPLATE_FUNCTIONS_H
#define TGI_CHAT_BUILTINS_TEMPLATE_FUNCTIONS_H

#include "template_call.h"

extern const tgi_builtin tgi_functions[];

#endif
