/**
 * Status codes and the error record.
 *
 * Every function that can fail returns a tg_status; 0 is success. The codes form three classes: the
 * call breaks the contract (BAD_ARGUMENT, BAD_SHAPE, BAD_DTYPE); the call is valid, but this build
 * or machine cannot run it (UNSUPPORTED); memory, device, system or file failed (NO_MEMORY, DEVICE,
 * IO, BAD_FILE).
 *
 * Messages have one grammar:
 *   ops     <op>: <argument>: expected <rule>, got <value>
 *   files   <path>: byte <offset>: expected <rule>, got <value>
 */
#ifndef TEGULA_STATUS_H
#define TEGULA_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define TG_API __attribute__((visibility("default")))

/** X(code, value, what it means) */
#define TG_STATUS_MAP(X)                                                                           \
  X(OK, 0, "success")                                                                              \
  X(BAD_ARGUMENT, 1, "a scalar, pointer or combination of arguments breaks the contract")          \
  X(BAD_SHAPE, 2, "a tensor's rank, shape or strides break the contract")                          \
  X(BAD_DTYPE, 3, "a tensor's dtype breaks the contract")                                          \
  X(UNSUPPORTED, 4, "the call is right, but nothing here can serve it")                            \
  X(NO_MEMORY, 5, "an allocation failed")                                                          \
  X(DEVICE, 6, "a device or its driver reported an error")                                         \
  X(IO, 7, "the operating system refused to open, read, write or rename a file")                   \
  X(BAD_FILE, 8, "a file's content is malformed, or does not fit its companion")

typedef enum tg_status {
#define TG_STATUS_ENUM(code, value, text) TG_##code = (value),
  TG_STATUS_MAP(TG_STATUS_ENUM)
#undef TG_STATUS_ENUM
} tg_status;

/** The error of a function without a context (files, model loading, context creation). */
typedef struct tg_error {
  tg_status status;
  char text[508]; /* always zero-terminated; "" if status is TG_OK */
} tg_error;

/** "OK", "BAD_ARGUMENT", ...; "unknown status" for a value that is no code. Never NULL. */
TG_API const char *tg_status_name(tg_status status);

/** The meaning of the code, in one sentence. Never NULL. */
TG_API const char *tg_status_text(tg_status status);

#ifdef __cplusplus
}
#endif
#endif
