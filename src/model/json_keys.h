/** Whether the keys of an object differ; a part of json_reader.c. */
#ifndef TGI_MODEL_JSON_KEYS_H
#define TGI_MODEL_JSON_KEYS_H

#include "json_reader.h"

/**
 * *repeated gets the first key in the text that equals an earlier one of the object (after
 * unescaping), 0 if there is none. False without memory.
 */
bool tgi_json_repeated_key(const tgi_json *json, uint32_t object, uint32_t count,
                           uint32_t *repeated);

#endif
