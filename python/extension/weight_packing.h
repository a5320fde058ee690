/** Packs weights for the products with quantised weights. Packing is not an op: it runs once, on
 * the host, without a context. */
#ifndef TGI_PYTHON_WEIGHT_PACKING_H
#define TGI_PYTHON_WEIGHT_PACKING_H

#include "tensor_argument.h"

/** packed_bytes(op, *, weight, scale, zero_point=None, columns=0, group_size=0): the bytes, or NULL
 * with an exception set. */
PyObject *tgi_packed_bytes(tgi_type_table *types, PyObject *args, PyObject *named);

/** pack(op, *, weight, scale, packed, zero_point=None, columns=0, group_size=0): None, or NULL with
 * an exception set. */
PyObject *tgi_pack(tgi_type_table *types, PyObject *args, PyObject *named);

#endif
