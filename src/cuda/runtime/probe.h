/** Which entries of the CUDA chain have code for the current device in this build. */
#ifndef TGI_CUDA_PROBE_H
#define TGI_CUDA_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

/** Bit i: entry i of tgi_cuda_entry (core/device_state.h); `sm` is the device's compute capability.
 * `any` is not asked, but taken to have code, where sm80 has. */
unsigned tgi_cuda_probe(int sm);

/** True if the entry that its file is compiled for has code; one for each entry of the build. */
int tgi_cuda_probe_any(void);
int tgi_cuda_probe_sm80(void);
int tgi_cuda_probe_sm90(void);

#ifdef __cplusplus
}
#endif
#endif
