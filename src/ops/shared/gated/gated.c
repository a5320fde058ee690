#include "ops/shared/gated/gated.h"
#include "ops/shared/gated/gated_choice.h"

/* One form and no more: gate and up, or gate_up with its packing. */
static void want_form(tgi_call *call, tgi_gate_up in)
{
  const bool packed = tgi_present(in.gate_up);
  if (packed && (tgi_present(in.gate) || tgi_present(in.up))) {
    tgi_fail(call, TG_BAD_ARGUMENT, "gate_up", "expected none beside gate or up, got both");
  } else if (!packed && !tgi_present(in.gate)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "gate", "expected a tensor here or in gate_up, got none");
  } else if (!packed && !tgi_present(in.up)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "up", "expected a tensor beside gate, got none");
  }
  if (packed) {
    tgi_want_range(call, "packing", in.packing, TG_GATE_UP_HALVES, TG_GATE_UP_INTERLEAVED);
  } else {
    tgi_want_range(call, "packing", in.packing, 0, 0);
  }
}

/* A view with shape and dtype of gate; all others are held against it. */
static tg_tensor want_inputs(tgi_call *call, tgi_gate_up in)
{
  want_form(call, in);
  if (call->status != TG_OK) {
    return (tg_tensor){0};
  }
  if (!tgi_present(in.gate_up)) {
    tgi_want_shape(call, "up", in.up, 2, in.gate->shape);
    tgi_want_dtype(call, "up", in.up, TG_DTYPE_BIT(in.gate->dtype));
    return *in.gate;
  }
  const int64_t rows = in.gate_up->shape[0], width = in.gate_up->shape[1];
  if (width % 2 != 0) {
    tgi_fail(call, TG_BAD_SHAPE, "gate_up", "expected an even number of columns, got %lld",
             (long long)width);
  }
  return tg_tensor_2d(NULL, in.gate_up->dtype, rows, width / 2);
}

static void want_like(tgi_call *call, const char *argument, const tg_tensor *t,
                      const tg_tensor *gate)
{
  tgi_want_shape(call, argument, t, 2, gate->shape);
  tgi_want_dtype(call, argument, t, TG_DTYPE_BIT(gate->dtype));
}

void tgi_want_gated_fwd(tgi_call *call, tgi_gate_up in, const tg_tensor *y, tg_rounding rounding)
{
  const tg_tensor gate = want_inputs(call, in);
  want_like(call, "y", y, &gate);
  tgi_want_range(call, "rounding", rounding, TG_ROUNDING_HF, TG_ROUNDING_ONCE);
  call->empty = gate.shape[0] == 0 || gate.shape[1] == 0;
}

static void want_absent(tgi_call *call, const char *argument, const tg_tensor *t, const char *form)
{
  if (tgi_present(t)) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected none with %s, got a tensor", form);
  }
}

void tgi_want_gated_bwd(tgi_call *call, const tg_tensor *dy, tgi_gate_up in, tgi_gate_up gradients)
{
  const tg_tensor gate = want_inputs(call, in);
  want_like(call, "dy", dy, &gate);
  if (call->status == TG_OK && tgi_present(in.gate_up)) {
    want_absent(call, "dgate", gradients.gate, "gate_up");
    want_absent(call, "dup", gradients.up, "gate_up");
    if (!tgi_present(gradients.gate_up)) {
      tgi_fail(call, TG_BAD_ARGUMENT, "dgate_up", "expected a tensor with gate_up, got none");
    }
    want_like(call, "dgate_up", gradients.gate_up, in.gate_up);
  } else if (call->status == TG_OK) {
    want_absent(call, "dgate_up", gradients.gate_up, "gate");
    if (!tgi_present(gradients.gate) && !tgi_present(gradients.up)) {
      tgi_fail(call, TG_BAD_ARGUMENT, "dgate", "expected a tensor here or in dup, got none");
    }
    want_like(call, "dgate", gradients.gate, &gate);
    want_like(call, "dup", gradients.up, &gate);
  }
  call->empty = gate.shape[0] == 0 || gate.shape[1] == 0;
}

static void want_zero(tgi_call *call, const char *argument, double value)
{
  if (value != 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected 0 without a clamp, got %g", value);
  }
}

void tgi_want_gated_choice(tgi_call *call, tgi_gated_choice c, tg_gated_activation first)
{
  const bool none = c.activation == TG_GATED_NONE;
  tgi_want_range(call, "activation", c.activation, first, TG_GATED_SWIGLU_CLAMPED);
  tgi_want_range(call, "packing", c.packing, none ? 0 : TG_GATE_UP_HALVES,
                 none ? 0 : TG_GATE_UP_INTERLEAVED);
  if (c.activation == TG_GATED_SWIGLU_CLAMPED) {
    tgi_want_positive(call, "alpha", (double)c.alpha);
    tgi_want_positive(call, "limit", (double)c.limit);
  } else {
    want_zero(call, "alpha", (double)c.alpha);
    want_zero(call, "limit", (double)c.limit);
  }
}
