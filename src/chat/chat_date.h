/** The date that a template takes for today, as users write it. */
#ifndef TGI_CHAT_CHAT_DATE_H
#define TGI_CHAT_CHAT_DATE_H

#include <stdbool.h>
#include <time.h>

/** "YYYY-MM-DD" or "YYYY-MM-DDTHH:MM:SS"; false for another text, or a day that never was. */
bool tgi_chat_date(const char *text, struct tm *date);

#endif
