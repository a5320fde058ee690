"""python -m tegula.bench beside its sweeps: profiles, losses on text, several devices, single functions, and what pages and
bars make of them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))

from pages import performance  # noqa: E402
import results_csv  # noqa: E402
from pages import training_bars  # noqa: E402
from tegula_bench import kernel_classes as kinds  # noqa: E402
from tegula_bench import command, loss_command, profile_command, progress, sharded_command  # noqa: E402
from tegula_bench.results import result_tables  # noqa: E402
from tegula_bench.results.newest_runs import newest  # noqa: E402
from tegula_bench.model_sizes import SIZES  # noqa: E402
from tegula_bench.steps.step_cases import StepCase  # noqa: E402
from tegula_bench.steps.step_providers import PROVIDERS, Entrant  # noqa: E402

LARGE = StepCase("qwen3-8b", 1, 4096)
OURS = Entrant(PROVIDERS["tegula"], "tegula")


# ---- profiles ----


@pytest.mark.parametrize(("name", "kind"), [
    ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NTN", kinds.PRODUCTS),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", kinds.PRODUCTS),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>", kinds.PRODUCTS),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_2", kinds.ATTENTION),
    ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>", kinds.ATTENTION),
    ("void sm90::attention_bwd_keys_kernel<__nv_bfloat16, 128>", kinds.ATTENTION),
    ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<c10::BFloat16>>", kinds.OPTIMISER),
    ("void sm90::adamw_step_kernel<__nv_bfloat16>", kinds.OPTIMISER),
    ("void at::native::cunn_SoftMaxForward<8, float, float>", kinds.LOSS),
    ("sm80::linear_cross_entropy_scan_kernel", kinds.LOSS),
    ("_rms_norm_backward_kernel", kinds.NORMS),
    ("void sm80::rms_norm_fwd_rows_kernel<...>", kinds.NORMS),
    ("qk_norm_rope_bwd_kernel", kinds.ROTATION),
    ("_triton_rope", kinds.ROTATION),
    ("void gated_bwd_kernel<SwigluBf16>", kinds.ACTIVATION),
    ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_4", kinds.FUSED),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", kinds.OTHER),
    ("Memcpy DtoD (Device -> Device)", kinds.COPIES),
    ("void at::native::(anonymous namespace)::embedding_backward_feature_kernel<...>", kinds.EMBEDDING),
])  # fmt: skip
def test_kernels_are_known_by_their_names(name, kind):
    assert kinds.kind_of(name) == kind


def test_least_work_of_a_step():
    size, found = SIZES["qwen3-8b"], kinds.floors(LARGE, SIZES["qwen3-8b"])
    # Products and attention together: what the step counts, and scores once more in the backward.
    flops = found[kinds.PRODUCTS][0] + found[kinds.ATTENTION][0] * 6 / 7
    assert flops == pytest.approx(LARGE.flops, rel=1e-4)  # but the norms' weights, which multiply no matrix
    assert found[kinds.OPTIMISER] == (0, 14 * size.parameters[0])


def test_least_work_of_a_checkpointed_step():
    size, found = SIZES["qwen3-8b"], kinds.floors(LARGE, SIZES["qwen3-8b"])
    again = kinds.floors(StepCase("qwen3-8b", 1, 4096, True), size)
    # Once more: q, k, v and o of 32 and 8 heads, gate and up; neither down nor the head.
    wide = 2 * 32 * 128 + 2 * 8 * 128 + 2 * 12288
    assert again[kinds.PRODUCTS][0] - found[kinds.PRODUCTS][0] == pytest.approx(2 * 4096 * 36 * 4096 * wide, rel=1e-4)
    assert again[kinds.ATTENTION] == found[kinds.ATTENTION] and again[kinds.OPTIMISER] == found[kinds.OPTIMISER]
    # Six of each layer's once more; two fewer in the forward where the addition is between layers.
    tensors = (again[kinds.NORMS][1] - found[kinds.NORMS][1]) / (2 * 4096 * size.hidden)
    assert tensors == 6 * size.layers - 2 * (size.layers + 1)


def test_a_profile_becomes_shares_of_roofs():
    timed = {"steps": [10.0, 12.0, 11.0]}
    kernels = [("nvjet_a", 4.0), ("nvjet_b<1, 2>", 2.0), ("adamw_step_kernel", 3.0), ("odd", 1.0)]
    flops = kinds.floors(LARGE, SIZES["qwen3-8b"])[kinds.PRODUCTS][0]
    rows = profile_command.rows_of(LARGE, OURS, "1", timed, kernels, {"gemm_bf16": flops / 3e-3, "copy": 4e12})
    assert [(row["config"], row["ms"]) for row in rows] == [
        (kinds.PRODUCTS, 6.0), (kinds.OPTIMISER, 3.0), (kinds.OTHER, 1.0), (kinds.IDLE, 1.0)]  # fmt: skip
    assert rows[0]["roof_share"] == pytest.approx(0.5) and rows[0]["note"] == "nvjet_a 4.00 ms, nvjet_b<1 2> 2.00 ms"
    assert rows[1]["roof"] == "copy" and "roof" not in rows[2]


def written(path, suite, rows):
    run = results_csv.Run(path, "c0ffee", suite, device="NVIDIA H200")
    run.append(rows)
    return results_csv.read(path)


def test_a_profile_on_the_page(tmp_path):
    rows = []
    for name, idle in (("hf", 2.0), ("tegula", 1.0)):
        kernels = [("nvjet_a", 4.0), ("aten elementwise", 2.0)]
        rows += profile_command.rows_of(LARGE, Entrant(PROVIDERS[name]), "1", {"steps": [6.0 + idle]}, kernels,
                                        {"gemm_bf16": 1e15, "copy": 4e12})  # fmt: skip
    text = "\n".join(performance.document([], written(tmp_path / "h200.csv", "profile", rows)))
    assert "| ms of a step | hf | tegula |" in text
    assert "| other element-wise | 2.0 (25.0%) | 2.0 (28.6%) |" in text
    assert "| all | 8.0 | 7.0 |" in text and "| nvjet_a | matrix products | 4.00 |" in text


# ---- losses, several devices ----


def loss_rows(mine):
    stock = {"losses": [3.0] * 20, "steps": [1.0], "unseen": 3.0, "peak_bytes": 0}
    todo = [("hf", stock), ("hf_f32", dict(stock, losses=[3.0] * 10 + [3.01] * 10)), ("tegula", dict(stock, losses=mine))]
    case = StepCase("qwen3-0.6b", 4, 1024)
    return [loss_command.row_of(loss_command.Training(impl, "torch AdamW", OURS, case), 20, "1", found, stock)
            for impl, found in todo]  # fmt: skip


@pytest.mark.parametrize(("last", "met"), [(3.009, True), (3.011, False)])
def test_losses_are_measured_by_what_bf16_does_to_the_stock_model(tmp_path, last, met):
    rows = written(tmp_path / "h200.csv", "loss", loss_rows([3.0] * 10 + [last] * 10))
    assert rows[2]["note"].startswith(f"loss {last:.5f}; unseen text 3.00000; from hf {(last - 3) / 2:.3g} on average")
    (line,) = training_bars.LossDistance("qwen3-0.6b").judge(newest(rows))
    assert line[3] is met
    assert "## Losses of training on text" in "\n".join(performance.document([], rows))


@pytest.mark.parametrize(("ms", "losses", "met"), [
    (105.0, [5.0, 4.001], True), (120.0, [5.0, 4.0], False), (105.0, [5.0, 4.02], False)])
def test_scaling_is_judged_with_its_losses(tmp_path, ms, losses, met):
    alone = {"ms": 100.0, "steps": [100.0], "losses": [9.0, 9.0], "peak_bytes": 2**30}
    together, several = dict(alone, losses=[5.0, 4.0]), dict(alone, ms=ms, losses=losses)
    note = sharded_command.compared(several, alone, together, 2)
    rows = [sharded_command.row_of(LARGE, OURS, "1", 1, "one GPU", alone),
            sharded_command.row_of(LARGE, OURS, "1", 2, "fsdp", several, note)]
    bar = training_bars.Scaling("qwen3-8b", "b1_s4096")
    assert bar.judge({})[0][2:] == ("not measured", False)
    rows = written(tmp_path / "h200.csv", "gpus", rows)
    (line,) = bar.judge(newest(rows))
    assert line[0].endswith("2 of them") and line[3] is met
    assert rows[1]["tokens_per_s"] == f"{2 * 4096e3 / ms:.6g}"
    assert 'make bench-fsdp BENCH_FLAGS="--gpus 2"' in "\n".join(performance.document([], rows))


@pytest.mark.parametrize(("found", "how"), [({}, "fsdp"), ({"copy_engines": True}, "fsdp, gathers by copy engines")])
def test_a_row_says_who_gathers(tmp_path, monkeypatch, found, how):
    answer = {"ms": 100.0, "steps": [100.0], "losses": [5.0], "peak_bytes": 2**30}
    asked = []

    def launch(options, case, entrant, way, parts, processes, log):
        asked.append((way, parts, processes))
        return {**answer, **found} if way == "fsdp" else answer

    monkeypatch.setattr(sharded_command, "launch", launch)
    options = command.parse(["fsdp", "--gpus", "4", "--out", str(tmp_path)])
    rows, well = sharded_command.measure(options, "fsdp", LARGE, OURS, 4, progress.Progress(3))
    assert well and asked == [("one", 1, 1), ("one", 4, 1), ("fsdp", 4, 4)]
    assert [(row["shape"], row["config"]) for row in rows] == [
        ("b1_s4096_x1", f"one GPU, {OURS.config}"), ("b1_s4096_x4", f"{how}, {OURS.config}")]  # fmt: skip


# ---- the programs, on the CPU ----


def test_the_package_does_not_import_its_benchmarks():
    code = "import sys, tegula; print([name for name in sys.modules if name.startswith(('tegula.bench', 'tegula_bench', 'torch'))])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.fixture(scope="module")
def live():
    pytest.importorskip("transformers")


def rows_from(folder, *arguments):
    words = [sys.executable, "-m", "tegula.bench", *arguments, "--device", "cpu", "--out", str(folder), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "index.html").exists()
    return json.loads(done.stdout)


def test_a_profile_on_the_cpu(live, tmp_path):
    rows = rows_from(tmp_path, "profile", "--model", "qwen3-tiny", "--shape", "b1_s16", "--providers", "hf,tegula",
                     "--steps", "2", "--warm-up", "1")  # fmt: skip
    assert {row["impl"] for row in rows} == {"hf", "tegula"}
    for impl in ("hf", "tegula"):
        found = {row["config"]: row for row in rows if row["impl"] == impl}
        assert found[kinds.PRODUCTS]["roof"] == "gemm_bf16" and kinds.IDLE in found
        assert all(row["ms"] > 0 for row in found.values())
    cases = newest(results_csv.read(tmp_path / "results.csv"))
    assert "Where a step's time goes" in (tmp_path / "index.html").read_text()
    assert result_tables.kinds(next(iter(cases.values())))[0] == ("ms of a step", "hf", "tegula")


def test_losses_on_the_cpu(live, tmp_path):
    text = tmp_path / "text"
    text.write_bytes(bytes(range(32, 127)) * 40)
    rows = rows_from(tmp_path, "loss", "--model", "qwen3-tiny", "--shape", "b1_s32", "--count", "12", "--text", str(text))
    assert [(row["impl"], row["config"]) for row in rows] == [
        ("hf", "sdpa, torch AdamW"), ("hf_f32", "sdpa, torch AdamW"), ("tegula", "torch AdamW"),
        ("tegula", "tegula.optim.AdamW")]  # fmt: skip
    (kept,) = tmp_path.glob("loss-*.json")
    losses = [found["losses"] for found in json.loads(kept.read_text())]
    assert all(len(found) == 12 for found in losses)
    assert losses[0][0] == pytest.approx(losses[1][0], rel=5e-3) and losses[0] != losses[1]  # the same weights, in f32


@pytest.mark.parametrize(("way", "provider", "model"), [
    ("fsdp", "tegula", "qwen3-tiny"),
    pytest.param("fsdp", "tegula", "qwen3-tiny-untied", marks=pytest.mark.nightly),
    pytest.param("ddp", "hf", "qwen3-tiny", marks=pytest.mark.nightly)])  # fmt: skip
def test_two_processes_train_as_one(live, tmp_path, way, provider, model):
    rows = rows_from(tmp_path, way, "--model", model, "--shape", "b1_s32", "--dtype", "f32", "--count", "4",
                     "--warm-up", "1", "--providers", provider)  # fmt: skip
    assert [(row["shape"], row["config"].split(",")[0]) for row in rows] == [("b1_s32_x1", "one GPU"), ("b1_s32_x2", way)]
    assert float(rows[1]["note"].split("loss within ")[1].split()[0]) < 1e-5
    assert "copy engines" not in rows[1]["config"]  # gloo has none


def test_devices_that_are_not_there_are_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    options = command.parse(["fsdp", "--gpus", "2", "--out", str(tmp_path)])
    assert sharded_command.run(options, "fsdp") == (1, [])
    assert "expected 2 GPUs, got 1" in capsys.readouterr().err
    options.command = "all"
    assert sharded_command.run(options, "fsdp") == (0, [])


def test_a_global_batch_is_more_than_its_part(live):
    """Else equal losses of two processes and of one would say nothing."""
    import torch

    from tegula_bench.steps.text_batches import batches, text_bytes

    pieces = batches(text_bytes(), 2, 2, 16)
    assert [tuple(piece.shape) for piece in pieces] == [(2, 16), (2, 16)]
    assert len({tuple(row.tolist()) for piece in pieces for row in piece}) == 4
    assert torch.equal(batches(b"abc", 1, 2, 4)[0], torch.tensor([[97, 98, 99, 97], [98, 99, 97, 98]]))


@pytest.mark.parametrize("name", [pytest.param("rmsnorm", marks=pytest.mark.nightly), "lce", "ops"])
def test_functions_on_the_cpu(live, tmp_path, name):
    rows = rows_from(tmp_path, name, "--providers", "torch,tegula")
    assert {row["impl"] for row in rows} == {"torch", "tegula"}
    for row in rows:
        assert row["ms"] > 0 and row["note"] == "", row  # the same results, too
    if name == "lce":
        assert rows_from(tmp_path, name, "--providers", "torch,tegula") == []  # recorded already


def test_a_function_that_fails_is_said(live, monkeypatch):
    import torch

    from tegula_bench import function_cases, function_command

    case = function_cases.FunctionCase("silu", "fwd", "f32", (4, 8))

    def no_memory(x):
        raise torch.OutOfMemoryError("CUDA out of memory")

    def wrong(x):
        return x + 1

    functions = {"torch": torch.nn.functional.silu, "compile": no_memory, "tegula": wrong}
    monkeypatch.setattr(function_command, "functions_of", lambda *_: functions)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 2**30)
    rows = {row["impl"]: row for row in function_command.measure(case, (), "cpu", dict.fromkeys(functions, "1"), 1)}
    assert "ms" not in rows["compile"] and rows["compile"]["note"] == "out of memory at 1.0 GiB"
    assert rows["tegula"]["note"].startswith("result 0 differs from torch's")
    assert rows["torch"]["note"] == "" and rows["torch"]["ms"] > 0


def test_without_a_gpu_one_error_says_so(tmp_path):
    words = [sys.executable, "-m", "tegula.bench", "small", "--out", str(tmp_path / "made")]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 1 and done.stdout == "" and not (tmp_path / "made").exists()
    assert done.stderr.startswith("tegula.bench: expected a GPU that nvidia-smi describes") and done.stderr.count("\n") == 1
