/** Reads Python objects as tensor views: tensors of PyTorch through the DLPack C exchange API, all
 * other arrays through __dlpack__. */
#ifndef TGI_PYTHON_TENSOR_ARGUMENT_H
#define TGI_PYTHON_TENSOR_ARGUMENT_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030a0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "dlpack_abi.h"
#include <tegula/tegula.h>

/** How tensors of a type are exported, looked up once. The table keeps the type alive. */
typedef struct tgi_known_type {
  PyObject *type;
  const DLPackExchangeAPI *api; /* NULL: __dlpack__ */
  bool numpy, torch;            /* torch: PyTorch before 2.10, which has no such API */
  PyObject *current_stream;     /* function of a CUDA device's index, or NULL */
  PyObject *num_threads;        /* PyTorch's function without arguments, or NULL */
} tgi_known_type;

#define TGI_KNOWN_TYPES 16

typedef struct tgi_type_table {
  tgi_known_type known[TGI_KNOWN_TYPES];
  int count, next; /* next: the place to overwrite when the table is full */
} tgi_type_table;

/** The tensors of one call. */
typedef struct tgi_arguments {
  tgi_type_table *types;
  const char *op;        /* for messages: "rms_norm_fwd" */
  PyObject *exporters;   /* list of capsules that must outlive the call; NULL: none */
  int32_t device;        /* TG_DEVICE_*, of the first tensor; 0: none yet */
  void *stream;          /* current stream of the first CUDA tensor's library */
  bool has_stream;       /* `stream` was reported by a library */
  bool foreign_cuda;     /* an array came through __dlpack__ for the default stream */
  bool f64;              /* at least one tensor is f64 */
  PyObject *num_threads; /* borrowed: that of the first tensor of PyTorch's, or NULL */
} tgi_arguments;

/** Describes `object` in *view. `writes`: refuses memory that must not be written, and views whose
 * elements share memory. -1 with an exception set on failure. */
int tgi_read_tensor(tgi_arguments *arguments, const char *name, PyObject *object, bool writes,
                    tg_tensor *view);

/** For the module's m_traverse and m_clear. */
int tgi_type_table_visit(tgi_type_table *types, visitproc visit, void *arg);
void tgi_type_table_clear(tgi_type_table *types);

#endif
