/* GPUs as the library describes them, and what only a GPU does: graphs, late data errors. Where
 * there is no GPU, those tests are skipped and the rest runs on the CPU. */
#include "cuda/runtime/kernel_loading.h"
#include "ops/kernels.h"
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "open_context.h"
#include "sm90_rows.h"

static void test_no_such_gpu(void **state)
{
  (void)state;
  const int count = tg_device_count();
  tg_device_info info;
  tg_error error = {0};
  const tg_status expected = tg_device_get_info(count, &info, &error);
  assert_true(expected == TG_BAD_ARGUMENT || (count == 0 && expected == TG_UNSUPPORTED));
  assert_int_equal(error.status, expected);
  assert_non_null(strstr(error.text, "device_get_info: index: expected"));
  assert_int_equal(tg_device_get_info(-1, &info, NULL), expected);
  assert_int_equal(tg_device_get_info(0, NULL, &error), TG_BAD_ARGUMENT);
  assert_non_null(strstr(error.text, "out: expected a pointer"));
}

/* The table of sm90, in builds for such a GPU. */
extern const tgi_kernel_table tgi_kernel_table_sm90 __attribute__((weak));

/* Programs that link the library statically have the kernels that its table asks for weakly. */
static void test_partial_entry(void **state)
{
  (void)state;
  const tgi_kernel_table *table = &tgi_kernel_table_sm90;
  if (!table) {
    skip();
  }
  assert_non_null(table->attention_fwd.run);
  assert_non_null(table->softmax_fwd.run);
  assert_non_null(table->softmax_bwd.run);
  assert_non_null(table->cross_entropy_fwdbwd.run);
  assert_null(table->rms_norm_fwd.run);
#define OP(op, dir, ws) assert_int_equal(table->op##_##dir.run != NULL, is_sm90_row(#op "_" #dir));
#include "ops/ops.def"
}

static void test_every_gpu(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  for (int i = 0; i < tg_device_count(); i++) {
    tg_device_info info;
    tg_error error;
    assert_int_equal(tg_device_get_info(i, &info, &error), TG_OK);
    assert_true(strlen(info.name) > 0);
    assert_true(info.compute_capability >= 30 && info.multiprocessors > 0);
    assert_true(info.free_bytes > 0 && info.free_bytes <= info.memory_bytes);
    assert_true(info.shared_bytes >= 48 * 1024);
    assert_true((strlen(info.kernels) > 0) == info.supported);
    assert_true((strlen(info.reason) > 0) == !info.supported);
    if (info.supported) {
      assert_non_null(strstr(info.kernels, "any"));
    }
  }
}

static void test_loading_on_a_cpu(void **state)
{
  (void)state;
  tg_context *ctx = open_context(TG_BACKEND_CPU);
  int64_t found = 7, loaded = 7;
  assert_int_equal(tg_context_load_kernels(ctx, &found, &loaded), TG_OK);
  assert_true(found == 0 && loaded == 0);
  assert_int_equal(tg_context_load_kernels(ctx, NULL, NULL), TG_OK);
  assert_int_equal(tg_context_load_kernels(NULL, &found, NULL), TG_BAD_ARGUMENT);
  tg_context_destroy(ctx);
}

/* No .cu file is left out of the table. */
static void test_every_file_is_a_module(void **state)
{
  (void)state;
#ifdef TGI_CUDA_FILES
  assert_int_equal(tgi_module_count(), TGI_CUDA_FILES);
#else
  skip();
#endif
}

static void test_loading_every_kernel(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  tg_context *ctx = open_context(TG_BACKEND_CUDA);
  int64_t found = 0, loaded = 0, again = 0, late = -1;
  const tg_status status = tg_context_load_kernels(ctx, &found, &loaded);
  if (status == TG_UNSUPPORTED) {
    assert_non_null(strstr(tg_context_message(ctx), "expected a driver of CUDA 12.4 or later"));
    tg_context_destroy(ctx);
    skip();
  }
  assert_int_equal(status, TG_OK);
  assert_true(found > 2 * TGI_ROWS); /* f32, bf16 and f16, of most ops in several forms */
  assert_true(loaded > found / 2 && loaded <= found);
  assert_int_equal(tg_context_load_kernels(ctx, &again, &late), TG_OK);
  assert_true(again == found && late == 0);
  tg_context_destroy(ctx);
}

typedef struct doubling {
  tg_context *ctx;
  tg_silu_fwd_args args;
  tg_status end; /* what the body returns after its call */
} doubling;

static tg_status run_silu(void *arg)
{
  doubling *d = arg;
  const tg_status status = tg_silu_fwd(d->ctx, &d->args);
  return status ? status : d->end;
}

static void test_graphs_need_a_gpu(void **state)
{
  (void)state;
  doubling d = {.ctx = open_context(TG_BACKEND_CPU)};
  tg_graph *graph = NULL;
  assert_int_equal(tg_graph_record(d.ctx, run_silu, &d, &graph), TG_UNSUPPORTED);
  assert_null(graph);
  assert_non_null(strstr(tg_context_message(d.ctx), "graph_record: ctx: expected a context on a"));
  assert_int_equal(tg_graph_record(d.ctx, NULL, &d, &graph), TG_BAD_ARGUMENT);
  assert_int_equal(tg_graph_record(NULL, run_silu, &d, &graph), TG_BAD_ARGUMENT);
  assert_int_equal(tg_graph_launch(d.ctx, NULL), TG_BAD_ARGUMENT);
  tg_graph_destroy(d.ctx, NULL);
  tg_context_destroy(d.ctx);
}

/* Recorded on the default stream, launched twice on new data; a body that fails leaves its message
 * and a context that works. */
static void test_graphs(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  enum { kCount = 1000 };
  tg_context *ctx = open_context(TG_BACKEND_CUDA);
  float x[kCount], want[kCount], y[kCount];
  void *there = NULL;
  tg_graph *graph = NULL;
  assert_int_equal(tg_memory_allocate(ctx, 2 * sizeof x, &there), TG_OK);
  float *out = (float *)there + kCount;
  doubling d = {.ctx = ctx,
                .args = {.x = tg_tensor_2d(there, TG_F32, 1, kCount),
                         .y = tg_tensor_2d(out, TG_F32, 1, kCount)}};
  for (int turn = 0; turn < 3; turn++) {
    for (int i = 0; i < kCount; i++) {
      x[i] = (float)(i - 500 + turn) * 0.01f;
    }
    tg_memory_copy(ctx, there, sizeof x, x, sizeof x, sizeof x, 1);
    assert_int_equal(tg_silu_fwd(ctx, &d.args), TG_OK);
    tg_memory_copy(ctx, want, sizeof want, out, sizeof want, sizeof want, 1);
    tg_memory_zero(ctx, out, sizeof y);
    if (turn == 0) {
      assert_int_equal(tg_graph_record(ctx, run_silu, &d, &graph), TG_OK);
      assert_non_null(graph);
      tg_memory_copy(ctx, y, sizeof y, out, sizeof y, sizeof y, 1);
      assert_true(y[kCount - 1] == 0); /* nothing ran */
    }
    assert_int_equal(tg_graph_launch(ctx, graph), TG_OK);
    tg_memory_copy(ctx, y, sizeof y, out, sizeof y, sizeof y, 1);
    assert_memory_equal(y, want, sizeof y);
  }
  tg_graph *none = graph;
  d.end = TG_IO;
  assert_int_equal(tg_graph_record(ctx, run_silu, &d, &none), TG_IO);
  assert_null(none);
  d.args.y.shape[1] = kCount - 1;
  assert_int_equal(tg_graph_record(ctx, run_silu, &d, &none), TG_BAD_SHAPE);
  assert_non_null(strstr(tg_context_message(ctx), "silu_fwd: y:"));
  d.args.y.shape[1] = kCount;
  assert_int_equal(tg_silu_fwd(ctx, &d.args), TG_OK);
  assert_int_equal(tg_context_check(ctx), TG_OK);
  tg_graph_destroy(ctx, graph);
  tg_memory_free(ctx, there);
  tg_context_destroy(ctx);
}

/* Three ids out of range: the first is named, the rows are NaN, and the next check is clean. */
static void test_late_data_error(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  enum { kTokens = 1000, kRows = 5, kCols = 8 };
  tg_context *ctx = open_context(TG_BACKEND_CUDA);
  int32_t ids[kTokens];
  float table[kRows * kCols], y[kTokens * kCols];
  for (int i = 0; i < kTokens; i++) {
    ids[i] = i % kRows;
  }
  ids[900] = -1;
  ids[77] = 5;
  ids[300] = 1 << 30;
  for (int i = 0; i < kRows * kCols; i++) {
    table[i] = (float)i;
  }
  void *device = NULL;
  assert_int_equal(tg_memory_allocate(ctx, sizeof ids + sizeof table + sizeof y, &device), TG_OK);
  char *device_table = (char *)device + sizeof ids, *device_y = device_table + sizeof table;
  tg_memory_copy(ctx, device, sizeof ids, ids, sizeof ids, sizeof ids, 1);
  tg_memory_copy(ctx, device_table, sizeof table, table, sizeof table, sizeof table, 1);
  const tg_embedding_fwd_args args = {.ids = tg_tensor_1d(device, TG_I32, kTokens),
                                      .table = tg_tensor_2d(device_table, TG_F32, kRows, kCols),
                                      .y = tg_tensor_2d(device_y, TG_F32, kTokens, kCols)};
  assert_int_equal(tg_embedding_fwd(ctx, &args), TG_OK);
  assert_int_equal(tg_context_check(ctx), TG_BAD_ARGUMENT);
  assert_string_equal(tg_context_message(ctx), "embedding_fwd: ids[77]: expected 0 to 4, got 5");
  assert_int_equal(tg_context_check(ctx), TG_OK);
  tg_memory_copy(ctx, y, sizeof y, device_y, sizeof y, sizeof y, 1);
  for (int i = 0; i < kTokens * kCols; i++) {
    const int32_t id = ids[i / kCols];
    if (id < 0 || id >= kRows) {
      assert_true(isnan(y[i]));
    } else {
      assert_true(y[i] == table[id * kCols + i % kCols]);
    }
  }
  tg_memory_free(ctx, device);
  tg_context_destroy(ctx);
}

/* A slot out of range of rows without columns: it is named, its row alone is NaN. */
static void test_bad_slot_without_columns(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  enum { kRows = 3, kOut = 5 };
  typedef struct memory {
    char packed[64]; /* the header alone */
    float weight[4], y[kRows * kOut];
    int32_t offsets[2], slot[kRows];
  } memory;
  tg_context *ctx = open_context(TG_BACKEND_CUDA);
  memory host = {.offsets = {0, kRows}, .slot = {2, 7, 0}};
  char none = 0;
  const tg_grouped_linear_mxfp4_pack_source pack = {
      .blocks = {.data = &none, .dtype = TG_U8, .ndim = 4, .shape = {1, kOut, 0, 16}},
      .scales = {.data = &none, .dtype = TG_U8, .ndim = 3, .shape = {1, kOut, 0}},
      .packed = tg_tensor_1d(host.packed, TG_U8, sizeof host.packed)};
  assert_int_equal(tg_grouped_linear_mxfp4_pack(&pack, NULL), TG_OK);
  void *device = NULL, *workspace = NULL;
  assert_int_equal(tg_memory_allocate(ctx, sizeof host, &device), TG_OK);
  assert_int_equal(tg_memory_allocate(ctx, 1 << 16, &workspace), TG_OK);
  memory *there = device;
  for (int mxfp4 = 0; mxfp4 < 2; mxfp4++) {
    tg_memory_copy(ctx, device, sizeof host, &host, sizeof host, sizeof host, 1);
    const tg_tensor x = tg_tensor_2d(there->weight, TG_F32, kRows, 0);
    const tg_tensor y = tg_tensor_2d(there->y, TG_F32, kRows, kOut);
    const tg_tensor offsets = tg_tensor_1d(there->offsets, TG_I32, 2);
    const tg_tensor slot = tg_tensor_1d(there->slot, TG_I32, kRows);
    const tg_grouped_linear_fwd_args plain = {
        .x = x,
        .weight = {.data = there->weight, .dtype = TG_F32, .ndim = 3, .shape = {1, kOut, 0}},
        .offsets = offsets,
        .slot = slot,
        .y = y,
        .slots_per_row = 1,
        .workspace = workspace,
        .workspace_bytes = 1 << 16};
    const tg_grouped_linear_mxfp4_fwd_args packed = {
        .x = x,
        .weight = tg_tensor_1d(there->packed, TG_U8, sizeof host.packed),
        .offsets = offsets,
        .slot = slot,
        .y = y,
        .slots_per_row = 1,
        .workspace = workspace,
        .workspace_bytes = 1 << 16};
    assert_int_equal(mxfp4 ? tg_grouped_linear_mxfp4_fwd(ctx, &packed)
                           : tg_grouped_linear_fwd(ctx, &plain),
                     TG_OK);
    assert_int_equal(tg_context_check(ctx), TG_BAD_ARGUMENT);
    assert_string_equal(tg_context_message(ctx),
                        mxfp4 ? "grouped_linear_mxfp4_fwd: slot[1]: expected 0 to 2, got 7"
                              : "grouped_linear_fwd: slot[1]: expected 0 to 2, got 7");
    float y_here[kRows * kOut];
    tg_memory_copy(ctx, y_here, sizeof y_here, there->y, sizeof y_here, sizeof y_here, 1);
    for (int i = 0; i < kRows * kOut; i++) {
      assert_true(i / kOut == 1 ? isnan(y_here[i]) : y_here[i] == 0);
    }
  }
  tg_memory_free(ctx, workspace);
  tg_memory_free(ctx, device);
  tg_context_destroy(ctx);
}

static void test_views_of_other_devices(void **state)
{
  (void)state;
  tg_context *ctx = open_context(tg_device_count() ? TG_BACKEND_CUDA : TG_BACKEND_CPU);
  float x[4] = {0};
  tg_silu_fwd_args args = {.x = tg_tensor_2d(x, TG_F32, 1, 4), .y = tg_tensor_2d(x, TG_F32, 1, 4)};
  args.x.device = tg_device_count() ? TG_DEVICE_CPU : TG_DEVICE_CUDA(0);
  assert_int_equal(tg_silu_fwd(ctx, &args), TG_BAD_ARGUMENT);
  assert_non_null(strstr(tg_context_message(ctx), "silu_fwd: x: expected memory on device 0 or"));
  tg_context_destroy(ctx);
}

int main(void)
{
  setenv("CUDA_MODULE_LOADING", "LAZY", 1); /* the driver's default since CUDA 12.2 */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_such_gpu),
      cmocka_unit_test(test_partial_entry),
      cmocka_unit_test(test_every_gpu),
      cmocka_unit_test(test_loading_on_a_cpu),
      cmocka_unit_test(test_every_file_is_a_module),
      cmocka_unit_test(test_loading_every_kernel),
      cmocka_unit_test(test_graphs_need_a_gpu),
      cmocka_unit_test(test_graphs),
      cmocka_unit_test(test_late_data_error),
      cmocka_unit_test(test_bad_slot_without_columns),
      cmocka_unit_test(test_views_of_other_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
