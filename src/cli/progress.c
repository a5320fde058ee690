#include "progress.h"

#include "console.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { kLines = 20 }; /* lines per run, if the output is no terminal */

tgi_progress tgi_progress_start(bool quiet, int64_t num_steps, int64_t tokens_per_step)
{
  return (tgi_progress){.live = !quiet && tgi_console_is_live(),
                        .quiet = quiet,
                        .num_steps = num_steps,
                        .every = num_steps > kLines ? num_steps / kLines : 1,
                        .tokens_per_step = tokens_per_step};
}

void tgi_progress_show(tgi_progress *p, const tgi_progress_step *s)
{
  const double weight = p->mean_seconds > 0 ? 0.1 : 1.0;
  p->mean_seconds += weight * (s->seconds - p->mean_seconds);
  const bool due = s->step == 1 || s->step % p->every == 0 || s->step == p->num_steps;
  if (p->quiet || (!p->live && !due)) {
    return;
  }
  char line[256], aux[32] = "";
  if (s->aux_loss != 0) {
    snprintf(aux, sizeof aux, " | aux %.4f", s->aux_loss);
  }
  const double left = (double)(p->num_steps - s->step) * p->mean_seconds;
  snprintf(line, sizeof line,
           "step %lld/%lld | loss %.4f%s | norm %.2f | lr %.2e | %.0f ms | %.0f tok/s | ETA %s",
           (long long)s->step, (long long)p->num_steps, s->loss, aux, s->grad_norm,
           s->learning_rate, 1e3 * s->seconds, (double)p->tokens_per_step / p->mean_seconds,
           tgi_duration(left).text);
  if (!p->live) {
    fprintf(stderr, "%s\n", line);
    return;
  }
  const size_t columns = (size_t)tgi_console_columns() - 1;
  if (columns < strlen(line)) {
    line[columns] = '\0'; /* "\r" does not return to the start of a wrapped line */
  }
  fprintf(stderr, "\r%s\033[K", line);
  fflush(stderr);
  p->dirty = true;
}

void tgi_progress_say(tgi_progress *p, const char *format, ...)
{
  if (p->quiet) {
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  fputs(p->dirty ? "\r\033[K" : "", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  p->dirty = false;
  va_end(arguments);
}

void tgi_progress_end(tgi_progress *p)
{
  if (p->dirty) {
    fputc('\n', stderr);
    p->dirty = false;
  }
}
