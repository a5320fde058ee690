"""Sizes of the Qwen3 models, and what a training step of them computes."""

import dataclasses

VOCABULARY = 151936


@dataclasses.dataclass(frozen=True)
class Size:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    tied: bool
    head_dim: int = 128
    vocabulary: int = VOCABULARY
    attention = "sdpa"  # that of transformers where nobody chooses

    @property
    def parameters(self):
        """(all parameters, those in products with a token): an embedding that the head does not share is only looked up."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden + 2 * self.head_dim
        table = self.vocabulary * self.hidden
        once = self.layers * layer + self.hidden + table
        return (once if self.tied else once + table), once

    def attention_flops(self, batch, seq):
        """Two products of [seq, seq] and head_dim forward, four backward, half of each behind the causal mask."""
        return 6 * batch * self.heads * seq * seq * self.head_dim * self.layers

    def step_flops(self, batch, seq):
        """Forward and backward, without the recomputation of checkpointing."""
        return 6 * self.parameters[1] * batch * seq + self.attention_flops(batch, seq)

    def config(self):
        from transformers import Qwen3Config

        return Qwen3Config(
            hidden_size=self.hidden, num_hidden_layers=self.layers, num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads, intermediate_size=self.intermediate, head_dim=self.head_dim,
            vocab_size=self.vocabulary, tie_word_embeddings=self.tied, max_position_embeddings=40960,
        )  # fmt: skip


DENSE = {
    "qwen3-tiny": Size(64, 2, 4, 2, 128, True, 16, 320),  # for tests
    "qwen3-tiny-untied": Size(64, 2, 4, 2, 128, False, 16, 320),
    "qwen3-0.6b": Size(1024, 28, 16, 8, 3072, True),
    "qwen3-1.7b": Size(2048, 28, 16, 8, 6144, True),
    "qwen3-4b": Size(2560, 36, 32, 8, 9728, True),
    "qwen3-8b": Size(4096, 36, 32, 8, 12288, False),
    "qwen3-8b-14336": Size(4096, 36, 32, 8, 14336, False),  # the wider MLP that other projects measure
}
