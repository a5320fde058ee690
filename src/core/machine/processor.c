#define _GNU_SOURCE
#include "core/machine/processor.h"

#include "core/machine/cpu_quota.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* gcc and clang accept different names in __builtin_cpu_supports; CPUID is the same for both. */
static bool cpuid_bit(unsigned leaf, unsigned subleaf, int reg, int bit)
{
  unsigned r[4] = {0, 0, 0, 0};
  if (!__get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3])) {
    return false;
  }
  return (r[reg] >> bit & 1) != 0;
}

enum { EAX, EBX, ECX, EDX };

/* Bits of XCR0: the registers that the operating system saves on a context switch. */
static unsigned saved_state(void)
{
  if (!cpuid_bit(1, 0, ECX, 27)) {
    return 0;
  }
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static void detect_features(tgi_processor *p)
{
  const unsigned saved = saved_state();
  const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6;
  p->avx2 = ymm && cpuid_bit(1, 0, ECX, 12) /* fma */ && cpuid_bit(1, 0, ECX, 29) /* f16c */ &&
            cpuid_bit(1, 0, ECX, 22) /* movbe */ && cpuid_bit(7, 0, EBX, 5) /* avx2 */ &&
            cpuid_bit(7, 0, EBX, 3) /* bmi1 */ && cpuid_bit(7, 0, EBX, 8) /* bmi2 */ &&
            cpuid_bit(0x80000001u, 0, ECX, 5) /* lzcnt */;
  p->avx512 = p->avx2 && zmm && cpuid_bit(7, 0, EBX, 16) /* f */ &&
              cpuid_bit(7, 0, EBX, 17) /* dq */ && cpuid_bit(7, 0, EBX, 28) /* cd */ &&
              cpuid_bit(7, 0, EBX, 30) /* bw */ && cpuid_bit(7, 0, EBX, 31) /* vl */;
  p->avx512_bf16 = p->avx512 && cpuid_bit(7, 1, EAX, 5);
  p->avx512_vnni = p->avx512 && cpuid_bit(7, 0, ECX, 11);
}
#else
static void detect_features(tgi_processor *p)
{
  (void)p;
}
#endif

/* Size of the data or unified cache of a level, from sysfs; 0 if unknown. sysconf is the fallback:
 * in virtual machines it may count the caches of the whole host. */
static size_t cache_of_level(int level)
{
  for (int index = 0; index < 8; index++) {
    char path[96], type[16] = "";
    int found = 0;
    unsigned long kib = 0;
    static const char *const parts[3] = {"level", "type", "size"};
    for (int part = 0; part < 3; part++) {
      snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
               parts[part]);
      FILE *f = fopen(path, "re");
      if (!f) {
        return 0;
      }
      const int read = part == 0   ? fscanf(f, "%d", &found)
                       : part == 1 ? fscanf(f, "%15s", type)
                                   : fscanf(f, "%luK", &kib);
      fclose(f);
      if (read != 1) {
        return 0;
      }
    }
    if (found == level && strcmp(type, "Instruction") != 0) {
      return (size_t)kib << 10;
    }
  }
  return 0;
}

static size_t cache_bytes(int level, int name, size_t fallback)
{
  const size_t known = cache_of_level(level);
  const long bytes = known ? 0 : sysconf(name);
  return known ? known : bytes > 0 ? (size_t)bytes : fallback;
}

/* Detected once: CPUID traps in virtual machines and sysfs is slow, 0.3 ms together, and a context
 * is made for a single token. */
static tgi_processor detected;

static void detect(void)
{
  detect_features(&detected);
  detected.l1d_bytes = cache_bytes(1, _SC_LEVEL1_DCACHE_SIZE, 32u << 10);
  detected.l2_bytes = cache_bytes(2, _SC_LEVEL2_CACHE_SIZE, 256u << 10);
  detected.l3_bytes = cache_bytes(3, _SC_LEVEL3_CACHE_SIZE, 0);
}

tgi_processor tgi_processor_detect(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, detect);
  return detected;
}

int tgi_processor_count(void)
{
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return CPU_COUNT(&set);
  }
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

int tgi_processor_share(void)
{
  const int cpus = tgi_processor_count(),
            quota = tgi_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  return quota > 0 && quota < cpus ? quota : cpus;
}

void tgi_processor_name(char *text, size_t bytes)
{
  char line[256];
  FILE *f = fopen("/proc/cpuinfo", "re");
  snprintf(text, bytes, "unknown CPU");
  if (!f) {
    return;
  }
  while (fgets(line, sizeof line, f)) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) == 0 && colon) {
      snprintf(text, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
      break;
    }
  }
  fclose(f);
}
