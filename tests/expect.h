/** Assertions on tg_status and tg_error that print both operands. After cmocka.h. */
#ifndef TEGULA_TESTS_EXPECT_H
#define TEGULA_TESTS_EXPECT_H

#include "tegula/status.h"
#include <string.h>

/** OK, or the test fails with the message. */
#define EXPECT_OK(call, error)                                                                     \
  do {                                                                                             \
    const tg_status expect_got = (call);                                                           \
    if (expect_got != TG_OK)                                                                       \
      fail_msg("%s: expected OK, got %s: %s", #call, tg_status_name(expect_got), (error).text);    \
  } while (0)

/** A status with a message that holds `part`. */
#define EXPECT_ERROR(call, wanted, part, error)                                                    \
  do {                                                                                             \
    memset(&(error), 0, sizeof(error));                                                            \
    const tg_status expect_got = (call);                                                           \
    if (expect_got != (wanted) || (error).status != (wanted))                                      \
      fail_msg("%s: expected %s, got %s (record %s): %s", #call, tg_status_name(wanted),           \
               tg_status_name(expect_got), tg_status_name((error).status), (error).text);          \
    if (!strstr((error).text, (part)))                                                             \
      fail_msg("%s: expected a message with \"%s\", got \"%s\"", #call, (part), (error).text);     \
  } while (0)

#endif
