"""Training steps beside their peers: what a worker times, what a sweep makes of turns, rows, pages, bars."""

import csv
import dataclasses
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))

from pages import headline  # noqa: E402
from pages import performance  # noqa: E402
import results_csv  # noqa: E402
from pages import training_bars  # noqa: E402
from tegula_bench import command, report_command, step_command  # noqa: E402
from tegula_bench.results import results_file  # noqa: E402
from tegula_bench.results.newest_runs import newest, ours_of  # noqa: E402
from tegula_bench.progress import Progress  # noqa: E402
from tegula_bench.model_sizes import SIZES  # noqa: E402
from tegula_bench.steps.step_cases import StepCase, case_of  # noqa: E402
from tegula_bench.steps.step_providers import entrants  # noqa: E402
from tegula_bench.steps.step_sweep import Sweep, order_of  # noqa: E402

TINY = StepCase("qwen3-tiny", 1, 8, dtype="f32")


# ---- sizes, cases, options ----


@pytest.mark.parametrize(("name", "parameters"), [
    ("qwen3-0.6b", 596_049_920), ("qwen3-1.7b", 1_720_574_976), ("qwen3-4b", 4_022_468_096), ("qwen3-8b", 8_190_735_360),
    ("gpt-oss-20b", 20_914_757_184), ("qwen3-30b-a3b", 30_532_122_624)])
def test_sizes_are_those_of_the_published_models(name, parameters):
    assert SIZES[name].parameters[0] == parameters


def test_flops_count_the_causal_half_of_attention():
    size = SIZES["qwen3-8b"]
    linear = 6 * (size.parameters[0] - size.vocabulary * size.hidden) * 4096
    assert size.step_flops(1, 4096) == linear + 3 * 2 * 32 * 4096 * 4096 * 128 * 36


@pytest.mark.parametrize("name", ["qwen3-tiny", "gpt-oss-tiny", "qwen3-moe-tiny"])
def test_parameters_are_those_of_the_models(live, name):
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(SIZES[name].config())
    assert SIZES[name].parameters[0] == model.num_parameters()


def test_flops_count_the_keys_of_windows():
    case = case_of("gpt-oss-20b", "b1_s4096", "bf16")
    assert case.flops == pytest.approx(6 * 4096 * (24 * (26.5e6 + 0.092e6 + 4 * 24.88e6) + 579.1e6)
                                       + 12 * 64 * 4096 * 64 * 12 * (2048 + 128), rel=1e-3)
    fewer = dataclasses.replace(case, layers=6)
    assert fewer.flops < case.flops / 2 and fewer.shape == case.shape


def test_a_sparse_case_names_its_layers_and_attention():
    options = command.parse(["gpt-oss"])
    (case,) = step_command.cases_of(options, "gpt-oss")
    assert [entrant.config_of(case) for entrant in entrants(["hf", "hf_flex", "tegula"], ["torch"])] == [
        "6 layers, eager, torch AdamW", "6 layers, flex_attention, torch AdamW", "6 layers, torch AdamW"]
    (case,) = step_command.cases_of(command.parse(["qwen3-moe", "--layers", "2"]), "qwen3-moe")
    assert entrants(["hf"], ["torch"])[0].config_of(case) == "2 layers, sdpa, torch AdamW"


def test_shapes_are_read_as_they_are_written():
    for shape in ("b4_s4096", "b1_s32768_ckpt"):
        assert case_of("qwen3-8b", shape, "bf16").shape == shape
    with pytest.raises(ValueError, match="expected b4_s4096 or b1_s32768_ckpt, got 4x4096"):
        case_of("qwen3-8b", "4x4096", "bf16")


def cases_for(*arguments):
    options = command.parse(list(arguments))
    return [(case.model, case.shape) for case in step_command.cases_of(options, options.command)]


def test_options_choose_cases():
    assert cases_for("small") == [("qwen3-0.6b", "b4_s4096")]
    assert cases_for("small", "--seq", "512,1024") == [("qwen3-0.6b", "b4_s512"), ("qwen3-0.6b", "b4_s1024")]
    assert cases_for("8b", "--model", "qwen3-4b", "--batch", "2", "--checkpointing") == [
        ("qwen3-4b", "b2_s4096_ckpt"), ("qwen3-4b", "b2_s8192_ckpt")]
    assert ("qwen3-8b", "b1_s32768_ckpt") in cases_for("8b-seq")


@pytest.mark.parametrize(("arguments", "said"), [
    (["small", "--providers", "hf,nobody"], "--providers: expected some of hf,"),
    (["small", "--optimiser", "sgd"], "--optimiser: expected some of torch, tegula, got sgd"),
    (["small", "--rounds", "0"], "--rounds, --steps, --warm-up: expected"),
    (["small", "--shape", "s4"], "--shape: expected b4_s4096 or b1_s32768_ckpt, got s4")])
def test_what_cannot_be_meant_is_refused(arguments, said, capsys):
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert said in capsys.readouterr().err


def test_ours_train_with_both_optimisers_and_peers_with_pytorchs():
    assert [entrant.optimiser for entrant in entrants(["tegula_any_order"], ["torch", "tegula"])] == ["tegula"]
    assert [entrant.key for entrant in entrants(["hf", "tegula"], ["torch", "tegula"])] == [
        ("hf", "sdpa, torch AdamW"), ("tegula", "torch AdamW"), ("tegula", "tegula.optim.AdamW")]


def test_rounds_go_there_and_back():
    assert [order_of([0, 1, 2], number) for number in range(4)] == [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]]


# ---- a sweep, with workers that are told what to answer ----


class Worker:
    """Answers from a list, in turn; then as before. Notes what was asked in `log`."""

    def __init__(self, name, answers, log):
        self.name, self.answers, self.log, self.alive = name, answers, log, True
        log.append(f"{name} starts")

    def ask(self, do, **request):
        if do == "hello":
            return {"version": "1", "device": "a GPU", "driver": "a driver"}
        self.log.append(f"{self.name} {request['optimiser']}")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def end(self):
        self.alive = False
        self.log.append(f"{self.name} ends")


def steps(ms, losses=(5.0, 4.0), peak=2**30):
    return {"steps": [ms - 1, ms, ms + 1], "forward": [ms / 4], "backward": [ms / 2], "optimiser": [ms / 4],
            "wall_ms": ms, "clock_mhz": 1980.0, "losses": list(losses), "peak_bytes": peak}  # fmt: skip


def sweep_of(answers, path, **options):
    log = []
    run = results_file.Run(path / "results.csv", "c0ffee", "model", device="a GPU", driver="a driver")
    found = Sweep(lambda name: Worker(name, list(answers[name]), log), run, path, Progress(1), **options)
    return found, log


WHOLE = {"hf": [steps(40.0)], "tegula": [steps(20.0), steps(22.0), steps(10.0), steps(12.0)]}


def test_a_case_becomes_rows(tmp_path, capsys):
    sweep, log = sweep_of(WHOLE, tmp_path)
    assert sweep.go([TINY], entrants(["hf", "tegula"], ["torch", "tegula"])) == (0, 0)
    # Of tegula's four turns the first and the last are with PyTorch's optimiser.
    assert [line for line in log if "starts" not in line] == [
        "hf torch", "tegula torch", "tegula tegula", "tegula tegula", "tegula torch", "hf torch"]
    rows = results_file.read(tmp_path / "results.csv")
    assert [(row["impl"], row["config"], row["ms"], row["tokens_per_s"]) for row in rows] == [
        ("hf", "sdpa; torch AdamW", "40", "200"), ("tegula", "torch AdamW", "16", "500"),
        ("tegula", "tegula.optim.AdamW", "16", "500")]
    assert rows[0]["note"] == "forward 10.00 ms; backward 20.00 ms; optimiser 10.00 ms; p95 41.00 ms; p99 41.00 ms"
    assert "2.500x" in capsys.readouterr().out
    (kept,) = tmp_path.glob("*.json")
    assert json.loads(kept.read_text())["cases"][0]["entrants"][1]["rounds"][0]["steps"] == [19.0, 20.0, 21.0]


def test_what_one_run_holds_whole_is_not_measured_again(tmp_path, capsys):
    everyone = entrants(["hf", "tegula"], ["torch"])
    sweep_of(WHOLE, tmp_path)[0].go([TINY], everyone)
    again, log = sweep_of(WHOLE, tmp_path)
    assert again.go([TINY], everyone) == (0, 0) and not log
    assert "recorded already" in capsys.readouterr().out
    # Somebody new: all of the case again.
    assert again.go([TINY], entrants(["hf", "tegula"], ["torch", "tegula"])) == (0, 0)
    assert "hf torch" in log


def test_a_case_with_a_failure_is_measured_again_whole(tmp_path, capsys):
    everyone = entrants(["hf", "tegula"], ["torch"])
    broken, log = sweep_of(dict(WHOLE, hf=[{"error": "RuntimeError: no"}]), tmp_path)
    assert broken.go([TINY], everyone) == (1, 0)
    assert log.count("hf torch") == 1  # not asked again
    rows = results_file.read(tmp_path / "results.csv")
    assert [(row["impl"], row["ms"], row["note"]) for row in rows if row["impl"] == "hf"] == [
        ("hf", "", "failed: RuntimeError: no")]
    sweep, log = sweep_of(WHOLE, tmp_path)
    assert sweep.go([TINY], everyone) == (0, 0) and "tegula torch" in log


OOM = {"oom": "CUDA out of memory.", "peak_bytes": 138 * 2**30}


def test_out_of_memory_counts_for_one_that_is_alone(tmp_path):
    everyone = entrants(["tegula", "hf"], ["torch"])
    sweep, log = sweep_of({"tegula": [steps(20.0)], "hf": [OOM]}, tmp_path)
    assert sweep.go([TINY], everyone) == (0, 0)
    assert log[:6] == ["tegula starts", "tegula torch", "hf starts", "hf torch", "tegula ends", "hf torch"]
    rows = {row["impl"]: row for row in results_file.read(tmp_path / "results.csv")}
    assert (rows["hf"]["ms"], rows["hf"]["note"]) == ("", "out of memory at 138.0 GiB")
    again, log = sweep_of(WHOLE, tmp_path)
    again.go([TINY], everyone)
    assert not log  # it is a result


def test_memory_that_others_held_is_no_failure(tmp_path):
    sweep, log = sweep_of({"tegula": [steps(20.0)], "hf": [OOM, steps(30.0)]}, tmp_path)
    sweep.go([TINY], entrants(["tegula", "hf"], ["torch"]))
    rows = {row["impl"]: row["ms"] for row in results_file.read(tmp_path / "results.csv")}
    assert rows == {"tegula": "20", "hf": "30"}


def test_no_round_begins_that_would_not_end_in_time(tmp_path, capsys):
    sweep, log = sweep_of(dict(hf=[steps(1e5)]), tmp_path, minutes=1.0)
    assert sweep.go([TINY, TINY], entrants(["hf"], ["torch"])) == (0, 2)
    assert log.count("hf torch") == 1 and not (tmp_path / "results.csv").exists()
    assert "1 of 2 rounds are done; not recorded" in capsys.readouterr().err


def test_other_losses_than_the_stock_models_are_said(tmp_path):
    sweep, _ = sweep_of(dict(WHOLE, tegula=[steps(20.0, (5.0, 4.1))]), tmp_path)
    sweep.go([TINY], entrants(["hf", "tegula"], ["torch"]))
    rows = {row["impl"]: row["note"] for row in results_file.read(tmp_path / "results.csv")}
    assert "loss" not in rows["hf"] and rows["tegula"].endswith("loss 4.1000 where hf has 4.0000")


# ---- pages and bars ----


def record(path, shape="b1_s4096", model="qwen3-8b", more=None, **ms):
    run = results_csv.Run(path, "c0ffee", "model", device="NVIDIA H200")
    rows = []
    for name, value in ms.items():
        impl = {"own": "tegula", "any_order": "tegula_any_order"}.get(name, name)
        row = dict(op=model, dir="step", dtype="bf16", shape=shape, impl=impl, version="1",
                   config="tegula.optim.AdamW" if name == "own" else "torch AdamW")  # fmt: skip
        if value:
            row.update(ms=value, tokens_per_s=4096e3 / value, peak_bytes=68.0 * 2**30, clock_mhz=1530,
                       note="forward 1.00 ms, backward 2.00 ms, optimiser 0.50 ms")  # fmt: skip
            row.update(more or {})
        rows.append(row | ({} if value else dict(note="out of memory at 138.0 GiB")))
    run.append(rows)


def verdicts(path, text):
    lines = performance.judge(newest(results_csv.read(path)), training_bars.BARS)
    return [(line[2], line[3]) for line in lines if line[0] == text]


def test_the_better_of_ours_is_judged_in_the_default_mode(tmp_path):
    path = tmp_path / "h200.csv"
    record(path, hf=500.0, compile=106.0, liger=400.0, tegula=101.0, own=100.0, any_order=50.0)
    assert verdicts(path, "qwen3-8b step, bf16 b1_s4096") == [("1.060x compile", True)]
    assert verdicts(path, "qwen3-8b step, bf16 b1_s4096: memory") == [("68.0 GiB", True)]
    (rows,) = newest(results_csv.read(path)).values()
    assert ours_of(rows)["config"] == "tegula.optim.AdamW"
    record(path, "b1_s8192", hf=500.0, compile=107.0, liger=400.0, tegula=100.0)
    assert verdicts(path, "qwen3-8b step, bf16 b1_s8192") == [("1.070x compile", False)]
    record(path, "b1_s32768_ckpt", hf=500.0, tegula=100.0)
    assert verdicts(path, "qwen3-8b step, bf16 b1_s32768_ckpt") == [("without liger", False)]
    assert verdicts(path, "qwen3-8b step, bf16 b1_s2048") == [("not measured", False)]
    record(path, "b1_s2048", hf=500.0, compile=110.0, liger=400.0, compile_kept=90.0, tegula=100.0)
    assert verdicts(path, "qwen3-8b step, bf16 b1_s2048") == [("0.900x compile_kept", False)]


def test_the_page_shows_who_ran_out_of_memory(tmp_path):
    path = tmp_path / "h200.csv"
    record(path, "b1_s16384", hf=None, liger=120.0, tegula=100.0)
    text = "\n".join(performance.document([], results_csv.read(path)))
    assert "| hf | torch AdamW |  |  |  |  |  |  | out of memory at 138.0 GiB |" in text
    assert "| tegula | torch AdamW | 40960 | 100.0 | 1.00 + 2.00 + 0.50 | 68.0 | 1530 | 1.200 |  |" in text
    assert 'make bench-8b-seq BENCH_FLAGS="--shape b1_s16384"' in text


def test_the_runtimes_own_steps_are_on_the_page(tmp_path):
    path = tmp_path / "h200.csv"
    record(path, "b64_s1024", "gpt2-124m", compile=120.0, tegula=100.0)
    text = "\n".join(performance.document([], results_csv.read(path)))
    assert "The runtime's own training" in text and "`bench/train_step.py --device cuda`" in text


def test_the_headline_is_what_was_recorded(tmp_path):
    path = tmp_path / "h200.csv"
    readme = "before\n<!-- headline -->\nold\n<!-- end of headline -->\nafter\n"
    empty = headline.filled(readme, {})
    assert empty == "before\n<!-- headline -->\n<!-- end of headline -->\nafter\n"
    record(path, hf=200.0, tegula=101.0, own=100.0)
    text = headline.filled(readme, newest(results_csv.read(path)))
    assert "Training Qwen3-8B on 4096 tokens, Tegula processes 40960 tokens/s in 68.0 GiB, 2.00 times transformers (68.0 GiB)." in text
    page = "\n".join(performance.document([], results_csv.read(path)))
    assert "| Qwen3-8B, 1 x 4096 | 40960 tokens/s, 68.0 GiB | transformers 20480 tokens/s, 68.0 GiB |" in page
    assert headline.filled(text, {}) == empty


def test_the_readmes_headline_is_up_to_date():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert headline.filled(text, newest(results_csv.read(ROOT / "bench/results/h200.csv"))) == text


def test_the_chart_of_the_readme_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "h200.csv"
    record(path, hf=200.0, compile=None, liger=150.0, tegula=100.0)
    rows = results_csv.read(path)
    cases = headline.newest_runs.with_failures(rows, newest(rows))
    assert headline.charted(cases)["b1_s4096"]["compile"] is None
    assert headline.draw(cases, tmp_path)
    assert headline.draw({}, tmp_path) is False
    picture = (tmp_path / "qwen3-8b_overview.svg").read_text(encoding="utf-8")
    assert "out of memory" in picture and "Liger-Kernel" in picture


def test_the_report_holds_tables_and_plots(tmp_path, capsys):
    path = tmp_path / "results.csv"
    record(path, hf=200.0, tegula=100.0)
    record(path, "b1_s16384", hf=None, tegula=400.0, own=390.0)
    options = command.parse(["report", "--csv", str(path), "--out", str(tmp_path / "page")])
    options.say = print
    assert report_command.run(options, "report") == (0, [])
    page = (tmp_path / "page/index.html").read_text(encoding="utf-8")
    assert "out of memory at 138.0 GiB" in page and "<td>40960</td>" in page
    assert not re.search(r'(src|href|url)[=(]"?(http|/)', page)
    drawn = sorted(file.name for file in (tmp_path / "page").glob("plots/*"))
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        assert not drawn and "expected matplotlib" in capsys.readouterr().err
    else:
        stems = ["b1_s16384_parts", "b1_s4096_parts", "latency", "memory", "throughput"]
        assert drawn == [f"qwen3-8b_bf16_{stem}.{end}" for stem in stems for end in ("png", "svg")]
        assert page.count("<svg") == 5


def test_what_nobody_said_is_not_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "results.csv"
    record(path, "b64_s1024", "gpt2-124m", more=dict(peak_bytes="", note="", clock_mhz=""), compile=120.0, tegula=100.0)
    options = command.parse(["report", "--csv", str(path), "--out", str(tmp_path / "page")])
    options.say = print
    assert report_command.run(options, "report") == (0, [])
    drawn = sorted(file.name for file in (tmp_path / "page").glob("plots/*.svg"))
    assert drawn == ["gpt2-124m_bf16_latency.svg", "gpt2-124m_bf16_throughput.svg"]


# ---- the whole program, on the CPU ----


@pytest.fixture(scope="module")
def live():
    pytest.importorskip("transformers")


def run_bench(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tegula.bench", *arguments, "--device", "cpu", "--out", str(folder), "--commit", "c0ffee"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_a_sweep_on_the_cpu(live, tmp_path):
    arguments = ["small", "--model", "qwen3-tiny", "--shape", "b1_s16,b1_s16_ckpt", "--dtype", "f32", "--steps", "2",
                 "--warm-up", "1", "--providers", "hf,tegula", "--json"]  # fmt: skip
    done = run_bench(tmp_path, *arguments)
    rows = json.loads(done.stdout)
    assert [(row["shape"], row["impl"], row["config"]) for row in rows] == [
        (shape, *key) for shape in ("b1_s16", "b1_s16_ckpt")
        for key in [("hf", "sdpa, torch AdamW"), ("tegula", "torch AdamW"), ("tegula", "tegula.optim.AdamW")]]  # fmt: skip
    assert all(row["ms"] > 0 and "loss" not in row["note"] for row in rows)
    with (tmp_path / "results.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 6
    assert (tmp_path / "index.html").exists()
    assert json.loads(run_bench(tmp_path, *arguments).stdout) == []  # recorded already


def test_evaluation(live, tmp_path):
    run_bench(tmp_path, "evaluation", "--model", "gpt-oss-tiny", "--layers", "2", "--seq", "48", "--dtype", "f32", "--steps", "2",
              "--providers", "hf,tegula", "--no-report")  # fmt: skip
    theirs, ours = results_file.read(tmp_path / "results.csv")
    assert (theirs["impl"], ours["impl"], ours["dir"], ours["shape"]) == ("hf", "tegula", "evaluation", "b1_s48")
    assert float(ours["ms"]) > 0 and theirs["note"] == ours["note"] and ours["note"].startswith("loss 5.7")


def test_a_worker_survives_what_goes_wrong(live, monkeypatch):
    import torch

    from tegula_bench.steps import step_worker

    worker = step_worker.Worker("hf", "cpu")
    request = dict(case=dict(model="qwen3-tiny", batch=1, seq=8, checkpointing=False, dtype="f32"), optimiser="torch",
                   warm_up=1, steps=2)  # fmt: skip
    first = worker.answer(dict(request, do="time"))
    assert len(first["steps"]) == len(first["backward"]) == 2 and len(first["losses"]) == 3
    assert all(parameter.untyped_storage().nbytes() == 0 for parameter in worker.steps.model.parameters())

    def raising(error):
        def loss_of(ids):
            raise error
        return loss_of

    monkeypatch.setattr(worker.steps, "loss_of", raising(torch.OutOfMemoryError("CUDA out of memory. Tried\nmore")))
    assert worker.answer(dict(request, do="time"))["oom"] == "CUDA out of memory. Tried"
    monkeypatch.setattr(worker.steps, "loss_of", raising(ValueError("no")))
    assert worker.answer(dict(request, do="time")) == {"error": "ValueError: no"}
    monkeypatch.undo()
    assert worker.answer(dict(request, do="time"))["losses"] == first["losses"]


@pytest.mark.parametrize("name", ["compile", "tegula+compile"])
def test_attention_stays_causal_in_a_compiled_model(live, monkeypatch, name):
    """No dense mask: by what the provider passes beside the ids, or by Tegula's own attention."""
    import torch

    from tegula_bench.steps.model_steps import make_model
    from tegula_bench.steps.step_providers import PROVIDERS

    calls = []

    def backend(graph, inputs):
        for part in graph.modules():  # a function with a backward of its own is a graph inside
            for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
                if node.op == "call_function" and re.search("attention_fwd|dot_product_attention", str(node.target)):
                    calls.append((str(node.target), node.kwargs))
        return graph.forward

    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **more: compiler(model, backend=backend, fullgraph=True, **more))
    provider = PROVIDERS[name]
    called = provider.convert(make_model(SIZES["qwen3-tiny"], torch.float32, "cpu"))
    ids = torch.arange(16)[None]
    called(input_ids=ids, labels=ids, use_cache=False, **provider.inputs)
    assert len(calls) == SIZES["qwen3-tiny"].layers
    for target, more in calls:
        if name == "compile":
            assert "scaled_dot_product_attention" in target and more["is_causal"] is True and more["attn_mask"] is None
        else:
            assert "tegula" in target


@pytest.mark.parametrize(("name", "times"), [("compile", 2), ("compile_kept", 1)])
def test_a_checkpointed_layer_keeps_attention_where_its_provider_asks(live, name, times):
    """How often a step runs attention's forward for each layer; the same losses."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from tegula_bench.steps import model_steps, step_providers

    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.calls += "dot_product" in str(function) and "backward" not in str(function)
            return function(*args, **(kwargs or {}))

    provider = dataclasses.replace(step_providers.PROVIDERS[name], convert=lambda model: model, inputs={})
    steps = model_steps.ModelSteps(provider, "cpu")
    case = StepCase("qwen3-tiny", 1, 16, checkpointing=True, dtype="f32")
    with Count() as count:
        found = steps.time(case, "torch", 1, 1)
    assert count.calls == 2 * times * SIZES["qwen3-tiny"].layers
    plain = model_steps.ModelSteps(step_providers.PROVIDERS["hf"], "cpu").time(
        StepCase("qwen3-tiny", 1, 16, dtype="f32"), "torch", 1, 1)
    assert found["losses"] == plain["losses"]


def test_a_process_that_dies_says_how(live, tmp_path):
    from tegula_bench.steps.worker_process import WorkerProcess

    worker = WorkerProcess("nobody", "cpu", tmp_path / "nobody.log", 60)
    assert "KeyError: 'nobody'" in worker.ask(do="hello")["error"] and not worker.alive
    worker.end()


def test_a_process_that_takes_too_long_is_ended(live, tmp_path):
    from tegula_bench.steps.worker_process import WorkerProcess

    worker = WorkerProcess("hf", "cpu", tmp_path / "hf.log", 0.01)
    assert worker.ask(do="hello") == {"error": "no answer within 0.01 s"} and not worker.alive
