/** The text of a string in an expression, without its escapes. */
#ifndef TGI_CHAT_TEMPLATE_LITERAL_H
#define TGI_CHAT_TEMPLATE_LITERAL_H

#include "template_text.h"

/**
 * What Python's "unicode-escape" makes of it: \n, \x41, \u00e9, \U0001f600, \101, ...; a backslash
 * that begins none of them stays. Fails at surrogates, \N{...} and unfinished escapes.
 */
tgi_string *tgi_read_literal(tgi_job *job, const char *text, size_t size);

#endif
