#include "bound_entry.h"

#include "op_description.h"
#include <stdlib.h>
#include <string.h>

static bool is_scalar(const tg_slot_info *slot)
{
  return slot->role == 0 && slot->kind != TG_KIND_WORKSPACE && !tgi_is_implied(slot);
}

int tgi_bound_entry_set(tgi_bound_entry *entry, PyObject *module, const tgi_torch *torch,
                        tgi_type_table *types, const tg_op_info *info)
{
  *entry =
      (tgi_bound_entry){.module = Py_NewRef(module), .torch = torch, .types = types, .info = info};
  for (size_t i = 0; i < info->num_slots; i++) {
    entry->num_inputs += info->slots[i].role == TG_ROLE_IN;
    entry->num_scalars += is_scalar(&info->slots[i]);
    entry->has_workspace = entry->has_workspace || info->slots[i].kind == TG_KIND_WORKSPACE;
  }
  entry->made = calloc(info->num_slots - entry->num_inputs, sizeof *entry->made);
  if (!entry->made) {
    PyErr_NoMemory();
  }
  return entry->made ? 0 : -1;
}

void tgi_bound_entry_clear(tgi_bound_entry *entry)
{
  for (size_t i = 0; entry->made && i < entry->info->num_slots - entry->num_inputs; i++) {
    Py_XDECREF(entry->made[i].args);
  }
  free(entry->made);
  Py_XDECREF(entry->module);
}

void tgi_bound_begin(tgi_bound_call *bound, const tgi_bound_entry *entry)
{
  bound->entry = entry;
  bound->ndim = 0;
  bound->args = NULL;
  bound->begun = false;
  bound->call.info = entry->info;
  bound->call.tensors = (tgi_arguments){.types = entry->types, .op = entry->info->name};
  bound->call.allocate = NULL;
  bound->call.like = NULL;
  bound->call.sizing = false;
  memset(bound->call.args.fields, 0, entry->info->args_bytes);
}

void tgi_bound_end(tgi_bound_call *bound)
{
  Py_XDECREF(bound->call.tensors.exporters);
}

/* ---- reading ---- */

static tg_tensor *field_of(tgi_bound_call *bound, size_t slot)
{
  return (tg_tensor *)(void *)(bound->call.args.fields + bound->entry->info->slots[slot].offset);
}

/* Views [..., cols] as [rows, cols]. False if strides do not allow it. */
static bool flatten(const tg_slot_info *slot, tg_tensor *view)
{
  for (int i = 0; i < view->ndim; i++) {
    if (view->stride[i] != 0) {
      return view->ndim == slot->ndim && slot->role != TG_ROLE_IN; /* strided */
    }
  }
  if (slot->ndim != 2 || view->ndim == 2) {
    return true;
  }
  if (view->ndim == 0) {
    return false;
  }
  int64_t rows = 1;
  for (int i = 0; i < view->ndim - 1; i++) {
    rows *= view->shape[i];
  }
  view->shape[1] = view->shape[view->ndim - 1];
  view->shape[0] = rows;
  for (int i = 2; i < view->ndim; i++) {
    view->shape[i] = 0;
  }
  view->ndim = 2;
  return true;
}

int tgi_bound_read(tgi_bound_call *bound, size_t index, PyObject *object, bool grad)
{
  const tgi_torch *torch = bound->entry->torch;
  const tg_slot_info *slot = &bound->entry->info->slots[index];
  PyObject *type = (PyObject *)Py_TYPE(object);
  if (type != torch->tensor && type != torch->parameter) {
    return TGI_NOT_PLAIN;
  }
  tg_tensor *view = field_of(bound, index);
  if (tgi_read_tensor(&bound->call.tensors, slot->name, object, slot->role != TG_ROLE_IN, view) <
      0) {
    PyErr_Clear(); /* the general path handles or reports it */
    return TGI_NOT_PLAIN;
  }
  /* A negated view is the imaginary part of a conjugate; bf16 has no complex dtype. */
  if (view->dtype != TG_BF16) {
    const int negated = tgi_take_truth(PyObject_CallFunctionObjArgs(torch->is_neg, object, NULL));
    if (negated != 0) {
      return negated < 0 ? -1 : TGI_NOT_PLAIN;
    }
  }
  if (!grad) {
    return TGI_PLAIN;
  }
  const int required = tgi_take_truth(PyObject_GetAttr(object, torch->requires_grad));
  return required < 0 ? -1 : required ? TGI_NEEDS_GRADIENT : TGI_PLAIN;
}

/* All rowwise inputs must have the first one's leading axes, or unrelated rows would be paired. */
static bool same_leading(const tgi_bound_call *bound, const tg_tensor *view)
{
  return view->ndim == bound->ndim &&
         memcmp(view->shape, bound->leading, (size_t)(bound->ndim - 1) * sizeof *view->shape) == 0;
}

int tgi_bound_read_inputs(tgi_bound_call *bound, PyObject *const *values, bool grad)
{
  int verdict = TGI_PLAIN;
  for (size_t i = 0; i < bound->entry->num_inputs; i++) {
    const tg_slot_info *slot = &bound->entry->info->slots[i];
    if (values[i] == Py_None) {
      if (i == 0) {
        return TGI_NOT_PLAIN;
      }
      continue;
    }
    const int found = tgi_bound_read(bound, i, values[i], grad && verdict == TGI_PLAIN);
    if (found < 0 || found == TGI_NOT_PLAIN) {
      return found;
    }
    tg_tensor *view = field_of(bound, i);
    if (i == 0) {
      bound->ndim = view->ndim;
      memcpy(bound->leading, view->shape, sizeof bound->leading);
    } else if (slot->ndim == 2 && !same_leading(bound, view)) {
      return TGI_NOT_PLAIN;
    }
    if (bound->ndim == 0 || !flatten(slot, view)) {
      return TGI_NOT_PLAIN;
    }
    verdict = found == TGI_NEEDS_GRADIENT ? TGI_NEEDS_GRADIENT : verdict;
  }
  return verdict;
}

int tgi_bound_read_output(tgi_bound_call *bound, size_t index, PyObject *object, bool grad)
{
  const int found = tgi_bound_read(bound, index, object, grad);
  if (found != TGI_PLAIN) {
    /* The general path refuses an output that requires a gradient. */
    return found < 0 ? -1 : TGI_NOT_PLAIN;
  }
  tg_tensor *view = field_of(bound, index);
  return same_leading(bound, view) && flatten(&bound->entry->info->slots[index], view)
             ? TGI_PLAIN
             : TGI_NOT_PLAIN;
}

int tgi_bound_read_scalars(tgi_bound_call *bound, PyObject *const *values)
{
  size_t used = 0;
  for (size_t i = bound->entry->num_inputs; i < bound->entry->info->num_slots; i++) {
    if (is_scalar(&bound->entry->info->slots[i]) &&
        tgi_read_slot(&bound->call, i, values[used++]) < 0) {
      return -1;
    }
  }
  return 0;
}

/* ---- making ---- */

/* PyTorch's object for a dtype; the dtype of `beside` if it is not a floating-point one. */
static PyObject *dtype_object(const tgi_torch *torch, tg_dtype dtype, PyObject *beside)
{
  PyObject *known = tgi_torch_dtype(torch, dtype);
  return known ? Py_NewRef(known) : PyObject_GetAttr(beside, torch->dtype);
}

static int32_t shape_of(tgi_bound_call *bound, size_t slot, size_t like, int64_t *shape)
{
  const tg_tensor *view = field_of(bound, like);
  if (bound->entry->info->slots[slot].ndim != 2) {
    shape[0] = view->shape[0]; /* its length, or its number of rows */
    return 1;
  }
  memcpy(shape, bound->leading, sizeof bound->leading);
  shape[bound->ndim - 1] = view->shape[1];
  return bound->ndim;
}

/* Reads `made` into its slot and returns it; NULL with an exception set on failure. */
static PyObject *read_made(tgi_bound_call *bound, size_t index, PyObject *made)
{
  const tg_slot_info *slot = &bound->entry->info->slots[index];
  tg_tensor *view = field_of(bound, index);
  if (made && tgi_read_tensor(&bound->call.tensors, slot->name, made, true, view) < 0) {
    Py_CLEAR(made);
  }
  flatten(slot, view);
  return made;
}

PyObject *tgi_bound_make(tgi_bound_call *bound, size_t slot, size_t like, PyObject *beside)
{
  const tgi_torch *torch = bound->entry->torch;
  const tg_tensor *model = field_of(bound, like);
  const bool statistic =
      bound->entry->info->slots[slot].ndim != 2 && bound->entry->info->slots[like].ndim == 2;
  /* Statistics of rows are f32, or f64 for f64 inputs. */
  const tg_dtype dtype = statistic && model->dtype != TG_F64 ? TG_F32 : model->dtype;
  PyObject *object = dtype_object(torch, dtype, beside);
  if (!object) {
    return NULL;
  }
  int64_t shape[TG_MAX_NDIM];
  const int32_t ndim = shape_of(bound, slot, like, shape);
  tgi_last_empty *last = &bound->entry->made[slot - bound->entry->num_inputs];
  PyObject *made = read_made(
      bound, slot, tgi_torch_empty(torch, last, shape, ndim, dtype, object, model->device));
  if (made && field_of(bound, slot)->device != model->device) { /* not the current device */
    Py_DECREF(made);
    made = read_made(bound, slot, tgi_torch_empty_beside(torch, beside, shape, ndim, object));
  }
  Py_DECREF(object);
  return made;
}

PyObject *tgi_bound_zeros(tgi_bound_call *bound, size_t slot, PyObject *like)
{
  return read_made(bound, slot,
                   PyObject_CallFunctionObjArgs(bound->entry->torch->zeros_like, like, NULL));
}

int tgi_bound_run(tgi_bound_call *bound, PyObject *beside)
{
  size_t bytes = 0;
  bound->call.allocate = bound->entry->has_workspace ? bound->entry->torch->allocate : NULL;
  bound->call.like = beside;
  return tgi_run_call(&bound->call, &bytes);
}
