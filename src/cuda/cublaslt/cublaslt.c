/* cublasLt's interface is column-major: C' [n, m] = B' A', where a row-major matrix is its own
 * transpose. What has been planned is kept in a table of the context, by form and alignment. */
#include "cuda/cublaslt/cublaslt.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cublaslt/cublaslt_choice.h"

/* ---- the part of cublasLt's interface that is used (documentation of CUDA 13, cublasLt API) ----
 */

enum { kLeastVersion = 120000, kComputeF32 = 68, kComputeTf32 = 77 };
enum { kRealF32 = 0, kRealF16 = 2, kRealBf16 = 14 };
enum { kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8, kBiasType = 26 };
enum { kEpilogueNone = 1, kEpilogueBias = 4 };
enum { kNotSupported = 15 };
enum { kMostWorkspace = 1, kReductions = 3, kAlignA = 5, kAlignB = 6, kAlignC = 7, kAlignD = 8 };
enum { kTile = 1 };

typedef struct lt_algorithm {
  uint64_t data[8];
} lt_algorithm;

typedef struct lt_result {
  lt_algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
} lt_result;

#define LT_FUNCTIONS(X)                                                                            \
  X(GetVersion, size_t, (void))                                                                    \
  X(Create, int, (void **handle))                                                                  \
  X(Destroy, int, (void *handle))                                                                  \
  X(MatmulDescCreate, int, (void **desc, int compute, int scale))                                  \
  X(MatmulDescDestroy, int, (void *desc))                                                          \
  X(MatmulDescSetAttribute, int, (void *desc, int which, const void *value, size_t bytes))         \
  X(MatrixLayoutCreate, int, (void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld))  \
  X(MatrixLayoutDestroy, int, (void *layout))                                                      \
  X(MatmulPreferenceCreate, int, (void **preference))                                              \
  X(MatmulPreferenceDestroy, int, (void *preference))                                              \
  X(MatmulPreferenceSetAttribute, int,                                                             \
    (void *preference, int which, const void *value, size_t bytes))                                \
  X(MatmulAlgoGetHeuristic, int,                                                                   \
    (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,   \
     lt_result *results, int *found))                                                              \
  X(MatmulAlgoConfigGetAttribute, int,                                                             \
    (const lt_algorithm *algorithm, int which, void *value, size_t bytes, size_t *written))        \
  X(Matmul, int,                                                                                   \
    (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,    \
     void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,     \
     const lt_algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream))

typedef struct lt_library {
#define POINTER(name, type, parameters) type(*name) parameters;
  LT_FUNCTIONS(POINTER)
#undef POINTER
} lt_library;

/* ---- plans ---- */

/* What an algorithm depends on. All of it, padding included, is compared. */
typedef struct lt_form {
  int64_t m, n, k, a_step, b_step, c_step, add_step;
  uint32_t align_a, align_b, align_c, align_add;
  int32_t type, c_type, bias_type; /* bias_type -1: none */
  int32_t turned_a, turned_b, add, compute;
} lt_form;

typedef struct lt_plan {
  lt_form form;
  bool used, possible;
  void *desc, *a, *b, *c, *add;
  lt_algorithm algorithm;
} lt_plan;

enum { kPlans = 512, kProbes = 8, kMostAlignment = 256, kBiasAlignment = 16 };
enum { kCandidates = 8 };

static const uint64_t kWorkspace = 32 << 20;

struct tgi_lt {
  lt_library call;
  int sm; /* compute capability of the device: 90 for 9.0 */
  void *library, *handle;
  void *workspace; /* kWorkspace bytes of the device: a context's calls follow each other */
  lt_plan plans[kPlans];
};

static void forget(tgi_lt *lt, lt_plan *p)
{
  void *const layouts[] = {p->a, p->b, p->c, p->add};
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
    if (layouts[i]) {
      lt->call.MatrixLayoutDestroy(layouts[i]);
    }
  }
  if (p->desc) {
    lt->call.MatmulDescDestroy(p->desc);
  }
  memset(p, 0, sizeof *p);
}

static bool load_functions(tgi_lt *lt)
{
  bool all = true;
#define LOAD(name, type, parameters)                                                               \
  *(void **)&lt->call.name = dlsym(lt->library, "cublasLt" #name);                                 \
  all = all && lt->call.name;
  LT_FUNCTIONS(LOAD)
#undef LOAD
  return all;
}

tgi_lt *tgi_lt_open(int sm, char *why, size_t bytes)
{
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
  tgi_lt *lt = calloc(1, sizeof *lt);
  if (lt) {
    lt->sm = sm;
  }
  for (size_t i = 0; lt && !lt->library && i < sizeof names / sizeof names[0]; i++) {
    lt->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  }
  if (!lt || !lt->library) {
    snprintf(why, bytes, "expected libcublasLt.so.13 or .12, got neither");
  } else if (!load_functions(lt)) {
    snprintf(why, bytes, "expected the functions of cublasLt, got a library without some");
  } else if (lt->call.GetVersion() < kLeastVersion) {
    snprintf(why, bytes, "expected cublasLt %d or later, got %zu", kLeastVersion,
             lt->call.GetVersion());
  } else if (lt->call.Create(&lt->handle) != 0) {
    lt->handle = NULL;
    snprintf(why, bytes, "expected a handle of cublasLt, got none");
  } else if (cudaMalloc(&lt->workspace, kWorkspace) != cudaSuccess) {
    (void)cudaGetLastError();
    snprintf(why, bytes, "expected %llu bytes for cublasLt, got none",
             (unsigned long long)kWorkspace);
  } else {
    return lt;
  }
  tgi_lt_close(lt);
  return NULL;
}

void tgi_lt_close(tgi_lt *lt)
{
  for (int i = 0; lt && i < kPlans; i++) {
    forget(lt, &lt->plans[i]);
  }
  if (lt && lt->workspace) {
    cudaFree(lt->workspace);
  }
  if (lt && lt->handle) {
    lt->call.Destroy(lt->handle);
  }
  if (lt && lt->library) {
    dlclose(lt->library);
  }
  free(lt);
}

static int real_type(tg_dtype dtype)
{
  return dtype == TG_F32 ? kRealF32 : dtype == TG_F16 ? kRealF16 : kRealBf16;
}

/* Largest power of two up to kMostAlignment that divides the address and the bytes of a step. */
static uint32_t alignment(const void *data, int64_t step, tg_dtype dtype)
{
  const uint64_t bits = (uint64_t)(uintptr_t)data | (uint64_t)step * tg_dtype_bytes(dtype);
  const uint64_t lowest = bits & (~bits + 1);
  return lowest == 0 || lowest > kMostAlignment ? kMostAlignment : (uint32_t)lowest;
}

static lt_form form_of(const tgi_lt_product *p)
{
  lt_form f;
  memset(&f, 0, sizeof f);
  f.m = p->m;
  f.n = p->n;
  f.k = p->k;
  f.a_step = p->a.step;
  f.b_step = p->b.step;
  f.c_step = p->c_step;
  f.add_step = p->add ? p->add_step : p->c_step;
  f.align_a = alignment(p->a.data, p->a.step, p->a.dtype);
  f.align_b = alignment(p->b.data, p->b.step, p->b.dtype);
  f.align_c = alignment(p->c, p->c_step, p->c_dtype);
  f.align_add = p->add ? alignment(p->add, p->add_step, p->c_dtype) : f.align_c;
  f.type = real_type(p->a.dtype);
  f.c_type = real_type(p->c_dtype);
  f.bias_type = p->bias ? real_type(p->bias_dtype) : -1;
  f.turned_a = p->a.turned;
  f.turned_b = p->b.turned;
  f.add = p->add != NULL;
  f.compute = p->allow_tf32 && p->a.dtype == TG_F32 ? kComputeTf32 : kComputeF32;
  return f;
}

static bool describe(tgi_lt *lt, lt_plan *p)
{
  const lt_library *c = &lt->call;
  const lt_form *f = &p->form;
  /* cublasLt's first operand is B', stored [n, k] by columns unless B is turned. */
  const int turn_first = f->turned_b ? 1 : 0, turn_second = f->turned_a ? 1 : 0;
  const int epilogue = f->bias_type < 0 ? kEpilogueNone : kEpilogueBias;
  const int bias_type = f->bias_type;
  const uint64_t m = (uint64_t)f->m, n = (uint64_t)f->n, k = (uint64_t)f->k;
  bool ok = c->MatmulDescCreate(&p->desc, f->compute, kRealF32) == 0 &&
            c->MatmulDescSetAttribute(p->desc, kTransA, &turn_first, sizeof turn_first) == 0 &&
            c->MatmulDescSetAttribute(p->desc, kTransB, &turn_second, sizeof turn_second) == 0 &&
            c->MatmulDescSetAttribute(p->desc, kEpilogue, &epilogue, sizeof epilogue) == 0;
  if (ok && bias_type >= 0) {
    ok = c->MatmulDescSetAttribute(p->desc, kBiasType, &bias_type, sizeof bias_type) == 0;
  }
  return ok &&
         c->MatrixLayoutCreate(&p->a, f->type, turn_first ? k : n, turn_first ? n : k, f->b_step) ==
             0 &&
         c->MatrixLayoutCreate(&p->b, f->type, turn_second ? m : k, turn_second ? k : m,
                               f->a_step) == 0 &&
         c->MatrixLayoutCreate(&p->c, f->c_type, n, m, f->c_step) == 0 &&
         c->MatrixLayoutCreate(&p->add, f->c_type, n, m, f->add_step) == 0;
}

static uint32_t tile_of(const tgi_lt *lt, const lt_result *r)
{
  uint32_t tile = 0;
  size_t written = 0;
  const int status =
      lt->call.MatmulAlgoConfigGetAttribute(&r->algorithm, kTile, &tile, sizeof tile, &written);
  return status == 0 ? tile : 0;
}

/* The candidate to take. */
static int best_of(const tgi_lt *lt, const lt_form *f, const lt_result *results, int found)
{
  tgi_lt_candidate candidates[kCandidates];
  if (lt->sm != 90 || f->type == kRealF32) {
    return 0;
  }
  for (int i = 0; i < found; i++) {
    candidates[i].tile = tile_of(lt, &results[i]);
    candidates[i].waves = results[i].status == 0 ? results[i].waves : 0;
  }
  return tgi_lt_choice(candidates, found, f->k);
}

static bool choose(tgi_lt *lt, lt_plan *p)
{
  const lt_library *c = &lt->call;
  const lt_form *f = &p->form;
  void *preference = NULL;
  lt_result results[kCandidates];
  const uint32_t in_f32 = 2; /* parts of a sum that was split along k are added before rounding */
  int found = 0;
  memset(results, 0, sizeof results);
  const bool ok =
      c->MatmulPreferenceCreate(&preference) == 0 &&
      c->MatmulPreferenceSetAttribute(preference, kMostWorkspace, &kWorkspace, sizeof kWorkspace) ==
          0 &&
      c->MatmulPreferenceSetAttribute(preference, kReductions, &in_f32, sizeof in_f32) == 0 &&
      c->MatmulPreferenceSetAttribute(preference, kAlignA, &f->align_b, sizeof f->align_b) == 0 &&
      c->MatmulPreferenceSetAttribute(preference, kAlignB, &f->align_a, sizeof f->align_a) == 0 &&
      c->MatmulPreferenceSetAttribute(preference, kAlignC, &f->align_add, sizeof f->align_add) ==
          0 &&
      c->MatmulPreferenceSetAttribute(preference, kAlignD, &f->align_c, sizeof f->align_c) == 0 &&
      c->MatmulAlgoGetHeuristic(lt->handle, p->desc, p->a, p->b, p->add, p->c, preference,
                                kCandidates, results, &found) == 0;
  if (preference) {
    c->MatmulPreferenceDestroy(preference);
  }
  if (!ok || found < 1) {
    return false;
  }
  const lt_result *best = &results[best_of(lt, &p->form, results, found)];
  p->algorithm = best->algorithm;
  return best->status == 0;
}

static uint64_t hash(const lt_form *form)
{
  const unsigned char *bytes = (const unsigned char *)form;
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < sizeof *form; i++) {
    h = (h ^ bytes[i]) * 1099511628211u;
  }
  return h;
}

/* The plan of a form: a known one, else a new one in the first free place, or in the place of
 * another. */
static lt_plan *plan_for(tgi_lt *lt, const lt_form *form)
{
  const uint64_t start = hash(form);
  lt_plan *place = &lt->plans[start % kPlans];
  for (int i = 0; i < kProbes; i++) {
    lt_plan *p = &lt->plans[(start + (uint64_t)i) % kPlans];
    if (!p->used) {
      place = p;
      break;
    }
    if (memcmp(&p->form, form, sizeof *form) == 0) {
      return p;
    }
  }
  forget(lt, place);
  place->form = *form;
  place->used = true;
  place->possible = describe(lt, place) && choose(lt, place);
  return place;
}

bool tgi_lt_ready(const tg_context *ctx)
{
  return ctx->device && ctx->device->lt;
}

/* Its kernels for matrices that are not aligned round the product before they add a bias. */
static bool bias_fits(const tgi_lt_product *p)
{
  return !p->bias || ((uintptr_t)p->bias % kBiasAlignment == 0 &&
                      alignment(p->a.data, p->a.step, p->a.dtype) >= kBiasAlignment &&
                      alignment(p->b.data, p->b.step, p->b.dtype) >= kBiasAlignment &&
                      alignment(p->c, p->c_step, p->c_dtype) >= kBiasAlignment);
}

/* NULL: not a form that it takes. */
static lt_plan *usable_plan(const tg_context *ctx, const tgi_lt_product *p)
{
  if (!tgi_lt_ready(ctx) || !bias_fits(p) || p->a.dtype != p->b.dtype || p->m == 0 || p->n == 0 ||
      p->k == 0 || (p->c_dtype != TG_F32 && p->c_dtype != p->a.dtype)) {
    return NULL;
  }
  const lt_form form = form_of(p);
  lt_plan *plan = plan_for(ctx->device->lt, &form);
  return plan->possible ? plan : NULL;
}

bool tgi_lt_plan(const tg_context *ctx, const tgi_lt_product *p)
{
  return usable_plan(ctx, p) != NULL;
}

tg_status tgi_lt_multiply(const tg_context *ctx, const tgi_lt_product *p)
{
  tgi_lt *lt = ctx->device->lt;
  const lt_plan *plan = usable_plan(ctx, p);
  if (!plan || (p->bias && lt->call.MatmulDescSetAttribute(plan->desc, kBiasPointer, &p->bias,
                                                           sizeof p->bias) != 0)) {
    return TG_UNSUPPORTED;
  }
  const float one = 1, beta = p->add ? 1 : 0;
  const int status =
      lt->call.Matmul(lt->handle, plan->desc, &one, p->b.data, plan->a, p->a.data, plan->b, &beta,
                      p->add ? p->add : p->c, plan->add, p->c, plan->c, &plan->algorithm,
                      lt->workspace, kWorkspace, ctx->device->stream);
  if (status == kNotSupported) { /* before anything was started */
    return TG_UNSUPPORTED;
  }
  return status == 0
             ? TG_OK
             : tgi_report(ctx, TG_DEVICE, "cublasLtMatmul: expected success, got %d", status);
}
