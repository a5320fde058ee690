/** JSON of a conversation as values of a template. */
#ifndef TGI_CHAT_CHAT_VALUES_H
#define TGI_CHAT_CHAT_VALUES_H

#include "chat/values/template_value.h"
#include "files/json_file.h"

/**
 * Values of documents that stay open as long as the values are in use, as texts are borrowed.
 * Zeroed but for the job.
 */
typedef struct tgi_converter {
  tgi_job *job;
  uint8_t *ones; /* marks of untrusted texts, shared by all of them */
  size_t num_ones;
} tgi_converter;

/** A value; its texts are marked as untrusted where asked for. */
tgi_value tgi_convert_json(tgi_converter *converter, const json_t *json, bool untrusted);

/**
 * A list of messages, as transformers hands them to templates: without keys whose value is null,
 * and with what the model thought under its three names. Fails unless it is a list of objects, at
 * least one.
 */
tgi_value tgi_convert_messages(tgi_converter *converter, const json_t *json);

/** A list of objects; `what` names it in messages. */
tgi_value tgi_convert_objects(tgi_converter *converter, const json_t *json, const char *what,
                              bool untrusted);

#endif
