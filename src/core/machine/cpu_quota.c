#include "core/machine/cpu_quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CPUs, rounded up; 0: no limit, which version 1 writes as -1. */
static int cpus_of(long long quota, long long period)
{
  if (quota <= 0 || period <= 0) {
    return 0;
  }
  const long long cpus = quota / period + (quota % period != 0);
  return cpus < INT_MAX ? (int)cpus : INT_MAX;
}

int tgi_cpu_quota_of(const char *text)
{
  long long quota, period;
  return sscanf(text, "%lld %lld", &quota, &period) == 2 ? cpus_of(quota, period) : 0;
}

/* The first line of a file; "" if there is none. */
static const char *read_line(const char *folder, const char *name, char *line, int bytes)
{
  char path[4224];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "re");
  if (!f || !fgets(line, bytes, f)) {
    line[0] = 0;
  }
  if (f) {
    fclose(f);
  }
  return line;
}

static int quota_of_group(const char *folder, bool version_2)
{
  char line[128];
  if (version_2) {
    return tgi_cpu_quota_of(read_line(folder, "cpu.max", line, sizeof line));
  }
  const long long quota =
      strtoll(read_line(folder, "cpu.cfs_quota_us", line, sizeof line), NULL, 10);
  return cpus_of(quota,
                 strtoll(read_line(folder, "cpu.cfs_period_us", line, sizeof line), NULL, 10));
}

/* Of the group and of all above it. In a container the path may be that of the host, which does not
 * exist there; the container's own group is then the root. */
static int lowest_quota(const char *root, const char *group, bool version_2)
{
  char folder[4096];
  const size_t top = strlen(root);
  if ((size_t)snprintf(folder, sizeof folder, "%s%s", root, group) >= sizeof folder) {
    return 0;
  }
  int lowest = 0;
  for (;;) {
    const int quota = quota_of_group(folder, version_2);
    lowest = quota && (!lowest || quota < lowest) ? quota : lowest;
    char *slash = strrchr(folder, '/');
    if (!slash || slash < folder + top) {
      return lowest;
    }
    *slash = 0;
  }
}

/* Whether "cpu" is among names such as "cpu,cpuacct". */
static bool lists_cpu(const char *names)
{
  while (names) {
    if (strncmp(names, "cpu", 3) == 0 && (names[3] == ',' || names[3] == 0)) {
      return true;
    }
    names = strchr(names, ',');
    names = names ? names + 1 : NULL;
  }
  return false;
}

/* A line is <number>:<controllers>:<path>; version 2 names no controllers. */
int tgi_cpu_quota(const char *membership, const char *root)
{
  char line[4096], mount[4096];
  int lowest = 0;
  FILE *f = fopen(membership, "re");
  while (f && fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n")] = 0;
    char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
    if (!group) {
      continue;
    }
    *group++ = 0;
    names++;
    const bool version_2 = names[0] == 0;
    if (!version_2 && !lists_cpu(names)) {
      continue;
    }
    snprintf(mount, sizeof mount, "%s%s", root, version_2 ? "" : "/cpu");
    const int quota = lowest_quota(mount, group, version_2);
    lowest = quota && (!lowest || quota < lowest) ? quota : lowest;
  }
  if (f) {
    fclose(f);
  }
  return lowest;
}
