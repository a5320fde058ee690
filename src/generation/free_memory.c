#include "free_memory.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { kPathBytes = 4096, kLineBytes = 4096 };

/* The number behind `key` at the start of a line, or alone in the file where key is ""; -1: none,
 * "max" among others. */
static int64_t read_number(const char *root, const char *path, const char *key)
{
  char full[kPathBytes], line[kLineBytes];
  int64_t number = -1;
  if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) {
    return -1;
  }
  FILE *f = fopen(full, "r");
  while (f && number < 0 && fgets(line, sizeof line, f)) {
    if (strncmp(line, key, strlen(key)) != 0 ||
        sscanf(line + strlen(key), " %" SCNd64, &number) != 1) {
      number = -1;
    }
  }
  if (f) {
    (void)fclose(f);
  }
  return number;
}

/* Files of one version of control groups; %s is the group's path. */
typedef struct group_files {
  const char *mark; /* before the path in /proc/self/cgroup */
  const char *limit, *used, *stat, *cached;
} group_files;

static const group_files versions[] = {
    {"0::", "/sys/fs/cgroup%s/memory.max", "/sys/fs/cgroup%s/memory.current",
     "/sys/fs/cgroup%s/memory.stat", "inactive_file"},
    {":memory:", "/sys/fs/cgroup/memory%s/memory.limit_in_bytes",
     "/sys/fs/cgroup/memory%s/memory.usage_in_bytes", "/sys/fs/cgroup/memory%s/memory.stat",
     "total_inactive_file"},
};

static int64_t read_of(const char *root, const char *format, const char *group, const char *key)
{
  /* The formats are the table's own. */
  const char *mark = strstr(format, "%s");
  char path[kPathBytes];
  const int size = snprintf(path, sizeof path, "%.*s%s%s", (int)(mark - format), format, group,
                            mark + strlen("%s"));
  return size < (int)sizeof path ? read_number(root, path, key) : -1;
}

/* What a group may still take: its limit without what it uses, but for files that the kernel would
 * give up; INT64_MAX: no limit. */
static int64_t left_in(const char *root, const group_files *files, const char *group)
{
  const int64_t limit = read_of(root, files->limit, group, "");
  const int64_t used = read_of(root, files->used, group, "");
  const int64_t cached = read_of(root, files->stat, group, files->cached);
  if (limit < 0 || used < 0) {
    return INT64_MAX;
  }
  const int64_t left = limit - used + (cached > 0 ? cached : 0);
  return left > 0 ? left : 0;
}

/* The path of the process's group; "" without one. A container sees its group at the root. */
static void find_group(const char *root, const char *mark, char path[kPathBytes])
{
  char full[kPathBytes], line[kLineBytes];
  path[0] = '\0';
  if (snprintf(full, sizeof full, "%s/proc/self/cgroup", root) >= (int)sizeof full) {
    return;
  }
  FILE *f = fopen(full, "r");
  while (f && fgets(line, sizeof line, f)) {
    const char *found = strstr(line, mark);
    if (found) {
      snprintf(path, kPathBytes, "%.*s", (int)strcspn(found + strlen(mark), "\n"),
               found + strlen(mark));
      break;
    }
  }
  if (f) {
    (void)fclose(f);
  }
}

int64_t tgi_free_memory(const char *root)
{
  int64_t least = read_number(root, "/proc/meminfo", "MemAvailable:");
  least = least < 0 ? INT64_MAX : least * 1024;
  for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
    char group[kPathBytes];
    find_group(root, versions[i].mark, group);
    /* The group and those around it, up to the root. */
    for (;;) {
      const int64_t left = left_in(root, &versions[i], group);
      least = left < least ? left : least;
      char *slash = strrchr(group, '/');
      if (!slash) {
        break;
      }
      *slash = '\0';
    }
  }
  return least == INT64_MAX ? 0 : least;
}
