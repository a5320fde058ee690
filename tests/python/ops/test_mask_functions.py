"""What `attn_implementation="tegula"` makes of transformers' mask functions: the keys that eager attention's mask shows."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import inspect  # noqa: E402

import placed  # noqa: E402
import torch  # noqa: E402
from transformers import AttentionInterface  # noqa: E402
from transformers import masking_utils as stock  # noqa: E402

from tegula.patching import attention, attention_masks, mask_functions  # noqa: E402

pytestmark = pytest.mark.usefixtures("device", "fast_everywhere")
tegula.register_attention()
causal, both_ways = stock.causal_mask_function, getattr(stock, "bidirectional_mask_function", None)


def reach(size):
    return stock.and_masks(stock.sliding_window_bidirectional_overlay(size), both_ways)


def backwards(size):
    return stock.and_masks(stock.sliding_window_overlay(size), causal)


def chunks(size, left=(0, 0)):
    return stock.and_masks(stock.chunked_overlay(size, placed.tensor(list(left))), causal)


def without_blocks(base):
    return stock.or_masks(base, stock.blockwise_overlay(placed.full((2, 64), -1)))


def packed(base=causal, lengths=((4, 1, 7), (12,))):
    places = [torch.cat([torch.arange(length) for length in row]) for row in lengths]
    numbers = [torch.cat([torch.full((length,), at) for at, length in enumerate(row)]) for row in lengths]
    places, numbers = placed.to_device(torch.stack(places)), placed.to_device(torch.stack(numbers))
    function = stock.remap_positions_for_packed_sequence(base, places)
    return stock.and_masks(function, stock.packed_sequence_mask_function(numbers))


def padding(width, *pads):
    mask = torch.ones(len(pads), width, dtype=torch.bool)
    for row, (left, right) in enumerate(pads):
        mask[row, :left] = False
        mask[row, width - right :] = False
    return placed.to_device(mask)


def made(make, *arguments):
    """make(*arguments), where this transformers has the parts."""
    try:
        function = make(*arguments)
    except AttributeError as error:
        pytest.skip(str(error))
    return function or pytest.skip("this transformers has no bidirectional_mask_function")


# (queries, keys, position of the first query, position of the first key)
WHOLE, NEXT, PIECE = (12, 12, 0, 0), (1, 12, 11, 0), (4, 12, 8, 0)
DROPPED, UNUSED, UNUSED_NEXT = (3, 7, 20, 16), (5, 16, 4, 0), (1, 16, 6, 0)
SHAPES = dict(whole=WHOLE, next=NEXT, piece=PIECE, dropped=DROPPED, unused=UNUSED, unused_next=UNUSED_NEXT)
FUNCTIONS = {
    "causal": lambda left: causal,
    "window": lambda left: backwards(4),
    "window of one": lambda left: backwards(1),
    "chunks": lambda left: chunks(4, left),
    "chunks of one": lambda left: chunks(1, left),
    "no blocks": lambda left: without_blocks(causal),
    "no blocks, window": lambda left: stock.and_masks(without_blocks(causal), stock.sliding_window_overlay(4)),
    "both ways": lambda left: both_ways,
    "both ways, window": lambda left: reach(2),
}  # fmt: skip
PADDING = {"none": None, "left": ((0, 0), (3, 0)), "right": ((0, 2), (0, 5)), "row": ((1, 2), (0, 99))}


def compare(mask, dense, rows=None):
    """The same keys are seen where eager's mask shows any, but for the queries that are padding themselves."""
    assert isinstance(mask, attention_masks.KeyMask) and mask.shape == dense.shape and mask.dtype == dense.dtype
    real = (dense == 0).any(-1)
    if rows is not None:
        real = real & rows[:, None, :]
    assert torch.equal(mask.dense()[real], dense[real])


def asked(function, shape, mask=None, **more):
    queries, keys, q_offset, kv_offset = shape
    arguments = dict(
        batch_size=2, q_length=queries, kv_length=keys, q_offset=q_offset, kv_offset=kv_offset, mask_function=function,
        attention_mask=mask, device=placed.device, dtype=torch.float32, **more,
    )  # fmt: skip
    if "cache_position" in inspect.signature(stock.eager_mask).parameters:
        first = int(arguments.pop("q_offset"))
        arguments["cache_position"] = placed.arange(arguments.pop("q_length")) + first
        del arguments["device"]
    return mask_functions.attention_mask(**arguments), stock.eager_mask(**arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("pads", PADDING)
@pytest.mark.parametrize("shape", SHAPES)
def test_keys_are_those_of_eager(name, pads, shape):
    queries, _, q_offset, _ = SHAPES[shape]
    mask = None if PADDING[pads] is None else padding(q_offset + queries, *PADDING[pads])
    left = [0, 0] if mask is None else (mask.cumsum(-1) == 0).sum(-1).tolist()
    rows = None if mask is None else mask[:, q_offset : q_offset + queries]
    for tensor in (False, True) if hasattr(stock, "is_tracing") else (False,):
        place = list(SHAPES[shape])
        place[2] = placed.tensor(q_offset) if tensor else q_offset  # as a cache of fixed length gives it
        compare(*asked(made(FUNCTIONS[name], left), place, mask), rows)


@pytest.mark.parametrize("base", [causal, backwards(3)], ids=["causal", "window"])
def test_packed(base):
    if not hasattr(stock, "remap_positions_for_packed_sequence"):
        pytest.skip("an earlier transformers: packed masks keep positions of the whole row")
    mask, dense = asked(packed(base), WHOLE)
    compare(mask, dense)
    assert attention_masks.are_segments(mask.keys)
    mask, dense = asked(packed(base, ((12,), (12,))), WHOLE)
    compare(mask, dense)
    assert attention_masks.is_plain(mask.keys)
    compare(*asked(packed(chunks(3)), WHOLE))
    if both_ways:
        numbers = placed.tensor([[0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2], [0] * 12])
        compare(*asked(stock.and_masks(both_ways, stock.packed_sequence_mask_function(numbers)), WHOLE))


UNREAD = {
    "somebody's own": lambda: stock.and_masks(causal, lambda b, h, q, k: (q + k) % 2 == 0),
    "blocks": lambda: stock.or_masks(causal, stock.blockwise_overlay(placed.tensor([[-1] * 4 + [0] * 5 + [-1] * 3] * 2))),
    "two alternatives": lambda: stock.or_masks(causal, stock.sliding_window_overlay(3)),
    "a window towards the end": lambda: both_ways and stock.and_masks(stock.sliding_window_overlay(3), both_ways),
    "a number that comes again": lambda: stock.and_masks(
        causal, stock.packed_sequence_mask_function(placed.tensor([[0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 2]] * 2))
    ),
    "places that jump": lambda: stock.and_masks(
        stock.remap_positions_for_packed_sequence(backwards(3), placed.tensor([[0, 2, 4, *range(5, 14)]] * 2)),
        stock.packed_sequence_mask_function(placed.zeros(2, 12, dtype=torch.int64)),
    ),
    "a window of nothing": lambda: backwards(0),
    "two kinds of chunks": lambda: stock.and_masks(chunks(3), chunks(4)),
    "chunks beside places": lambda: stock.and_masks(packed(), chunks(4)),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_no_range_is_dense(name):
    mask, dense = asked(made(UNREAD[name]), WHOLE)
    assert type(mask) is torch.Tensor and torch.equal(mask, dense)


def test_padding_with_holes_is_dense():
    mask = padding(12, (0, 0), (3, 0))
    mask[0, 5] = False
    ours, dense = asked(causal, WHOLE, mask)
    assert type(ours) is torch.Tensor and torch.equal(ours, dense)
    ours, dense = asked(backwards(4), DROPPED, torch.nn.functional.pad(mask, (0, 11), value=True))
    compare(ours, dense)  # the hole is at a key that the cache has dropped


def test_queries_behind_a_padding_mask():
    """They are no padding, so what they see counts: no key there, by that mask."""
    ours, dense = asked(chunks(4, (0, 3)), WHOLE, padding(10, (0, 0), (3, 0)))
    assert type(ours) is torch.Tensor and torch.equal(ours, dense)


def test_nothing_is_left_to_chance_where_no_padding_is():
    """"sdpa" leaves masks out; then attention would have to guess whether it is causal."""
    for function in filter(None, (causal, both_ways)):
        mask, _ = asked(function, WHOLE, allow_is_bidirectional_skip=True, allow_is_causal_skip=True)
        assert isinstance(mask, attention_masks.KeyMask) and mask.causal == (function is causal)


def test_a_mask_is_that_of_eager_to_others():
    mask, dense = asked(backwards(4), WHOLE, padding(12, (0, 0), (3, 0)))
    assert mask.dtype == torch.float32 and mask.device == dense.device and not mask.requires_grad
    real = slice(3, None)  # rows before it see nothing
    for read in (lambda m: m[:, :, -4:], lambda m: m[..., :5], lambda m: m + 1, lambda m: m.expand(2, 3, 12, 12)):
        assert type(read(mask)) is torch.Tensor
        assert torch.equal(read(mask), read(mask.dense()))
    assert torch.equal((mask == 0)[:, :, real], (dense == 0)[:, :, real])
    assert torch.equal(torch.cat((mask, dense), -1)[..., 12:], dense)
    for kept in (mask.detach(), mask.clone(), mask.contiguous(), mask.to(placed.device)):
        assert isinstance(kept, attention_masks.KeyMask) and torch.equal(kept.keys, mask.keys)
        assert (kept.causal, kept.window, kept.shape) == (True, 4, mask.shape)
    half = mask.to(torch.bfloat16)
    assert isinstance(half, attention_masks.KeyMask) and half.dtype == half.dense().dtype == torch.bfloat16
    assert torch.equal(half.dense() == 0, mask.dense() == 0)
    assert type(mask.bool()) is torch.Tensor and torch.equal(mask.bool(), mask.dense().bool())
    assert "0.0000e+00" in repr(mask)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("pads", PADDING)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_sees_what_the_mask_says(name, pads, shape):
    queries, keys, q_offset, _ = SHAPES[shape]
    mask = None if PADDING[pads] is None else padding(q_offset + queries, *PADDING[pads])
    left = [0, 0] if mask is None else (mask.cumsum(-1) == 0).sum(-1).tolist()
    ours, dense = asked(made(FUNCTIONS[name], left), SHAPES[shape], mask)
    torch.manual_seed(0)
    q, k, v = placed.randn(2, 4, queries, 8), placed.randn(2, 2, keys, 8), placed.randn(2, 2, keys, 8)
    module = torch.nn.Identity()
    y, _ = attention.attention_forward(module, q, k, v, ours, scaling=0.3)
    assert attention.served_by(module) == "tegula"
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, dense, scale=0.3, enable_gqa=True)
    seen = (dense == 0).any(-1)[:, 0]
    if mask is not None:
        seen = seen & mask[:, q_offset : q_offset + queries]
    assert torch.allclose(y[seen], theirs.transpose(1, 2)[seen], atol=1e-5)


def test_softcap_beside_a_dense_mask():
    mask, _ = asked(made(UNREAD["somebody's own"]), WHOLE)
    q, k = placed.randn(2, 4, 12, 8), placed.randn(2, 2, 12, 8)
    with pytest.raises(NotImplementedError, match="softcap of Identity: .*got a dense mask, and PyTorch's .*'eager'"):
        attention.attention_forward(torch.nn.Identity(), q, k, k, mask, softcap=2.0)


def test_a_mask_of_other_shape():
    """A model that passes a mask to tensors it was not made for gets what PyTorch makes of it."""
    mask, _ = asked(causal, WHOLE)
    q, module = placed.randn(2, 2, 1, 8), torch.nn.Identity()
    k = placed.randn(2, 2, 12, 8)
    y, _ = attention.attention_forward(module, q, k, k, mask[:, :, -1:])
    assert attention.served_by(module) == "pytorch: a dense mask"
    ours, _ = attention.attention_forward(module, q, k, k, asked(causal, NEXT)[0])
    assert torch.allclose(y, ours, atol=1e-5)
    with pytest.raises(RuntimeError):
        attention.attention_forward(module, q, k[:, :, :9], k[:, :, :9], mask)


def test_while_compiling():
    """The masks of caches of fixed length are made in eager mode and are inputs of compiled layers; those made in
    compiled code are dense."""
    q, k = placed.randn(2, 4, 1, 8), placed.randn(2, 2, 16, 8)

    def layer(q, k, mask):
        return attention.attention_forward(torch.nn.Identity(), q, k, k, mask, scaling=0.3, softcap=2.0)[0]

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for pads in ("none", "left"):
        mask, _ = asked(backwards(4), UNUSED_NEXT, padding(7, *PADDING[pads]) if PADDING[pads] else None)
        assert torch.equal(compiled(q, k, mask), layer(q, k, mask))

    def plain(x):
        return mask_functions.attention_mask(
            batch_size=2, q_length=12, kv_length=12, mask_function=causal, device=x.device, allow_is_causal_skip=True
        )

    if "cache_position" not in inspect.signature(stock.eager_mask).parameters:
        assert torch.equal(torch.compile(plain, fullgraph=True, backend="aot_eager")(q), asked(causal, WHOLE)[1])


def test_no_mask_is_what_it_is_to_eager():
    """A model that passes none itself masks nothing, whatever its module says; "sdpa" would be causal."""
    interface = AttentionInterface()["tegula"]
    q, module = placed.randn(2, 2, 5, 8), torch.nn.Identity()
    module.is_causal = True
    for options, expected in ((dict(), False), (dict(is_causal=True), True)):
        theirs = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=expected)
        assert torch.allclose(interface(module, q, q, q, None, **options)[0], theirs.transpose(1, 2), atol=1e-5)
        assert attention.served_by(module) == "tegula"
