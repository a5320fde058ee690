/** UTF-8 as Unicode 15, section 3.9 (table 3-7) defines it: no overlong forms, no surrogates. */
#ifndef TGI_FILES_UTF8_H
#define TGI_FILES_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Decodes the sequence at the start of `text` (`size` bytes are there) into *point and returns its
 * length, or 0 where no complete valid sequence starts.
 */
size_t tgi_utf8_decode(const char *text, size_t size, uint32_t *point);

/** Writes the UTF-8 form of a code point (no surrogate, at most 0x10ffff): 1 to 4 bytes. */
size_t tgi_utf8_encode(uint32_t point, char out[4]);

/**
 * Length of the longest start of `text` (at most `size` bytes) that some valid sequence begins
 * with: what one replacement character stands for ("maximal subpart"), at least 1 when size is.
 * *complete says whether these bytes are a whole sequence; *open whether the text ended before the
 * sequence did.
 */
size_t tgi_utf8_subpart(const char *text, size_t size, bool *complete, bool *open);

/** Bytes at the start of `text` that are valid UTF-8; `size` where all of it is. */
size_t tgi_utf8_valid_bytes(const char *text, size_t size);

#endif
