#include "logit_bias.h"

#include "core/error_record.h"
#include "core/growing.h"
#include "files/file_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

tg_status tgi_bias_add(tgi_bias_list *list, int32_t id, double value, tg_error *error)
{
  tg_logit_bias *grown = tgi_grow(list->items, &list->capacity, list->count + 1, sizeof *grown);
  if (!grown) {
    return tgi_error_set(error, TG_NO_MEMORY, "--logit-bias: expected memory, got none");
  }
  list->items = grown;
  grown[list->count++] = (tg_logit_bias){id, (float)value};
  return TG_OK;
}

tg_status tgi_bias_parse(const char *text, int32_t vocab_size, tgi_bias_list *list, tg_error *error)
{
  for (const char *at = text;; at++) {
    char *end, *behind;
    const long long id = strtoll(at, &end, 10);
    const bool has_id = end > at && at[0] >= '0' && at[0] <= '9' && strchr("=+-", *end) && *end;
    const double value = has_id ? strtod(end + (*end == '='), &behind) : 0;
    if (!has_id || behind == end + (*end == '=') || !strchr(",", *behind) ||
        !((float)value < INFINITY)) {
      return tgi_error_set(
          error, TG_BAD_ARGUMENT,
          "--logit-bias: byte %zu: expected ID=VALUE with a number or -inf, got %s",
          (size_t)(at - text), tgi_quote(at, strlen(at)).text);
    }
    if (id >= vocab_size) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "--logit-bias: byte %zu: expected an id of the model, 0 to %d, got %lld",
                           (size_t)(at - text), vocab_size - 1, id);
    }
    const tg_status status = tgi_bias_add(list, (int32_t)id, value, error);
    if (status != TG_OK || !*behind) {
      return status;
    }
    at = behind;
  }
}
