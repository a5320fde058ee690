#include "utf8.h"

/** Length that a lead byte announces (0: it is no lead) and the range of the byte after it. */
static size_t lead(unsigned char byte, unsigned char *low, unsigned char *high)
{
  *low = 0x80;
  *high = 0xbf;
  if (byte < 0x80) {
    return 1;
  }
  if (byte >= 0xc2 && byte <= 0xdf) {
    return 2;
  }
  if (byte >= 0xe0 && byte <= 0xef) {
    if (byte == 0xe0) {
      *low = 0xa0;
    }
    if (byte == 0xed) {
      *high = 0x9f;
    }
    return 3;
  }
  if (byte >= 0xf0 && byte <= 0xf4) {
    if (byte == 0xf0) {
      *low = 0x90;
    }
    if (byte == 0xf4) {
      *high = 0x8f;
    }
    return 4;
  }
  return 0;
}

size_t tgi_utf8_subpart(const char *text, size_t size, bool *complete, bool *open)
{
  *complete = false;
  *open = false;
  if (size == 0) {
    return 0;
  }
  unsigned char low, high;
  const size_t length = lead((unsigned char)text[0], &low, &high);
  if (length == 0) {
    return 1;
  }
  size_t used = 1;
  while (used < length && used < size) {
    const unsigned char byte = (unsigned char)text[used];
    if (byte < low || byte > high) {
      return used;
    }
    low = 0x80;
    high = 0xbf;
    used++;
  }
  *complete = used == length;
  *open = used < length;
  return used;
}

size_t tgi_utf8_decode(const char *text, size_t size, uint32_t *point)
{
  static const unsigned char lead_bits[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  bool complete, open;
  const size_t length = tgi_utf8_subpart(text, size, &complete, &open);
  if (!complete) {
    return 0;
  }
  uint32_t value = (unsigned char)text[0] & lead_bits[length];
  for (size_t i = 1; i < length; i++) {
    value = value << 6 | ((unsigned char)text[i] & 0x3f);
  }
  *point = value;
  return length;
}

size_t tgi_utf8_encode(uint32_t point, char out[4])
{
  if (point < 0x80) {
    out[0] = (char)point;
    return 1;
  }
  const size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  static const unsigned char lead_mark[5] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = length - 1; i > 0; i--) {
    out[i] = (char)(0x80 | (point & 0x3f));
    point >>= 6;
  }
  out[0] = (char)(lead_mark[length] | point);
  return length;
}

size_t tgi_utf8_valid_bytes(const char *text, size_t size)
{
  size_t i = 0;
  while (i < size) {
    if ((unsigned char)text[i] < 0x80) {
      i++;
      continue;
    }
    bool complete, open;
    const size_t length = tgi_utf8_subpart(text + i, size - i, &complete, &open);
    if (!complete) {
      return i;
    }
    i += length;
  }
  return i;
}
