#include "op_description.h"

#include <string.h>

bool tgi_is_implied(const tg_slot_info *slot)
{
  return slot->kind == TG_KIND_SIZE || strcmp(slot->name, "num_tensors") == 0;
}

static PyObject *dtype_names(uint32_t dtypes)
{
  PyObject *names = PyList_New(0);
  for (uint32_t d = 1; names && d < 32; d++) {
    if (dtypes & TG_DTYPE_BIT(d)) {
      PyObject *name = PyUnicode_FromString(tg_dtype_name((tg_dtype)d));
      if (!name || PyList_Append(names, name) < 0) {
        Py_CLEAR(names);
      }
      Py_XDECREF(name);
    }
  }
  PyObject *tuple = names ? PyList_AsTuple(names) : NULL;
  Py_XDECREF(names);
  return tuple;
}

static PyObject *describe_slot(const tg_slot_info *slot)
{
  static const char *const kinds[] = {"",     "tensor", "list",      "f32",  "i32", "i64",
                                      "bool", "enum",   "workspace", "size", "f64"};
  static const char *const roles[] = {"", "in", "out", "acc", "inout"};
  static const char *const layouts[] = {"", "dense", "rows"};
  return Py_BuildValue("{s:s,s:s,s:s,s:s,s:i,s:N,s:O,s:z}", "name", slot->name, "kind",
                       kinds[slot->kind], "role", roles[slot->role], "layout",
                       layouts[slot->layout], "ndim", (int)slot->ndim, "dtypes",
                       dtype_names(slot->dtypes), "optional", slot->optional ? Py_True : Py_False,
                       "alias", slot->alias);
}

static PyObject *describe_op(const tg_op_info *info)
{
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < info->num_slots; i++) {
    if (tgi_is_implied(&info->slots[i])) {
      continue;
    }
    PyObject *slot = describe_slot(&info->slots[i]);
    if (!slot || PyList_Append(list, slot) < 0) {
      Py_CLEAR(list);
    }
    Py_XDECREF(slot);
  }
  return list ? Py_BuildValue("{s:s,s:s,s:s,s:N}", "name", info->name, "op", info->op, "dir",
                              info->dir, "slots", list)
              : NULL;
}

PyObject *tgi_describe_ops(void)
{
  PyObject *entries = PyList_New(0);
  for (size_t i = 0; entries && i < tg_op_count(); i++) {
    PyObject *entry = describe_op(tg_op_at(i));
    if (!entry || PyList_Append(entries, entry) < 0) {
      Py_CLEAR(entries);
    }
    Py_XDECREF(entry);
  }
  return entries;
}
