"""tegula.Model, Trainer and arrays on a GPU, beside the CPU."""

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no arrays on a GPU")
numpy = pytest.importorskip("numpy")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.gpu("there is no GPU, or --device cpu")]

CONFIG = tegula.ModelConfig(n_layer=2, n_head=2, n_embd=32, n_positions=64, vocab_size=50, initializer_range=0.3)


@pytest.fixture(scope="module")
def ids():
    return torch.from_numpy(numpy.random.default_rng(3).integers(0, 50, (3, 9)))


@pytest.fixture
def both():
    return tegula.Model(CONFIG, seed=2), tegula.Model(CONFIG, seed=2, device="cuda")


def test_logits(both, ids):
    cpu, gpu = both
    want = cpu(ids)
    bound = 2e-5 * want.abs().max()
    on_gpu = gpu(ids.cuda())
    assert on_gpu.is_cuda and on_gpu.dtype == torch.float32 and (on_gpu.cpu() - want).abs().max() <= bound
    assert not gpu(ids).is_cuda and (gpu(ids) == on_gpu.cpu()).all()
    assert type(gpu(ids.numpy())) is numpy.ndarray
    assert gpu(ids[0].cuda()).shape == (9, 50) and gpu(ids.cuda(), last_only=True).shape == (3, 50)
    strided = torch.stack([ids, ids], 1).cuda()[:, 0]
    assert (gpu(strided) == on_gpu).all()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = torch.zeros_like(ids, device="cuda")
        torch.cuda._sleep(10**7)
        late.copy_(ids)
        assert (gpu(late) == on_gpu).all()
    with pytest.raises(ValueError, match="expected memory of the CPU, got cuda:0"):
        cpu(ids.cuda())
    with pytest.raises(ValueError, match=r"ids\[0, 0\]: expected 0 to 49"):
        gpu(ids.cuda() + 50)


def test_tokens(both, ids):
    cpu, gpu = both
    for how in (dict(temperature=0.0), dict(temperature=0.9, top_k=20), dict(repetition_penalty=1.3, presence_penalty=0.4)):
        want = cpu.generate(ids, 20, seed=5, **how)
        got = gpu.generate(ids.cuda(), 20, seed=5, **how)
        assert got.is_cuda and (got.cpu() == want).all()
        assert list(gpu.stream(ids[1], 20, seed=6, **how)) == want[1, 9:].tolist()


def test_logits_again_and_again(both, ids):
    """Later calls of a shape are launched as a graph: for other ids, between other shapes, in any memory."""
    cpu, gpu = both
    bound = 2e-5 * cpu(ids).abs().max()
    kept = []
    for turn in range(6):
        rows = (ids + turn) % 50 if turn != 3 else ids[:1, :5]
        got = gpu(rows.cuda(), last_only=turn == 4)
        want = cpu(rows, last_only=turn == 4)
        assert got.shape == want.shape and (got.cpu() - want).abs().max() <= bound
        kept.append((got, got.clone()))
    assert all((got == copy).all() for got, copy in kept)  # results are the caller's
    gpu.set_parameter("transformer.ln_f.weight", torch.full((32,), 2.0))
    cpu.set_parameter("transformer.ln_f.weight", torch.full((32,), 2.0))
    assert (gpu(ids.cuda()).cpu() - cpu(ids)).abs().max() <= 2 * bound


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_logits_in_16_bits(tmp_path, both, ids, name):
    both[0].save_pretrained(tmp_path, dtype=name)
    narrow = tegula.Model.from_pretrained(tmp_path, device="cuda")
    for _ in range(3):
        wide, got = narrow(ids.cuda()), narrow(ids.cuda(), dtype=name)
        assert got.is_cuda and got.dtype == getattr(torch, name)
        assert (got.float() - wide).abs().max() <= 2**-7 * wide.abs().max()  # rounded once
    out = torch.empty_like(got)
    assert narrow(ids.cuda(), out=out) is out and (out == got).all()
    with pytest.raises(ValueError, match="dtype: expected a name such as"):
        narrow(ids.cuda(), dtype="f99")
    with pytest.raises(ValueError, match="dtype: expected float32 or that of the weights"):
        narrow(ids.cuda(), dtype="float16" if name == "bfloat16" else "bfloat16")


def test_prompts_of_different_lengths_and_stop_texts(both):
    cpu, gpu = both
    ragged, how = [[1, 2, 3], [4], [5, 6, 7, 8]], dict(seed=5, temperature=0.9, top_k=20, stop=range(3), pad_id=49)
    want = cpu.generate(ragged, 20, **how)
    assert (gpu.generate(ragged, 20, **how) == want).all()
    arrays = [torch.tensor(row, device="cuda") for row in ragged]
    got = gpu.generate(arrays, 20, **how)
    assert got.is_cuda and (got.cpu().numpy() == want).all()
    tokenizer = tegula.Tokenizer.of_bytes()
    stop = bytes(int(token) for token in cpu.generate([1], 12, temperature=0)[5:7]).decode()
    for model in both:
        out = model.generate([1], 40, temperature=0, stop=stop, tokenizer=tokenizer, return_dict=True)
        assert out["finish_reason"] == ["stop"] and bytes(out["sequences"][1:].tolist()).endswith(stop.encode())
        assert list(model.stream([1], 40, temperature=0, stop=stop, tokenizer=tokenizer)) == out["sequences"][1:].tolist()


def test_sessions_and_errors(both, ids):
    cpu, gpu = both
    with pytest.raises(ValueError, match="expected at most 64 tokens"):
        gpu(torch.zeros(1, 65, dtype=torch.int64, device="cuda"))
    with pytest.raises(ValueError, match=r"\[3, 9, 50\]|contiguous rows|expected"):
        gpu(ids.cuda(), out=torch.empty(3, 9, 49, device="cuda"))
    stream = gpu.stream(ids[0].cuda(), 20, temperature=0)
    first = next(stream)
    assert gpu._handle.num_sessions()[0] == 1
    stream.close()
    assert gpu._handle.num_sessions()[0] == 0 and first == int(cpu.generate(ids[0], 1, temperature=0)[-1])
    with pytest.raises(ZeroDivisionError):
        for token in gpu.stream(ids[0].cuda(), 20):
            token / 0
    assert (gpu.generate(ids, 5, temperature=0) == cpu.generate(ids, 5, temperature=0)).all()


def test_compare(capsys):
    """python -m tegula.compare on the GPU: tiny shapes with gradients."""
    pytest.importorskip("transformers")
    from tegula import compare

    for name in ("gpt2-tiny", "qwen3-tiny", "gpt_oss-tiny"):
        assert compare.main(["--model", name, "--seq-len", "16", "--grad", "--device", "cuda"]) == 0, capsys.readouterr().out


def test_training(both, ids):
    steps = []
    for model in both:
        with tegula.Trainer(model, batch_size=3, sequence_length=8, num_steps=10, learning_rate=1e-3) as trainer:
            steps.append([trainer.step(ids[:, :-1], ids[:, 1:]).loss for _ in range(5)])
            trainer.step(ids[:, :-1].cuda() if model is both[1] else ids[:, :-1], ids[:, 1:])
    assert all(abs(a - b) <= 1e-3 * a for a, b in zip(*steps))
    cpu, gpu = both
    want = cpu(ids)
    assert (gpu(ids) - want).abs().max() <= 2e-2 * want.abs().max()  # sessions have the new weights


def test_set_parameter_reaches_the_gpu(both, ids):
    _, gpu = both
    before = gpu(ids)
    gpu.set_parameter("transformer.ln_f.weight", torch.full((32,), 2.0))
    assert (gpu(ids) - 2 * before).abs().max() <= 1e-4 * before.abs().max()
    with pytest.raises(ValueError, match="expected a model on the CPU to write to"):
        gpu.parameters(writable=True)


def test_arrays():
    x, w = torch.randn(4, 8, device="cuda"), torch.randn(8, device="cuda")
    y, rstd = tegula.arrays.rms_norm(x, w, results=("y", "rstd"))
    assert y.is_cuda and (y == tegula.ops.rms_norm(x, w)).all()
    dx, dweight = tegula.arrays.rms_norm_bwd(torch.ones_like(x), x, w, rstd)
    assert dx.is_cuda and dweight.is_cuda
