"""Values of the ops' enumerated arguments by the names that Python has for them."""

ROUNDING = {"hf": 1, "once": 2}
POLICY = {"llama": 1, "gpt_oss": 2}
APPROXIMATION = {"tanh": 1, "none": 2}
PACKING = {"halves": 1, "interleaved": 2}
PAIRING = {"halves": 1, "interleaved": 2}
REDUCTION = {"none": 1, "sum": 2, "mean": 3}
NUM_ITEMS = 4
SCORING = {"selected": 1, "all": 2, "renormalized": 3}
ACTIVATION = {"none": 0, "gelu_tanh": 1, "gelu": 2}
GATED = {"none": 0, "swiglu": 1, "swiglu_clamped": 2}
GRANULARITY = {"tensor": 1, "row": 2, "column": 3}
MODE = {"weight_only": 1, "dynamic": 2}
