/**
 * The op table: names, argument fields and entry points of every op, for bindings, test drivers and
 * listings. It is generated from the same list as the kernel tables. Most ops have two rows, "fwd"
 * and "bwd".
 */
#ifndef TEGULA_OP_INFO_H
#define TEGULA_OP_INFO_H

#include "context.h"
#include "tensor.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tg_slot_role {
  TG_ROLE_IN = 1,    /* read */
  TG_ROLE_OUT = 2,   /* overwritten; its old content is never read */
  TG_ROLE_ACC = 3,   /* added to (+=); the caller initialises it */
  TG_ROLE_INOUT = 4, /* read and overwritten */
} tg_slot_role;

typedef enum tg_slot_kind {
  TG_KIND_TENSOR = 1,      /* tg_tensor */
  TG_KIND_TENSOR_LIST = 2, /* const tg_tensor *, with int64_t num_tensors beside it */
  TG_KIND_F32 = 3,         /* float */
  TG_KIND_I32 = 4,         /* int32_t */
  TG_KIND_I64 = 5,         /* int64_t */
  TG_KIND_BOOL = 6,        /* bool */
  TG_KIND_ENUM = 7,        /* an enum of the op's header; int-sized */
  TG_KIND_WORKSPACE = 8,   /* void * */
  TG_KIND_SIZE = 9,        /* size_t: bytes behind the workspace pointer */
  TG_KIND_F64 = 10,        /* double */
} tg_slot_kind;

typedef enum tg_layout {
  TG_LAYOUT_NONE = 0,  /* not a tensor */
  TG_LAYOUT_DENSE = 1, /* contiguous */
  TG_LAYOUT_ROWS = 2,  /* last axis contiguous, other strides free */
} tg_layout;

#define TG_DTYPE_BIT(dtype) (1u << (dtype))

typedef struct tg_slot_info {
  const char *name; /* field of the args struct */
  tg_slot_kind kind;
  tg_slot_role role; /* tensors and tensor lists; 0 otherwise */
  tg_layout layout;
  int32_t ndim;      /* required rank; 0: any */
  uint32_t dtypes;   /* union of TG_DTYPE_BIT */
  bool optional;     /* a zeroed view is allowed */
  const char *alias; /* inputs whose memory this output may alias exactly, separated by '|'
                        ("dy|dresidual"); NULL: none */
  size_t offset;     /* of the field in the args struct */
} tg_slot_info;

typedef struct tg_op_info {
  const char *op;   /* "rms_norm" */
  const char *dir;  /* "fwd", "bwd", "fwdbwd", "step" */
  const char *name; /* "rms_norm_fwd" */
  size_t args_bytes;
  size_t num_slots;
  const tg_slot_info *slots;
  tg_status (*run)(tg_context *ctx, const void *args);
  tg_status (*workspace)(const tg_context *ctx, const void *args, size_t *bytes);
} tg_op_info;

/** Number of rows. */
TG_API size_t tg_op_count(void);

/** Row `index`, in the order of the list; NULL past the end. */
TG_API const tg_op_info *tg_op_at(size_t index);

/** Row by name ("rms_norm_fwd"); NULL if there is none. */
TG_API const tg_op_info *tg_op_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
