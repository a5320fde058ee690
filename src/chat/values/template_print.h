/** Values as text: str(), repr() and json.dumps() of Python. */
#ifndef TGI_CHAT_VALUES_TEMPLATE_PRINT_H
#define TGI_CHAT_VALUES_TEMPLATE_PRINT_H

#include "template_value.h"

/** str(): what {{ }} prints. */
void tgi_print(tgi_writer *writer, tgi_value v);

/** The same as a string, which is `v` itself where it is one (without being marked safe). */
tgi_string *tgi_to_string(tgi_job *job, tgi_value v);

void tgi_print_repr(tgi_writer *writer, tgi_value v);

typedef struct tgi_json_style {
  bool ascii, sort_keys;
  const tgi_string *indent;        /* of one level; NULL: all on one line */
  const tgi_string *comma, *colon; /* separators; NULL: as json.dumps chooses */
} tgi_json_style;

void tgi_print_json(tgi_writer *writer, const tgi_json_style *style, tgi_value v);

/** & < > ' " as in markupsafe; what is safe already is copied. */
void tgi_print_escaped(tgi_writer *writer, tgi_value v);

#endif
