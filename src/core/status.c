#include "tegula/status.h"

const char *tg_status_name(tg_status status)
{
  switch (status) {
#define NAME(code, value, text)                                                                    \
  case TG_##code:                                                                                  \
    return #code;
    TG_STATUS_MAP(NAME)
#undef NAME
  }
  return "unknown status";
}

const char *tg_status_text(tg_status status)
{
  switch (status) {
#define TEXT(code, value, text)                                                                    \
  case TG_##code:                                                                                  \
    return text;
    TG_STATUS_MAP(TEXT)
#undef TEXT
  }
  return "unknown status";
}
