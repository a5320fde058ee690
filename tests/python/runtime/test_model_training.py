"""tegula.Trainer and load_from_mingpt, beside the C runtime by ctypes and beside PyTorch."""

import os
import pickle
import threading

import pytest

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
numpy = pytest.importorskip("numpy")

CONFIG = dict(n_layer=2, n_head=2, n_embd=32, n_positions=16, vocab_size=50)
SHAPE = dict(batch_size=3, sequence_length=8, num_steps=20, learning_rate=3e-3)


def batch(seed=0):
    tokens = numpy.random.default_rng(seed).integers(0, 50, (3, 9))
    return tokens[:, :-1], tokens[:, 1:]


def make(seed=1):
    return tegula.Model(tegula.ModelConfig(**CONFIG), seed=seed)


def test_a_text_is_learnt():
    model = make()
    ids, targets = batch()
    with tegula.Trainer(model, **{**SHAPE, "learning_rate": 1e-2}) as trainer:
        before = trainer.loss(ids, targets)
        results = [trainer.step(ids, targets) for _ in range(20)]
        after = trainer.loss(ids, targets)
        assert trainer.steps == 20
    assert results[0].step == 1 and results[0].loss == pytest.approx(before) and results[0].num_targets == 24
    assert results[-1].loss < 0.5 * before and after < results[-1].loss
    assert results[0].learning_rate == pytest.approx(1e-2, rel=0.01) and results[-1].learning_rate == pytest.approx(1e-3)
    z = model(ids).astype(float)
    z -= z.max(-1, keepdims=True)
    logp = z - numpy.log(numpy.exp(z).sum(-1, keepdims=True))
    assert -numpy.take_along_axis(logp, targets[..., None], -1).mean() == pytest.approx(after, rel=1e-5)


@pytest.mark.parametrize("name", ["gpt_oss_nano", "qwen3_moe_nano"])
def test_a_model_of_experts_is_balanced(name):
    """The loss has the auxiliary part, that of an evaluation has not; of two experts a token it is about 2."""
    model = tegula.Model.from_preset(name, vocab_size=50, seed=1)
    ids, targets = batch()
    plain = tegula.Trainer(model, **SHAPE)
    with tegula.Trainer(model, **SHAPE, router_aux_loss_coef=0.5) as trainer:
        before = trainer.loss(ids, targets)
        result = trainer.step(ids, targets)
    assert 1.9 < result.aux_loss < 3 and result.loss == pytest.approx(before + 0.5 * result.aux_loss)
    assert plain.step(ids, targets).aux_loss == 0
    plain.close()
    with pytest.raises(ValueError, match="router_aux_loss_coef: expected a finite number >= 0, got -1"):
        tegula.Trainer(model, **SHAPE, router_aux_loss_coef=-1)
    with pytest.raises(TypeError):
        tegula.Trainer(model, **SHAPE, router_aux_loss_coef="much")


def test_gradients_and_losses_of_pytorch(tmp_path):
    if os.environ.get("TEGULA_TORCH") == "none":
        pytest.skip("TEGULA_TORCH=none: no live models")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = make()
    model.save_pretrained(tmp_path)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    ids, targets = (torch.from_numpy(numpy.ascontiguousarray(a)) for a in batch())
    targets[0, :3] = -100
    loss = torch.nn.functional.cross_entropy(theirs(ids).logits.flatten(0, 1), targets.flatten())
    loss.backward()
    with tegula.Trainer(model, **SHAPE) as trainer:
        assert trainer.backward(ids, targets) == pytest.approx(loss.item(), rel=1e-6)
        gradients = trainer.gradients()
    wanted = dict(theirs.named_parameters())
    assert set(gradients) == set(wanted)
    for name, got in gradients.items():
        want = wanted[name].grad
        want = want.T if want.shape != got.shape or "c_attn.w" in name or "c_proj.w" in name or "c_fc.w" in name else want
        assert (torch.from_dlpack(got) - want).abs().max() <= 1e-5 * want.abs().max(), name


def test_checkpoints_continue(tmp_path):
    batches = [batch(n) for n in range(6)]
    whole, first = make(), make()
    with tegula.Trainer(whole, **SHAPE) as trainer:
        want = [trainer.step(*one) for one in batches]
    with tegula.Trainer(first, **SHAPE) as trainer:
        for one in batches[:3]:
            trainer.step(*one)
        trainer.save(tmp_path / "at3", note="three steps")
    second = tegula.Model.from_pretrained(tmp_path / "at3")
    with tegula.Trainer(second, **SHAPE) as trainer:
        assert trainer.resume(tmp_path / "at3") == "three steps" and trainer.steps == 3
        assert [trainer.step(*one) for one in batches[3:]] == want[3:]
    assert (second(batch()[0]) == whole(batch()[0])).all()
    with tegula.Trainer(second, **SHAPE) as trainer, pytest.raises(ValueError, match="expected the model to have the weights"):
        trainer.resume(tmp_path / "at3")
    with tegula.Trainer(second, **{**SHAPE, "learning_rate": 0.5}) as trainer, pytest.raises(ValueError, match="with learning_rate"):
        trainer.resume(tmp_path / "at3")


def test_a_finished_run_goes_on(tmp_path):
    """Twice the steps are also twice the warm-up, unless that was given."""
    model = make()
    with tegula.Trainer(model, **SHAPE) as trainer:
        for n in range(SHAPE["num_steps"]):
            trainer.step(*batch(n))
        trainer.save(tmp_path / "done")
    model = tegula.Model.from_pretrained(tmp_path / "done")
    with tegula.Trainer(model, **{**SHAPE, "num_steps": 2 * SHAPE["num_steps"]}) as trainer:
        trainer.resume(tmp_path / "done")
        assert trainer.step(*batch()).step == SHAPE["num_steps"] + 1
    with tegula.Trainer(model, **SHAPE, warmup_steps=9) as trainer, pytest.raises(ValueError, match="warmup_steps"):
        trainer.resume(tmp_path / "done")


@pytest.mark.parametrize("how", ["list", "int32", "micro", "bf16"])
def test_forms(how):
    ids, targets = batch()
    with tegula.Trainer(make(), **SHAPE) as trainer:
        want = trainer.step(ids, targets)
    options = {"micro": dict(micro_batch_size=1), "bf16": dict(dtype="bfloat16")}.get(how, {})
    convert = {"list": lambda a: a.tolist(), "int32": lambda a: a.astype(numpy.int32)}.get(how, lambda a: a)
    with tegula.Trainer(make(), **SHAPE, **options) as trainer:
        got = trainer.step(convert(ids), convert(targets))
    assert got == want if how in ("list", "int32") else got.loss == pytest.approx(want.loss, rel=1e-6 if how == "micro" else 5e-3)


def test_the_model_of_an_open_trainer():
    """It computes with the weights after the last step, and an f32 trainer goes on from what set_parameter wrote. Steps
    beyond num_steps have the schedule's last learning rate."""
    model, name = make(), "transformer.wte.weight"
    ids, targets = batch()
    with tegula.Trainer(model, **{**SHAPE, "num_steps": 2}) as trainer:
        first = model(ids)
        steps = [trainer.step(ids, targets) for _ in range(4)]
        assert [one.learning_rate for one in steps[1:]] == [pytest.approx(SHAPE["learning_rate"] / 10)] * 3
        assert not (model(ids) == first).all() and len(model.generate([1, 2], 3)) == 5
        model.set_parameter(name, 0 * numpy.from_dlpack(model.parameters()[name]))
        assert trainer.step(ids, targets).loss == pytest.approx(numpy.log(CONFIG["vocab_size"]), rel=1e-5)


def test_wrong_calls(tmp_path):
    model = make()
    ids, targets = batch()
    before = model(ids)
    for wrong, message in (
        (dict(batch_size=0), "batch_size"), (dict(sequence_length=17), "sequence_length"), (dict(learning_rate=-1.0), "learning_rate"),
        (dict(schedule="linear-ish"), "schedule: expected one of cosine"), (dict(micro_batch_size=2), "micro_batch_size"), (dict(dtype="f9"), "dtype"),
        (dict(sequence_length=2**40), "sequence_length: expected 1 to 2147483647, got 1099511627776"), (dict(num_steps=2**70), "num_steps: expected"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            tegula.Trainer(model, **{**SHAPE, **wrong})
    for keywords, message in ((dict(learning_rate="x"), "learning_rate: expected a number, got 'x'"), (dict(dtype=3), "dtype: expected a name such as .*, got 3")):
        with pytest.raises(TypeError, match=f"trainer: {message}"):
            tegula.Trainer(model, **{**SHAPE, **keywords})
    with pytest.raises(TypeError, match="trainer: model: expected a tegula.Model, got <class 'NoneType'>"):
        tegula.Trainer(None, **SHAPE)
    with tegula.Trainer(model, **SHAPE) as trainer:
        for wrong, message in (
            ((ids[:2], targets), r"ids: expected \[3, 8\], got \[2, 8\]"), ((ids, targets[:, :7]), r"targets: expected \[3, 8\], got \[3, 7\]"),
            ((ids + 50, targets), r"ids\[0, 0\]: expected 0 to 49"), ((ids, 0 * targets - 101), r"targets\[0, 0\]: expected -100 to 49"),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=message):
                trainer.step(*wrong)
        with pytest.raises(RuntimeError):
            trainer.resume(tmp_path / "nowhere")
        assert trainer.steps == 0 and (model(ids) == before).all()
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(trainer)
    for call in (lambda: trainer.step(ids, targets), trainer.gradients, lambda: trainer.steps, trainer.sync, lambda: trainer.save(tmp_path)):
        with pytest.raises(ValueError, match="expected an open one, got one that is closed"):
            call()
    trainer.close()
    with pytest.raises(KeyError), tegula.Trainer(model, **SHAPE) as trainer:
        raise KeyError
    with pytest.raises(ValueError, match="closed"):
        trainer.step(ids, targets)
    narrow = tmp_path / "bf16"
    model.save_pretrained(narrow, dtype="bfloat16")
    with pytest.raises(TypeError, match="f32"):
        tegula.Trainer(tegula.Model.from_pretrained(narrow), **SHAPE)


def test_one_thread_at_a_time():
    model = tegula.Model(tegula.ModelConfig(**{**CONFIG, "n_embd": 128, "n_positions": 128}))
    tokens = numpy.zeros((16, 128), int)
    refused, stepped = [], []
    with tegula.Trainer(model, batch_size=16, sequence_length=128, num_steps=99, learning_rate=1e-3) as trainer:

        def steps():
            for _ in range(8):
                try:
                    stepped.append(trainer.step(tokens, tokens).step)
                except RuntimeError as error:
                    refused.append(str(error))

        threads = [threading.Thread(target=steps) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(stepped) == list(range(1, len(stepped) + 1)) and len(stepped) + len(refused) == 16
    assert all(text == "trainer: expected one thread at a time, got a second one" for text in refused)


# ---- minGPT and nanoGPT ----


def mingpt_state(seed=0, prefix="", bias=True):
    """The names and shapes of minGPT's modules: matrices [out, in], buffers of masks."""
    rng = numpy.random.default_rng(seed)
    normal = lambda *shape: rng.normal(0, 0.2, shape).astype(numpy.float32)  # noqa: E731
    state = {"transformer.wte.weight": normal(50, 32), "transformer.wpe.weight": normal(16, 32)}
    for layer in range(2):
        for name, shape in (("attn.c_attn", (96, 32)), ("attn.c_proj", (32, 32)), ("mlp.c_fc", (128, 32)), ("mlp.c_proj", (32, 128))):
            state[f"transformer.h.{layer}.{name}.weight"] = normal(*shape)
            if bias:
                state[f"transformer.h.{layer}.{name}.bias"] = normal(shape[0])
        for name in ("ln_1", "ln_2"):
            state[f"transformer.h.{layer}.{name}.weight"] = 1 + normal(32)
            if bias:
                state[f"transformer.h.{layer}.{name}.bias"] = normal(32)
        state[f"transformer.h.{layer}.attn.bias"] = numpy.tril(numpy.ones((1, 1, 16, 16), numpy.float32))
    state["transformer.ln_f.weight"] = 1 + normal(32)
    if bias:
        state["transformer.ln_f.bias"] = normal(32)
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return {prefix + name: value for name, value in state.items()}


def reference_logits(state, ids):
    """A GPT in NumPy, f64."""
    p = {name: value.astype(float) for name, value in state.items()}
    get = lambda name: p.get(name, 0.0)  # noqa: E731

    def norm(x, name):
        y = (x - x.mean(-1, keepdims=True)) / numpy.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return y * p[name + ".weight"] + get(name + ".bias")

    def linear(x, name):
        return x @ p[name + ".weight"].T + get(name + ".bias")

    n = ids.shape[1]
    x = p["transformer.wte.weight"][ids] + p["transformer.wpe.weight"][:n]
    for layer in range(2):
        h = f"transformer.h.{layer}."
        q, k, v = (a.reshape(*a.shape[:2], 2, 16).swapaxes(1, 2) for a in numpy.split(linear(norm(x, h + "ln_1"), h + "attn.c_attn"), 3, -1))
        scores = numpy.where(numpy.tril(numpy.ones((n, n))) > 0, q @ k.swapaxes(-1, -2) / 4, -numpy.inf)
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
        x = x + linear(mixed, h + "attn.c_proj")
        a = linear(norm(x, h + "ln_2"), h + "mlp.c_fc")
        gelu = 0.5 * a * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (a + 0.044715 * a**3)))
        x = x + linear(gelu, h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ p["lm_head.weight"].T


@pytest.mark.parametrize("form", ["minGPT", "compiled", "without bias", "untied"])
def test_load_from_mingpt(form, tmp_path):
    state = mingpt_state(prefix="_orig_mod." if form == "compiled" else "", bias=form != "without bias")
    if form == "untied":
        state["lm_head.weight"] = state["lm_head.weight"] + 0.1
    ids = batch()[0]
    want = reference_logits({name.removeprefix("_orig_mod."): value for name, value in state.items()}, ids)
    model = make()
    assert model.load_from_mingpt(state) is model
    assert abs(model(ids) - want).max() < 1e-5 * abs(want).max()
    assert model.config.tie_word_embeddings is (form != "untied")
    model.save_pretrained(tmp_path)
    assert (tegula.Model.from_pretrained(tmp_path)(ids) == model(ids)).all()


def test_load_from_a_module():
    if os.environ.get("TEGULA_TORCH") == "none":
        pytest.skip("TEGULA_TORCH=none")
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def state_dict(self):
            return {name: torch.nn.Parameter(torch.from_numpy(value)) for name, value in mingpt_state().items()}

    model = make().load_from_mingpt(Module())
    assert (model(batch()[0]) == make().load_from_mingpt(mingpt_state())(batch()[0])).all()
    assert model.config.tie_word_embeddings is True


def test_no_loading_beside_an_open_trainer():
    """The trainer has the old weights: it would train and save what the model no longer is."""
    model, state = make(), mingpt_state()
    ids, targets = batch()
    with tegula.Trainer(model, batch_size=len(ids), sequence_length=len(ids[0]), num_steps=2, learning_rate=1e-2) as trainer:
        before = model(ids)
        with pytest.raises(RuntimeError, match="expected a model without an open Trainer, got one with 1"):
            model.load_from_mingpt(state)
        assert (model(ids) == before).all()
        trainer.step(ids, targets)
        assert (model(ids) != before).any()
    model.load_from_mingpt(state)
    assert (model(ids) == make().load_from_mingpt(state)(ids)).all()


def test_the_former_model_s_generation_config_goes(tmp_path):
    make().save_pretrained(tmp_path)
    tmp_path.joinpath("generation_config.json").write_text('{"max_new_tokens": 4}')
    tmp_path.joinpath("notes.txt").write_text("mine")
    kept = tegula.Model.from_pretrained(tmp_path)
    kept.save_pretrained(tmp_path)
    assert tegula.Model.from_pretrained(tmp_path).generation_config["max_new_tokens"] == 4
    make().save_pretrained(tmp_path)
    assert not tmp_path.joinpath("generation_config.json").exists()
    assert tmp_path.joinpath("notes.txt").read_text() == "mine"


def test_wrong_state_dicts():
    model = make()
    before = model(batch()[0])
    state = mingpt_state()
    cases = [
        ({name: value for name, value in state.items() if name != "transformer.wpe.weight"}, "expected transformer.wpe.weight"),
        ({**state, "transformer.ln_f.weight": numpy.ones(31, numpy.float32)}, r"ln_f.weight: expected \[32\], got \[31\]"),
        ({**state, "transformer.h.0.attn.c_attn.weight": numpy.ones((32, 96), numpy.float32)}, r"expected \[96, 32\], got \[32, 96\]"),
        ({**state, "extra": numpy.ones(3, numpy.float32)}, "got extra too"), ({}, "expected a state dict with transformer.wte.weight"),
    ]  # fmt: skip
    for wrong, message in cases:
        with pytest.raises(ValueError, match=message):
            model.load_from_mingpt(wrong)
        assert (model(batch()[0]) == before).all()
    with pytest.raises(TypeError, match="expected a module or a state dict"):
        model.load_from_mingpt(7)
