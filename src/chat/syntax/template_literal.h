/** Numbers and strings in expressions. */
#ifndef TGI_CHAT_SYNTAX_TEMPLATE_LITERAL_H
#define TGI_CHAT_SYNTAX_TEMPLATE_LITERAL_H

#include "chat/values/template_text.h"

/**
 * What Python's "unicode-escape" makes of it: \n, \x41, \u00e9, \U0001f600, \101, ...; a backslash
 * that begins none of them stays. Fails at surrogates, \N{...} and unfinished escapes.
 */
tgi_string *tgi_read_literal(tgi_job *job, const char *text, size_t size);

/** The end of the number that begins with a digit at `at`; *real: a point or an exponent is in it.
 */
size_t tgi_match_number(const char *text, size_t size, size_t at, bool *real);

#endif
