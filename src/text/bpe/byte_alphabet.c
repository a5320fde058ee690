#include "byte_alphabet.h"
#include <stdbool.h>

static bool stands_for_itself(uint32_t byte)
{
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
         (byte >= 0xae && byte <= 0xff);
}

uint32_t tgi_byte_to_point(unsigned char byte)
{
  if (stands_for_itself(byte)) {
    return byte;
  }
  if (byte <= 0x20) {
    return 0x100 + byte;
  }
  if (byte <= 0xa0) { /* 0x7f to 0xa0 follow the 33 of 0 to 0x20 */
    return 0x100 + 33 + (byte - 0x7fu);
  }
  return 0x100 + 67; /* 0xad */
}

int tgi_point_to_byte(uint32_t point)
{
  if (point < 0x100) {
    return stands_for_itself(point) ? (int)point : -1;
  }
  if (point <= 0x120) {
    return (int)point - 0x100;
  }
  if (point <= 0x142) {
    return (int)point - 0x121 + 0x7f;
  }
  return point == 0x143 ? 0xad : -1;
}
