#define _DEFAULT_SOURCE /* timegm */
#include "chat_date.h"
#include <stdio.h>
#include <string.h>

bool tgi_chat_date(const char *text, struct tm *date)
{
  int used = 0;
  struct tm given = {0};
  const int fields =
      sscanf(text, "%4d-%2d-%2d%nT%2d:%2d:%2d%n", &given.tm_year, &given.tm_mon, &given.tm_mday,
             &used, &given.tm_hour, &given.tm_min, &given.tm_sec, &used);
  if ((fields != 3 && fields != 6) || (size_t)used != strlen(text) ||
      strspn(text, "0123456789-T:") != strlen(text) || (used != 10 && used != 19)) {
    return false;
  }
  given.tm_year -= 1900;
  given.tm_mon -= 1;
  *date = given;
  const time_t seconds = timegm(date); /* fills in the day of the week, and puts right */
  return seconds != (time_t)-1 && date->tm_mday == given.tm_mday && date->tm_mon == given.tm_mon &&
         date->tm_hour == given.tm_hour && date->tm_min == given.tm_min &&
         date->tm_sec == given.tm_sec;
}
