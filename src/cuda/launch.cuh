/**
 * How host code starts a kernel: one helper that takes the context's stream and checks the error.
 *
 * Kernels of one call may follow each other without a pause (programmatic dependent launch), from
 * Hopper on. A kernel that launch_next starts begins once every block of the one before it has
 * called let_next_begin or has ended, and calls await_kernel_before ahead of all that touches
 * memory: what the one before writes is then there, and what it reads may be written over. With
 * kernels a, b and c in a row, c waits for b alone; that is enough, for b does not end before its
 * own wait for a is over. Where b says let_next_begin behind that wait, c may even take what a left
 * without one, but must not end before b. A call's first kernel is started by launch, which waits
 * for all that the stream did before: nothing changes towards the caller's kernels, and a workspace
 * is free for the next call. Where the caller allows it (tg_context_allow_overlap), it is started
 * by launch_overlapping instead if ahead of its wait it touches nothing but packed weights.
 */
#ifndef TGI_CUDA_LAUNCH_CUH
#define TGI_CUDA_LAUNCH_CUH

#include "cuda/runtime/module.cuh"

#include <cuda_runtime.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern "C" {
#include "core/device_state.h"
#include "core/tensor_view.h"
}

/** Templates of the entries have names of their own: the linker would give all entries one of
 * their instances. */
#define TGI_CUDA_JOIN_(a, b) a##b
#define TGI_CUDA_JOIN(a, b) TGI_CUDA_JOIN_(a, b)
#define TGI_CUDA_ENTRY TGI_CUDA_JOIN(entry_, TGI_ENTRY)

inline namespace TGI_CUDA_ENTRY
{

/** What a block may have without asking. */
constexpr int kSharedBytes = 48 * 1024;

template <typename T> struct same_type {
  using type = T;
};

/** ceil(a / b) for a >= 0, b > 0. */
__host__ __device__ constexpr int64_t divide_up(int64_t a, int64_t b)
{
  return a / b + (a % b != 0);
}

/** Whether kernels of the entry may begin before the one ahead of them has ended. */
constexpr bool kOverlaps = TGI_VIRTUAL >= 90;

/** Until the kernel before has ended, and its writes are there. By every thread that touches what
 * it touched; returns at once where launch started this kernel. */
__device__ __forceinline__ void await_kernel_before()
{
#if TGI_VIRTUAL >= 90
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

/** The next kernel may begin as soon as all blocks have said so; its await_kernel_before still
 * waits for all of this one. */
__device__ __forceinline__ void let_next_begin()
{
#if TGI_VIRTUAL >= 90
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

/**
 * Lets a launch of `kernel` ask for `shared` bytes. The limit belongs to the kernel on a device,
 * for the whole process, so it is only ever set to the most that a block may have: were it set to
 * what each launch asks for, a thread with a context of its own could lower it under another's
 * launch.
 */
__attribute__((noinline)) inline cudaError_t allow_shared(const tg_context *ctx, const void *kernel,
                                                          size_t shared)
{
  cudaFuncAttributes a;
  const cudaError_t e = cudaFuncGetAttributes(&a, kernel);
  if (e != cudaSuccess || (size_t)a.maxDynamicSharedSizeBytes >= shared) {
    return e;
  }
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              ctx->device->shared_bytes - (int)a.sharedSizeBytes);
}

/** What a launch that failed returns: code that would be as large for each kernel. */
__attribute__((noinline)) inline tg_status report_launch(const tg_context *ctx, cudaError_t e)
{
  (void)cudaGetLastError();
  return tgi_report(ctx, e == cudaErrorMemoryAllocation ? TG_NO_MEMORY : TG_DEVICE,
                    "launch: expected success, got %s (%s)", cudaGetErrorName(e),
                    cudaGetErrorString(e));
}

/**
 * Starts `kernel` with `grid` x `threads` and `shared` bytes on the context's stream; 0 blocks: OK.
 * gridDim.x is at most 2^31 - 1, gridDim.y and z 65535: what may be more is a loop in the kernel.
 * `follows`: it may begin as soon as the kernel before lets it, whose end it awaits. `parameters`:
 * where each of the kernel's is. One function for all kernels: inlined, it would be as large for
 * each.
 */
__attribute__((noinline)) inline tg_status start_kernel(const tg_context *ctx, bool follows,
                                                        const void *kernel, dim3 grid, int threads,
                                                        size_t shared, void **parameters)
{
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
    return TG_OK;
  }
  cudaError_t e = cudaSuccess;
  if (shared > kSharedBytes / 2) { /* what is static counts too */
    e = allow_shared(ctx, kernel, shared);
  }
  if (e == cudaSuccess) {
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    config.stream = (cudaStream_t)ctx->device->stream;
    config.attrs = &overlap;
    config.numAttrs = follows ? 1 : 0;
    e = cudaLaunchKernelExC(&config, kernel, parameters);
  }
  return e == cudaSuccess ? TG_OK : report_launch(ctx, e);
}

/** The same, with the parameters themselves. */
template <typename... Params>
tg_status launch_kernel(const tg_context *ctx, bool follows, void (*kernel)(Params...), dim3 grid,
                        int threads, size_t shared, typename same_type<Params>::type... args)
{
  void *parameters[] = {(void *)&args...};
  return start_kernel(ctx, follows, (const void *)kernel, grid, threads, shared, parameters);
}

/** The same, behind all that the stream did before. */
template <typename... Params>
tg_status launch(const tg_context *ctx, void (*kernel)(Params...), dim3 grid, int threads,
                 size_t shared, typename same_type<Params>::type... args)
{
  return launch_kernel(ctx, false, kernel, grid, threads, shared, args...);
}

/** The same, of a kernel that calls await_kernel_before, as soon as the one before lets it begin.
 */
template <typename... Params>
tg_status launch_next(const tg_context *ctx, void (*kernel)(Params...), dim3 grid, int threads,
                      size_t shared, typename same_type<Params>::type... args)
{
  return launch_kernel(ctx, kOverlaps, kernel, grid, threads, shared, args...);
}

/** Whether kernels that read packed weights may begin before a call of the caller's has ended. */
inline bool may_overlap(const tg_context *ctx)
{
  return kOverlaps && ctx->device->overlaps;
}

/** The same of a call's first kernel where that may overlap; else as launch. */
template <typename... Params>
tg_status launch_overlapping(const tg_context *ctx, void (*kernel)(Params...), dim3 grid,
                             int threads, size_t shared, typename same_type<Params>::type... args)
{
  return launch_kernel(ctx, may_overlap(ctx), kernel, grid, threads, shared, args...);
}

/** A block for each of n pieces of work, in as far as a grid can have them: kernels loop by
 * gridDim.x over what is left. */
inline dim3 grid_of(int64_t n)
{
  return dim3((unsigned)(n < INT32_MAX ? n : INT32_MAX));
}

/** Blocks for n pieces of work that blocks take in turns: as many as there are, but at most
 * `waves` for each place on the device. */
inline unsigned blocks_for(const tg_context *ctx, int64_t n, int waves)
{
  const int64_t most = (int64_t)ctx->device->multiprocessors * waves;
  return (unsigned)(n < most ? n : most);
}

/** Sets bytes of device memory on the context's stream. */
inline tg_status fill_bytes(const tg_context *ctx, void *memory, int value, size_t bytes)
{
  const cudaError_t e =
      bytes ? cudaMemsetAsync(memory, value, bytes, (cudaStream_t)ctx->device->stream)
            : cudaSuccess;
  return e == cudaSuccess
             ? TG_OK
             : tgi_report(ctx, TG_DEVICE, "memset: expected success, got %s", cudaGetErrorName(e));
}

/** Copies bytes of device memory on the context's stream. */
inline tg_status copy_bytes(const tg_context *ctx, void *to, const void *from, size_t bytes)
{
  const cudaError_t e = bytes ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                                (cudaStream_t)ctx->device->stream)
                              : cudaSuccess;
  return e == cudaSuccess
             ? TG_OK
             : tgi_report(ctx, TG_DEVICE, "copy: expected success, got %s", cudaGetErrorName(e));
}

} // namespace TGI_CUDA_ENTRY

#endif
