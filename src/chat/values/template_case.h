/** Texts in other cases, as Python and Jinja make them. */
#ifndef TGI_CHAT_VALUES_TEMPLATE_CASE_H
#define TGI_CHAT_VALUES_TEMPLATE_CASE_H

#include "template_value.h"

tgi_string *tgi_lower(tgi_job *job, const tgi_string *s);
tgi_string *tgi_upper(tgi_job *job, const tgi_string *s);
tgi_string *tgi_capitalize(tgi_job *job, const tgi_string *s);
tgi_string *tgi_title(tgi_job *job, const tgi_string *s);

/** Strings in lower case, other values as they are. */
tgi_value tgi_ignore_case(tgi_job *job, tgi_value v);

#endif
