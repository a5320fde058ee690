#include "bench_watch.h"

#include "core/error_record.h"
#include "core/machine/environment.h"

#ifdef TGI_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

static void begin(void *user, const char *part)
{
  (void)user;
  nvtxRangePushA(part);
}

static void end(void *user)
{
  (void)user;
  nvtxRangePop();
}

static tg_status run(void *user, tg_context *ctx, const tg_op_info *op, const void *args)
{
  (void)user;
  nvtxRangePushA(op->name);
  const tg_status status = op->run(ctx, args);
  nvtxRangePop();
  return status;
}

static const tgi_pass_watch marks = {NULL, begin, end, run};

tg_status tgi_bench_nvtx_check(tg_error *error)
{
  (void)error;
  return TG_OK;
}

const tgi_pass_watch *tgi_bench_nvtx(void)
{
  return &marks;
}
#else
tg_status tgi_bench_nvtx_check(tg_error *error)
{
  return tgi_error_set(error, TG_UNSUPPORTED,
                       "--nvtx: expected a build with nvtx3/nvToolsExt.h of the CUDA toolkit, got "
                       "one without");
}

const tgi_pass_watch *tgi_bench_nvtx(void)
{
  return NULL;
}
#endif

bool tgi_bench_nvtx_heard(void)
{
  return tgi_environment_nvtx();
}
