#include "function_type.h"

#include <stdint.h>
#include <stdlib.h>

enum { MAX_TYPES = 64, MAX_ATTRIBUTES = 8 };

typedef struct attribute {
  const char *name; /* of an object that `names` owns */
  Py_ssize_t length;
  PyObject *value;
} attribute;

/* Never freed: so pointers tell types apart, and a search needs no lock beside Python's. */
typedef struct kept_attributes {
  PyObject *type, *names;
  Py_ssize_t count;
  attribute attributes[MAX_ATTRIBUTES];
} kept_attributes;

static kept_attributes *kept[MAX_TYPES];
static int num_kept;
static getattrofunc usual;

/* The type's place, or the free one where it belongs. There is always one that is free. */
static kept_attributes **find(const PyObject *type)
{
  size_t i = (uintptr_t)type / 16 % MAX_TYPES;
  while (kept[i] && kept[i]->type != type) {
    i = (i + 1) % MAX_TYPES;
  }
  return &kept[i];
}

static PyObject *get_attribute(PyObject *type, PyObject *name)
{
  const kept_attributes *of = *find(type);
  const Py_ssize_t length = PyUnicode_GetLength(name);
  for (Py_ssize_t i = 0; of && i < of->count; i++) {
    if (of->attributes[i].length == length &&
        PyUnicode_CompareWithASCIIString(name, of->attributes[i].name) == 0) {
      return Py_NewRef(of->attributes[i].value);
    }
  }
  return usual(type, name);
}

PyObject *tgi_function_type(PyObject *base)
{
  static PyType_Slot slots[] = {{Py_tp_getattro, NULL}, {0, NULL}};
  static PyType_Spec spec = {.name = "tegula._core.FunctionType",
                             .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                             .slots = slots};
  slots[0].pfunc = (void *)(uintptr_t)get_attribute;
  usual = (getattrofunc)(uintptr_t)PyType_GetSlot(&PyType_Type, Py_tp_getattro);
  PyObject *bases = PyTuple_Pack(1, base);
  PyObject *type = bases ? PyType_FromSpecWithBases(&spec, bases) : NULL;
  Py_XDECREF(bases);
  return type;
}

int tgi_keep_attributes(PyObject *type, PyObject *names)
{
  kept_attributes **where = find(type);
  const Py_ssize_t count = PyTuple_Size(names);
  if (*where || num_kept + 1 == MAX_TYPES || count > MAX_ATTRIBUTES) {
    PyErr_Format(PyExc_ValueError,
                 "keep_attributes: expected a type, for the first time, and at most %d names, got "
                 "%R, %R",
                 (int)MAX_ATTRIBUTES, type, names);
    return -1;
  }
  kept_attributes *of = calloc(1, sizeof *of);
  if (!of) {
    PyErr_NoMemory();
    return -1;
  }
  for (; of->count < count; of->count++) {
    PyObject *name = PyTuple_GetItem(names, of->count);
    attribute *to = &of->attributes[of->count];
    to->name = PyUnicode_AsUTF8AndSize(name, &to->length);
    to->value = to->name ? PyObject_GetAttr(type, name) : NULL;
    if (!to->value) {
      while (of->count-- > 0) {
        Py_DECREF(of->attributes[of->count].value);
      }
      free(of);
      return -1;
    }
  }
  of->type = Py_NewRef(type);
  of->names = Py_NewRef(names);
  *where = of;
  num_kept++;
  return 0;
}
