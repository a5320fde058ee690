"""Sizes of sparse models (mixtures of experts), and what a training step of them computes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Sparse:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    top_k: int
    intermediate: int  # of one expert
    vocabulary: int
    attention = "sdpa"  # that of transformers where nobody chooses

    @property
    def parameters(self):
        """(all parameters, those in products with a token)."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        router, expert = self.hidden * self.experts, 3 * self.hidden * self.intermediate
        table = self.vocabulary * self.hidden
        layer = attention + router + self.experts * (expert + self.expert_biases) + 2 * self.hidden + self.other
        active = attention + router + self.top_k * expert
        return self.layers * layer + self.hidden + 2 * table, self.layers * active + table

    def attention_flops(self, batch, seq):
        """Two products of each query with the keys that it sees forward, four backward."""
        keys = sum(min(seq / 2, window) if window else seq / 2 for window in self.windows)
        return 12 * batch * self.heads * seq * self.head_dim * keys

    def step_flops(self, batch, seq):
        """Forward and backward, without the recomputation of checkpointing."""
        return 6 * self.parameters[1] * batch * seq + self.attention_flops(batch, seq)


class GptOss(Sparse):
    attention = "eager"  # sinks: no sdpa

    @property
    def expert_biases(self):
        return 2 * self.intermediate + self.hidden

    @property
    def other(self):
        """Biases of the projections and of the router, and the sinks."""
        return self.head_dim * (self.heads + 2 * self.kv_heads) + self.hidden + self.experts + self.heads

    @property
    def windows(self):
        """Keys of each layer's window; 0: all."""
        return [128 if layer % 2 == 0 else 0 for layer in range(self.layers)]

    def config(self):
        from transformers import GptOssConfig

        return GptOssConfig(
            hidden_size=self.hidden, num_hidden_layers=self.layers, num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads, head_dim=self.head_dim, intermediate_size=self.intermediate,
            num_local_experts=self.experts, num_experts_per_tok=self.top_k, vocab_size=self.vocabulary,
            tie_word_embeddings=False, sliding_window=128,
        )  # fmt: skip


class Qwen3Moe(Sparse):
    expert_biases = 0

    @property
    def other(self):
        return 2 * self.head_dim  # the norms of queries and keys

    @property
    def windows(self):
        return [0] * self.layers

    def config(self):
        from transformers import Qwen3MoeConfig

        return Qwen3MoeConfig(
            hidden_size=self.hidden, num_hidden_layers=self.layers, num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads, head_dim=self.head_dim, moe_intermediate_size=self.intermediate,
            num_experts=self.experts, num_experts_per_tok=self.top_k, norm_topk_prob=True, vocab_size=self.vocabulary,
            tie_word_embeddings=False, max_position_embeddings=40960,
        )  # fmt: skip


SPARSE = {
    "gpt-oss-tiny": GptOss(64, 2, 4, 2, 16, 4, 2, 48, 320),  # for tests
    "qwen3-moe-tiny": Qwen3Moe(64, 2, 4, 2, 16, 4, 2, 48, 320),
    "gpt-oss-20b": GptOss(2880, 24, 64, 8, 64, 32, 4, 2880, 201088),
    "qwen3-30b-a3b": Qwen3Moe(2048, 48, 32, 4, 128, 128, 8, 768, 151936),
}
