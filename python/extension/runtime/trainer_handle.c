#include "trainer_handle.h"

#include "status_exception.h"
#include "tokenizer_handle.h"

#include <stdlib.h>
#include <string.h>

typedef struct trainer_handle {
  PyObject ob_base;
  tgi_model_handle *model; /* kept alive */
  tg_trainer *trainer;     /* NULL: closed */
  tg_trainer_options options;
  bool busy;
} trainer_handle;

static trainer_handle *handle_of(PyObject *self)
{
  return (trainer_handle *)(void *)self;
}

/* ---- making ---- */

static int read_options(PyObject *module, PyObject *args, PyObject *named, tgi_model_handle **model,
                        tg_trainer_options *o)
{
  static char *keys[] = {"model",
                         "batch_size",
                         "sequence_length",
                         "num_steps",
                         "warmup_steps",
                         "learning_rate",
                         "min_learning_rate",
                         "beta1",
                         "beta2",
                         "eps",
                         "weight_decay",
                         "max_grad_norm",
                         "dtype",
                         "micro_batch_size",
                         "schedule",
                         "decay_fraction",
                         "freeze_experts",
                         "router_aux_loss_coef",
                         NULL};
  const tgi_runtime_state *state = PyModule_GetState(module);
  const char *dtype;
  int schedule, freeze;
  long long num_steps, warmup_steps;
  PyObject *object, *aux;
  *o = (tg_trainer_options){.batch_size = 0};
  if (!PyArg_ParseTupleAndKeywords(
          args, named, "O!$iiLLdddddddziidpO:trainer", keys, (PyTypeObject *)state->model, &object,
          &o->batch_size, &o->sequence_length, &num_steps, &warmup_steps, &o->learning_rate,
          &o->min_learning_rate, &o->beta1, &o->beta2, &o->eps, &o->weight_decay, &o->max_grad_norm,
          &dtype, &o->micro_batch_size, &schedule, &o->decay_fraction, &freeze, &aux) ||
      tgi_read_dtype(dtype, &o->dtype) < 0) {
    return -1;
  }
  o->has_router_aux_loss_coef = aux != Py_None;
  o->router_aux_loss_coef = aux != Py_None ? PyFloat_AsDouble(aux) : 0;
  if (PyErr_Occurred()) {
    return -1;
  }
  *model = (tgi_model_handle *)(void *)object;
  o->num_steps = num_steps;
  o->warmup_steps = warmup_steps;
  o->schedule = (tg_schedule)schedule;
  o->freeze_experts = freeze;
  o->num_threads = (*model)->num_threads;
  o->backend = (*model)->backend;
  o->device_index = (*model)->device_index;
  return 0;
}

PyObject *tgi_trainer_open(PyObject *module, PyObject *args, PyObject *named)
{
  const tgi_runtime_state *state = PyModule_GetState(module);
  tg_trainer_options options;
  tgi_model_handle *model;
  if (read_options(module, args, named, &model, &options) < 0) {
    return NULL;
  }
  trainer_handle *t = tgi_object_new(state->trainer);
  if (!t) {
    return NULL;
  }
  t->model = (tgi_model_handle *)(void *)Py_NewRef((PyObject *)model);
  t->options = options;
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status = tg_trainer_create(model->model, &options, &t->trainer, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    tgi_raise_status(status, error.text);
    Py_CLEAR(t);
  }
  return (PyObject *)t;
}

PyObject *tgi_trainer_plan(PyObject *module, PyObject *args, PyObject *named)
{
  enum { most = 32 };
  tg_trainer_options options;
  tgi_model_handle *model;
  tg_plan_line lines[most];
  size_t count = 0;
  tg_error error = {0};
  if (read_options(module, args, named, &model, &options) < 0) {
    return NULL;
  }
  const tg_status status = tg_trainer_plan(model->model, &options, lines, most, &count, &error);
  if (status != TG_OK) {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < count && i < most; i++) {
    PyObject *pair = Py_BuildValue("(sn)", lines[i].name, (Py_ssize_t)lines[i].bytes);
    if (!pair || PyList_Append(list, pair) < 0) {
      Py_CLEAR(list);
    }
    Py_XDECREF(pair);
  }
  return list;
}

/* ---- use by one thread at a time ---- */

static int begin(trainer_handle *t)
{
  if (t->trainer && !t->busy) {
    t->busy = true;
    return 0;
  }
  PyErr_SetString(t->trainer ? PyExc_RuntimeError : PyExc_ValueError,
                  t->trainer ? "trainer: expected one thread at a time, got a second one"
                             : "trainer: expected an open one, got one that is closed");
  return -1;
}

static int finish(trainer_handle *t, tg_status status, const tg_error *error)
{
  t->busy = false;
  return status == TG_OK ? 0 : tgi_raise_status(status, error->text);
}

static PyObject *close_trainer(PyObject *self, PyObject *unused)
{
  (void)unused;
  trainer_handle *t = handle_of(self);
  if (!t->trainer) {
    return Py_NewRef(Py_None);
  }
  if (begin(t) < 0) {
    return NULL;
  }
  tg_trainer *trainer = t->trainer;
  Py_BEGIN_ALLOW_THREADS tg_trainer_destroy(trainer);
  Py_END_ALLOW_THREADS t->trainer = NULL;
  t->busy = false;
  tgi_model_touch(t->model);
  return Py_NewRef(Py_None);
}

static void dealloc(PyObject *self)
{
  trainer_handle *t = handle_of(self);
  if (t->trainer) {
    tg_trainer_destroy(t->trainer);
    tgi_model_touch(t->model);
  }
  Py_XDECREF((PyObject *)t->model);
  tgi_object_free(self);
}

/* ---- batches ---- */

static int check_rows(const trainer_handle *t, const char *name, const tgi_id_rows *rows)
{
  if (rows->rows == t->options.batch_size && rows->length == t->options.sequence_length) {
    return 0;
  }
  PyErr_Format(PyExc_ValueError, "trainer: %s: expected [%d, %d], got [%lld, %lld]", name,
               (int)t->options.batch_size, (int)t->options.sequence_length, (long long)rows->rows,
               (long long)rows->length);
  return -1;
}

static int read_rows(const trainer_handle *t, const char *name, int64_t least, PyObject *object,
                     tgi_id_rows *out)
{
  const tgi_id_use use = {.types = &t->model->state->types,
                          .op = "trainer",
                          .name = name,
                          .least = least,
                          .most = t->model->info.vocab_size - 1,
                          .device = tgi_model_device(t->model)};
  if (tgi_read_ids(&use, object, out) < 0) {
    return -1;
  }
  if (check_rows(t, name, out) < 0) {
    free(out->ids);
    return -1;
  }
  return 0;
}

typedef enum action { STEP, LOSS, BACKWARD } action;

static tg_status act(tg_trainer *trainer, action what, const tg_train_batch *batch,
                     tg_step_result *result, tg_error *error)
{
  return what == STEP   ? tg_trainer_step(trainer, batch, result, error)
         : what == LOSS ? tg_trainer_loss(trainer, batch, &result->loss, error)
                        : tg_trainer_backward(trainer, batch, &result->loss, error);
}

/* Any of the three over (ids, targets). */
static PyObject *run_batch(trainer_handle *t, action what, PyObject *args)
{
  PyObject *ids, *targets;
  tgi_id_rows tokens, wanted;
  if (!PyArg_ParseTuple(args, "OO:step", &ids, &targets) || begin(t) < 0) {
    return NULL;
  }
  t->busy = false; /* reading ids may run other code, which may close the trainer */
  if (read_rows(t, "ids", 0, ids, &tokens) < 0) {
    return NULL;
  }
  if (read_rows(t, "targets", TG_IGNORED_TARGET, targets, &wanted) < 0) {
    free(tokens.ids);
    return NULL;
  }
  const tg_train_batch batch = {.tokens = tokens.ids, .targets = wanted.ids};
  tg_step_result result = {0};
  tg_error error = {0};
  int ok = begin(t);
  if (ok == 0) {
    tg_status status;
    Py_BEGIN_ALLOW_THREADS status = act(t->trainer, what, &batch, &result, &error);
    Py_END_ALLOW_THREADS ok = finish(t, status, &error);
  }
  free(tokens.ids);
  free(wanted.ids);
  if (ok < 0) {
    return NULL;
  }
  return what == STEP
             ? Py_BuildValue("(LdddLd)", (long long)result.step, result.loss, result.grad_norm,
                             result.learning_rate, (long long)result.num_targets, result.aux_loss)
             : PyFloat_FromDouble(result.loss);
}

static PyObject *step(PyObject *self, PyObject *args)
{
  return run_batch(handle_of(self), STEP, args);
}

static PyObject *loss(PyObject *self, PyObject *args)
{
  return run_batch(handle_of(self), LOSS, args);
}

static PyObject *backward(PyObject *self, PyObject *args)
{
  return run_batch(handle_of(self), BACKWARD, args);
}

/* ---- results ---- */

/* A copy: the trainer's own memory goes with it. */
static PyObject *copy_gradient(const trainer_handle *t, size_t index)
{
  tg_tensor view;
  if (tg_trainer_gradient(t->trainer, index, &view) != TG_OK) {
    return Py_NewRef(Py_None); /* a frozen parameter */
  }
  PyObject *array = tgi_array_new(t->model->state->array, view.dtype, view.ndim, view.shape);
  if (array) {
    size_t bytes = tg_dtype_bytes(view.dtype);
    for (int i = 0; i < view.ndim; i++) {
      bytes *= (size_t)view.shape[i];
    }
    memcpy(tgi_array_data(array), view.data, bytes);
  }
  return array;
}

static PyObject *gradients(PyObject *self, PyObject *unused)
{
  (void)unused;
  trainer_handle *t = handle_of(self);
  const char *name;
  if (begin(t) < 0) {
    return NULL;
  }
  PyObject *all = PyDict_New();
  for (size_t i = 0; all && tg_model_parameter(t->model->model, i, NULL, &name) == TG_OK; i++) {
    PyObject *array = copy_gradient(t, i);
    if (!array || (array != Py_None && PyDict_SetItemString(all, name, array) < 0)) {
      Py_CLEAR(all);
    }
    Py_XDECREF(array);
  }
  t->busy = false;
  return all;
}

static PyObject *steps(PyObject *self, PyObject *unused)
{
  (void)unused;
  trainer_handle *t = handle_of(self);
  if (begin(t) < 0) {
    return NULL;
  }
  t->busy = false;
  return PyLong_FromLongLong(tg_trainer_steps(t->trainer));
}

static PyObject *sync_weights(PyObject *self, PyObject *unused)
{
  (void)unused;
  trainer_handle *t = handle_of(self);
  tg_error error = {0};
  tg_status status;
  if (begin(t) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = tg_trainer_sync(t->trainer, &error);
  Py_END_ALLOW_THREADS tgi_model_touch(t->model);
  return finish(t, status, &error) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- files ---- */

/* save(directory, tokenizer, note) */
static PyObject *save(PyObject *self, PyObject *args)
{
  trainer_handle *t = handle_of(self);
  const char *directory, *note;
  PyObject *object;
  const tg_tokenizer *tokenizer;
  tg_error error = {0};
  tg_status status;
  if (!PyArg_ParseTuple(args, "sOz:save", &directory, &object, &note) ||
      tgi_tokenizer_of(t->model->state, object, &tokenizer) < 0 || begin(t) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = tg_trainer_save(t->trainer, tokenizer, note, directory, &error);
  Py_END_ALLOW_THREADS tgi_model_touch(t->model);
  return finish(t, status, &error) < 0 ? NULL : Py_NewRef(Py_None);
}

/* resume(directory): the note. */
static PyObject *resume(PyObject *self, PyObject *directory)
{
  trainer_handle *t = handle_of(self);
  const char *path = PyUnicode_AsUTF8AndSize(directory, NULL);
  char note[4096] = "";
  tg_error error = {0};
  tg_status status;
  if (!path || begin(t) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = tg_trainer_resume(t->trainer, path, note, sizeof note, &error);
  Py_END_ALLOW_THREADS tgi_model_touch(t->model);
  return finish(t, status, &error) < 0
             ? NULL
             : PyUnicode_DecodeUTF8(note, (Py_ssize_t)strlen(note), "ignore");
}

static PyMethodDef methods[] = {
    TGI_METHOD(
        "step", step, METH_VARARGS,
        "step(ids, targets)\n--\n\n(step, loss, grad_norm, learning_rate, num_targets, aux_loss)."),
    TGI_METHOD("loss", loss, METH_VARARGS, "loss(ids, targets)\n--\n\nThe loss of a batch."),
    TGI_METHOD("backward", backward, METH_VARARGS,
               "backward(ids, targets)\n--\n\nThe loss of a batch; computes the gradients."),
    TGI_METHOD("gradients", gradients, METH_NOARGS, "gradients()\n--\n\nCopies by name."),
    TGI_METHOD("steps", steps, METH_NOARGS, "steps()\n--\n\nSteps taken."),
    TGI_METHOD("sync", sync_weights, METH_NOARGS,
               "sync()\n--\n\nThe weights into the model's memory."),
    TGI_METHOD("save", save, METH_VARARGS, "save(directory, tokenizer, note)\n--\n\nA checkpoint."),
    TGI_METHOD("resume", resume, METH_O, "resume(directory)\n--\n\nThe checkpoint's note."),
    TGI_METHOD("close", close_trainer, METH_NOARGS, "close()\n--\n\nFrees the trainer's memory."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A trainer."},
    {0, NULL},
};

static PyType_Spec spec = {.name = "tegula._runtime.TrainerHandle",
                           .basicsize = sizeof(trainer_handle),
                           .flags = Py_TPFLAGS_DEFAULT | 1 << 7, /* no instances by calls */
                           .slots = slots};

PyObject *tgi_trainer_make_type(PyObject *module)
{
  return PyType_FromModuleAndSpec(module, &spec, NULL);
}
