/* The kernel table of one entry; compiled once per entry with TGI_ENTRY set to its name. */
#include "ops/kernels.h"

#define NAME_(entry) #entry
#define NAME(entry) NAME_(entry)
#define TABLE_(entry) tgi_kernel_table_##entry
#define TABLE(entry) TABLE_(entry)

#define SIZE_workspace(op_dir) TGI_WORKSPACE(op_dir)
#define SIZE_no_workspace(op_dir) NULL

/* The reference is plain: it needs no workspace and has no choices. */
#ifdef TGI_ENTRY_IS_REFERENCE
#define COMPANIONS(op_dir, ws) NULL, NULL
#else
#define COMPANIONS(op_dir, ws) SIZE_##ws(op_dir), TGI_PLAN(op_dir)
#endif

extern const tgi_kernel_table TABLE(TGI_ENTRY);

const tgi_kernel_table TABLE(TGI_ENTRY) = {
    .entry = NAME(TGI_ENTRY),
#define OP(op, dir, ws) .op##_##dir = {TGI_KERNEL(op##_##dir), COMPANIONS(op##_##dir, ws)},
#include "ops/ops.def"
};
