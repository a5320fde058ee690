#define _DEFAULT_SOURCE /* rusage */
#include "host_load.h"

#include "core/machine/clock.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double seconds(struct timeval t)
{
  return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static double used_by(int who)
{
  struct rusage u;
  getrusage(who, &u);
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

/* Everything but idle and waiting for a disk; stolen time counts, it is somebody's. */
static double busy_seconds(void)
{
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, stolen = 0;
  FILE *f = fopen("/proc/stat", "re");
  if (f) {
    if (fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &wait, &irq,
               &soft, &stolen) < 4) {
      user = nice = system = irq = soft = stolen = 0;
    }
    fclose(f);
  }
  return (user + nice + system + irq + soft + stolen) / (double)sysconf(_SC_CLK_TCK);
}

host_load host_load_now(void)
{
  return (host_load){.busy = busy_seconds(),
                     .own = used_by(RUSAGE_SELF) + used_by(RUSAGE_CHILDREN),
                     .clock = tgi_clock()};
}

double host_load_since(const host_load *then)
{
  const host_load now = host_load_now();
  const double others = (now.busy - then->busy) - (now.own - then->own);
  const double wall = now.clock - then->clock;
  return others > 0 && wall > 0 ? others / wall : 0;
}

double host_load_wait(double patience)
{
  const double start = host_load_now().clock;
  for (;;) {
    const host_load then = host_load_now();
    const struct timespec second = {.tv_sec = 1};
    nanosleep(&second, NULL);
    const double load = host_load_since(&then);
    if (load <= HOST_LOAD_LIMIT || host_load_now().clock - start >= patience) {
      return load;
    }
  }
}

double host_clock_mhz(void)
{
  FILE *f = fopen("/proc/cpuinfo", "re");
  char line[256];
  double sum = 0, mhz;
  int n = 0;
  while (f && fgets(line, sizeof line, f)) {
    if (strncmp(line, "cpu MHz", 7) == 0 && sscanf(strchr(line, ':'), ": %lf", &mhz) == 1) {
      sum += mhz;
      n++;
    }
  }
  if (f) {
    fclose(f);
  }
  return n ? sum / n : 0;
}
