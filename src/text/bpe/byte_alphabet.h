/**
 * The printable alphabet in which byte-level BPE files spell bytes (Radford et al. 2019; GPT-2's
 * encoder): bytes that are printable in Latin-1 stand for themselves, the other 68 for U+0100 on,
 * in their order.
 */
#ifndef TGI_TEXT_BYTE_ALPHABET_H
#define TGI_TEXT_BYTE_ALPHABET_H

#include <stdint.h>

/** Code point of a byte: below 0x144. */
uint32_t tgi_byte_to_point(unsigned char byte);

/** Byte of a code point, or -1. */
int tgi_point_to_byte(uint32_t point);

#endif
