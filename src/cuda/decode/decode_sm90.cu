/* Decoders on Hopper: which kernel serves a model, its memory, and its launches. */
#include "cuda/decode/decode_state.cuh"

#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "core/decoder_state.h"
tgi_decode_instance tgi_decode_gpt2_124m(void);
tgi_decode_instance tgi_decode_qwen3_600m(void);
tgi_decode_instance tgi_decode_qwen3_1700m(void);
tgi_decode_instance tgi_decode_qwen3_8b(void);
tgi_decode_instance tgi_decode_llama32_1b(void);
tgi_decode_instance tgi_decode_llama31_8b(void);
}

namespace
{

constexpr uint32_t kLastEpoch = 1u << 30; /* words of x have twice the epoch */

struct decoder_sm90 {
  tgi_decode_instance kind;
  decode_maps maps;
  decode_job job;
  size_t shared, words_bytes;
  char *memory; /* of the device: words, the best of blocks, a counter, addresses of the cache */
  char name[64];
};

bool serves(const tgi_decode_instance *d, const tg_decoder_model *m)
{
  const bool gpt = m->norm1_bias.ndim != 0, qk = m->q_norm.ndim != 0;
  return d->hidden == m->tokens.shape[1] && d->heads == m->heads && d->kv_heads == m->kv_heads &&
         d->head_dim == m->head_dim && d->inner == m->down.shape[2] && (d->gpt != 0) == gpt &&
         (d->qk_norm != 0) == qk;
}

tg_status find_kernel(const tg_context *ctx, const tg_decoder_model *m, tgi_decode_instance *out)
{
  tgi_decode_instance (*const all[])(void) = {tgi_decode_gpt2_124m,   tgi_decode_qwen3_600m,
                                              tgi_decode_qwen3_1700m, tgi_decode_qwen3_8b,
                                              tgi_decode_llama32_1b,  tgi_decode_llama31_8b};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    *out = all[i]();
    if (serves(out, m)) {
      return TG_OK;
    }
  }
  return tgi_report(ctx, TG_UNSUPPORTED,
                    "decoder_create: model: expected widths that a kernel is there for, got hidden "
                    "%lld, %d heads of %d, %d key heads, inner %lld",
                    (long long)m->tokens.shape[1], m->heads, m->head_dim, m->kv_heads,
                    (long long)m->down.shape[2]);
}

/* All blocks at once, with as many stages as shared memory has room for. */
tg_status find_room(const tg_context *ctx, decoder_sm90 *d)
{
  const size_t most = (size_t)ctx->device->shared_bytes;
  int resident = 0, cooperative = 0;
  d->job.stages = (int)((most - d->kind.fixed_bytes) / d->kind.stage_bytes);
  d->shared = d->kind.fixed_bytes + d->job.stages * d->kind.stage_bytes;
  cudaError_t e = allow_shared(ctx, d->kind.kernel, d->shared);
  if (e == cudaSuccess) {
    e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, d->kind.kernel, d->kind.threads,
                                                      d->shared);
  }
  if (e == cudaSuccess) {
    e = cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, ctx->device->index);
  }
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    return tgi_report(ctx, TG_DEVICE, "decoder_create: expected success, got %s",
                      cudaGetErrorName(e));
  }
  if (!cooperative || resident * ctx->device->multiprocessors < d->kind.blocks) {
    return tgi_report(ctx, TG_UNSUPPORTED,
                      "decoder_create: expected room for %d blocks at once, got %d on %d "
                      "multiprocessors%s",
                      d->kind.blocks, resident, ctx->device->multiprocessors,
                      cooperative ? "" : " without cooperative launches");
  }
  return TG_OK;
}

/* [layers, k / atom, rows, atom] of a matrix [layers, rows, k]. */
tg_status make_map(const tg_context *ctx, const decoder_sm90 *d, const tg_tensor *t,
                   CUtensorMap *map)
{
  const bool layered = t->ndim == 3;
  const int64_t rows = t->shape[layered], k = t->shape[layered + 1];
  const cuuint64_t atom = (cuuint64_t)d->kind.atom;
  const cuuint32_t box[4] = {(cuuint32_t)atom, 8, (cuuint32_t)(d->kind.stage_k / d->kind.atom), 1};
  const cuuint32_t every[4] = {1, 1, 1, 1};
  const cuuint64_t extent[4] = {atom, (cuuint64_t)rows, (cuuint64_t)k / atom,
                                layered ? (cuuint64_t)t->shape[0] : 1};
  const cuuint64_t step[3] = {(cuuint64_t)k * 2, atom * 2,
                              (cuuint64_t)(layered && t->shape[0] > 1 ? t->stride[0] * 2 : 16)};
  void *encode = NULL;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                         cudaEnableDefault, &found);
  if (e != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    return tgi_report(ctx, TG_UNSUPPORTED,
                      "decoder_create: expected a driver with cuTensorMapEncodeTiled, got one "
                      "without (%s)",
                      cudaGetErrorName(e));
  }
  const CUresult r = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode)(
      map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, t->data, extent, step, box, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      d->kind.atom == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return r == CUDA_SUCCESS ? TG_OK
                           : tgi_report(ctx, TG_DEVICE,
                                        "cuTensorMapEncodeTiled: expected success, got %d", (int)r);
}

tg_status make_maps(const tg_context *ctx, decoder_sm90 *d, const tg_decoder_model *m)
{
  const tg_tensor *of[kMatrices] = {&m->qkv, &m->out, &m->up, &m->down, &m->head};
  tg_status status = TG_OK;
  for (int i = 0; i < kMatrices && status == TG_OK; i++) {
    status = make_map(ctx, d, of[i], &d->maps.of[i]);
  }
  return status;
}

const __nv_bfloat16 *elements(const tg_tensor &t)
{
  return static_cast<const __nv_bfloat16 *>(t.data);
}

void fill_job(decoder_sm90 *d, const tg_decoder_model *m)
{
  decode_job &j = d->job;
  j.vector = {elements(m->norm1),      elements(m->norm1_bias), elements(m->norm2),
              elements(m->norm2_bias), elements(m->q_norm),     elements(m->k_norm),
              elements(m->qkv_bias),   elements(m->out_bias),   elements(m->up_bias),
              elements(m->down_bias)};
  j.layer_step = m->layers > 1 ? m->qkv.stride[0] : 0;
  j.tokens = elements(m->tokens);
  j.positions = elements(m->positions);
  j.final_norm = elements(m->final_norm);
  j.final_norm_bias = elements(m->final_norm_bias);
  j.cos = static_cast<const float *>(m->cos.data);
  j.sin = static_cast<const float *>(m->sin.data);
  j.layers = m->layers;
  j.vocab = (int)m->tokens.shape[0];
  j.block_tokens = m->block_tokens;
  j.eps = m->norm_eps;
  j.scale = m->scale;
}

/* Words, cleared; the best of blocks; the counter; and where the layers' keys and values are. */
tg_status take_memory(tg_context *ctx, decoder_sm90 *d, const tg_decoder_model *m)
{
  const size_t lists = 2 * (size_t)m->layers * sizeof(void *);
  size_t words = 0;
  for (int i = 0; i < TGI_WORDS_KINDS; i++) {
    words += (d->kind.words[i] + 15) / 16 * 16;
  }
  d->words_bytes = words * sizeof(decode_word);
  const size_t best = d->words_bytes, ended = best + d->kind.blocks * sizeof(decode_word);
  const size_t cache = ended + 256, bytes = cache + lists;
  void *memory, **list = static_cast<void **>(malloc(lists));
  tg_status status =
      list ? tg_memory_allocate(ctx, bytes, &memory)
           : tgi_report(ctx, TG_NO_MEMORY, "decoder_create: expected %zu bytes, got none", lists);
  if (status == TG_OK) {
    decode_word *at = reinterpret_cast<decode_word *>(d->memory = static_cast<char *>(memory));
    for (int i = 0; i < TGI_WORDS_KINDS; i++) {
      d->job.words[i] = at;
      at += (d->kind.words[i] + 15) / 16 * 16;
    }
    d->job.best = reinterpret_cast<decode_word *>(d->memory + best);
    d->job.ended = reinterpret_cast<unsigned *>(d->memory + ended);
    d->job.cache = reinterpret_cast<__nv_bfloat16 *const *>(d->memory + cache);
    for (int i = 0; i < m->layers; i++) {
      list[2 * i] = m->keys[i].data;
      list[2 * i + 1] = m->values[i].data;
    }
    status = tg_memory_zero(ctx, memory, cache);
    status = status ? status : tg_memory_copy(ctx, d->memory + cache, lists, list, lists, lists, 1);
  }
  free(list);
  return status;
}

/* A launch tells the kernel the number of its words: a graph would repeat it, and its blocks take
 * words of the launch before for those of their own. Asking the legacy stream, which cannot be
 * captured, would end the capture of another. */
tg_status refuse_capture(const tg_context *ctx)
{
  const cudaStream_t stream = (cudaStream_t)ctx->device->stream;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t e = stream ? cudaStreamIsCapturing(stream, &capture) : cudaSuccess;
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    return tgi_report(ctx, TG_DEVICE, "decoder_run: expected success, got %s (%s)",
                      cudaGetErrorName(e), cudaGetErrorString(e));
  }
  return capture == cudaStreamCaptureStatusNone
             ? TG_OK
             : tgi_report(ctx, TG_UNSUPPORTED,
                          "decoder_run: expected a stream that is not captured, got one of a graph "
                          "that is being recorded");
}

} // namespace

extern "C" void tgi_decoder_close_sm90(tg_context *ctx, void *decoder)
{
  decoder_sm90 *d = static_cast<decoder_sm90 *>(decoder);
  if (d) {
    tg_memory_free(ctx, d->memory);
    free(d);
  }
}

extern "C" tg_status tgi_decoder_open_sm90(tg_context *ctx, const tg_decoder_model *m, void **out)
{
  decoder_sm90 *d = static_cast<decoder_sm90 *>(calloc(1, sizeof *d));
  *out = NULL;
  if (!d) {
    return tgi_report(ctx, TG_NO_MEMORY, "decoder_create: expected %zu bytes, got none", sizeof *d);
  }
  tg_status status = find_kernel(ctx, m, &d->kind);
  if (status == TG_OK) {
    fill_job(d, m);
    status = find_room(ctx, d);
  }
  status = status ? status : make_maps(ctx, d, m);
  status = status ? status : take_memory(ctx, d, m);
  if (status != TG_OK) {
    tgi_decoder_close_sm90(ctx, d);
    return status;
  }
  snprintf(d->name, sizeof d->name, "%s, %d blocks", d->kind.name, d->kind.blocks);
  *out = d;
  return TG_OK;
}

extern "C" tg_status tgi_decoder_run_sm90(const tg_context *ctx, void *decoder,
                                          const tg_decoder_step *step)
{
  decoder_sm90 *d = static_cast<decoder_sm90 *>(decoder);
  decode_job job = d->job;
  const tg_status refused = refuse_capture(ctx);
  if (refused != TG_OK) {
    return refused;
  }
  if (d->job.epoch > kLastEpoch) {
    const tg_status status = fill_bytes(ctx, d->memory, 0, d->words_bytes);
    if (status != TG_OK) {
      return status;
    }
    d->job.epoch = job.epoch = 0;
  }
  job.position = (int)step->position;
  job.table = static_cast<const int32_t *>(step->block_table.data);
  job.id = static_cast<const int32_t *>(step->id.data);
  job.greedy = static_cast<int32_t *>(step->greedy.data);
  job.logits = static_cast<float *>(step->logits.data);
  d->job.epoch += (uint32_t)job.layers + 1;
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)d->kind.blocks);
  config.blockDim = dim3((unsigned)d->kind.threads);
  config.dynamicSmemBytes = d->shared;
  config.stream = (cudaStream_t)ctx->device->stream;
  config.attrs = &together;
  config.numAttrs = 1;
  void *arguments[] = {&d->maps, &job};
  const cudaError_t e = cudaLaunchKernelExC(&config, d->kind.kernel, arguments);
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    return tgi_report(ctx, TG_DEVICE, "decoder_run: expected success, got %s (%s)",
                      cudaGetErrorName(e), cudaGetErrorString(e));
  }
  return TG_OK;
}

extern "C" const char *tgi_decoder_name_sm90(const void *decoder)
{
  return static_cast<const decoder_sm90 *>(decoder)->name;
}
