/** CPU time that Linux grants to a process: the bandwidth limit of its control groups (containers).
 */
#ifndef TGI_CORE_CPU_QUOTA_H
#define TGI_CORE_CPU_QUOTA_H

/**
 * The lowest limit of the process's group and of those around it, in CPUs, rounded up; 0 if there
 * is none or the files cannot be read.
 *
 *   membership  /proc/self/cgroup
 *   root        where control groups are mounted: cpu.max below it (version 2),
 * cpu/cpu.cfs_quota_us and cpu/cpu.cfs_period_us (version 1)
 */
int tgi_cpu_quota(const char *membership, const char *root);

/** CPUs of the text of a cpu.max, "<microseconds> <period>", rounded up; 0: no limit ("max"). */
int tgi_cpu_quota_of(const char *text);

#endif
