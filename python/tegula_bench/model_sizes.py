"""The models whose training steps are measured."""

from . import qwen3_sizes, sparse_sizes

SIZES = {**qwen3_sizes.DENSE, **sparse_sizes.SPARSE}
