/**
 * Pinned memory of a context, through which copies from and to pageable memory go: the GPU copies
 * one half while the host fills or empties the other.
 */
#ifndef TGI_CUDA_STAGING_H
#define TGI_CUDA_STAGING_H

typedef struct tgi_staging tgi_staging;

/** Waits for copies under way; NULL is allowed. */
void tgi_staging_close(tgi_staging *staging);

#endif
