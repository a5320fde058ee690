/** The CPU: the instruction sets that kernels are built for, and its caches. */
#ifndef TGI_CORE_PROCESSOR_H
#define TGI_CORE_PROCESSOR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tgi_processor {
  bool avx2;        /* x86-64-v3 with F16C, and the operating system saves its registers */
  bool avx512;      /* x86-64-v4, likewise */
  bool avx512_bf16; /* VDPBF16PS */
  bool avx512_vnni; /* VPDPBUSD */
  size_t l1d_bytes; /* of one core */
  size_t l2_bytes;  /* of one core */
  size_t l3_bytes;  /* of the whole cache; 0 if there is none */
} tgi_processor;

tgi_processor tgi_processor_detect(void);

/** Number of CPUs that this process may run on. */
int tgi_processor_count(void);

/** The same, but at most the CPU time that the process's control group grants, rounded up. */
int tgi_processor_share(void);

/** Writes the model name, or "unknown CPU". */
void tgi_processor_name(char *text, size_t bytes);

#endif
