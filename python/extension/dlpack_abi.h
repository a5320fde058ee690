/** The parts of DLPack's binary interface (version 1.x) that the binding reads. Names are DLPack's
 * own; https://dmlc.github.io/dlpack is the specification. */
#ifndef TGI_PYTHON_DLPACK_ABI_H
#define TGI_PYTHON_DLPACK_ABI_H

#include <stdint.h>

enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6, kDLFloat8E4m3fn = 10 };

typedef struct DLPackVersion {
  uint32_t major, minor;
} DLPackVersion;

typedef struct DLDevice {
  int32_t device_type, device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* elements; NULL: contiguous */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#define DLPACK_FLAG_READ_ONLY 1u

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef struct DLPackExchangeAPIHeader {
  DLPackVersion version;
  struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

/** Table of functions behind type(t).__dlpack_c_exchange_api__. */
typedef struct DLPackExchangeAPI {
  DLPackExchangeAPIHeader header;
  void (*managed_tensor_allocator)(void);
  void (*managed_tensor_from_py_object_no_sync)(void);
  void (*managed_tensor_to_py_object_no_sync)(void);
  int (*dltensor_from_py_object_no_sync)(void *object, DLTensor *out); /* may be NULL */
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void **stream);
} DLPackExchangeAPI;

#endif
