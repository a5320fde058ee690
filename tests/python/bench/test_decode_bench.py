"""bench/decode_speed.py and its peers' processes, on a CPU and with tiny models."""

import json
import pathlib
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import decode_peer  # noqa: E402
import decode_speed  # noqa: E402
import results_csv  # noqa: E402
from tegula_bench.steps.worker_process import WorkerProcess  # noqa: E402


@pytest.fixture
def uncompiled(monkeypatch):
    """Compiling takes minutes on a small machine; in f32 a cache changes no token."""
    make = decode_peer.make_model
    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    monkeypatch.setattr(decode_peer, "make_model", lambda *which: make(*which).float())


@pytest.mark.parametrize("name", ["gpt2-tiny", "qwen3-tiny"])
def test_every_run_of_the_peer_begins_behind_the_same_tokens(uncompiled, name):
    torch.manual_seed(1)
    worker = decode_peer.Tokens(name, "cpu", depth=12, tokens=6)
    ids = worker.run()[1]
    assert ids == worker.run()[1] == worker.run()[1]
    text = torch.cat([worker.first, worker.first[:, :1]], 1)
    with torch.no_grad():
        for picked in ids:
            best = worker.net(text, use_cache=False).logits[:, -1:].argmax(-1)
            assert best.item() == picked
            text = torch.cat([text, best], 1)
    assert len(worker.time(3)["seconds"]) == 3


def test_the_training_forward_saves_for_the_backward(uncompiled):
    import tegula
    try:
        worker = decode_peer.Training("qwen3-tiny", "cpu", prompt=16)
        assert "tegula" in str(tegula.report(worker.trunk))
        last = worker.run()
        assert last.shape == (1, 16, 64) and last.requires_grad
        found = worker.time(2)
        assert found["how"] == "eager" and len(found["seconds"]) == 2
    finally:
        tegula.reset()


def test_a_peer_that_fails_says_why(tmp_path):
    program = (str(ROOT / "bench/decode_peer.py"),)
    worker = WorkerProcess("hf:nobody", "cpu", tmp_path / "log", 100, program)
    assert worker.ask(runs=1) == {"error": "KeyError: 'nobody'"}
    assert worker.ask(runs=1) == {"error": "KeyError: 'nobody'"}
    worker.end()


class Worker:
    """Answers without a process; a name with `dead` in it fails."""

    def __init__(self, name, device, log, patience, program):
        self.name, self.alive = name, True

    def ask(self, runs):
        if "dead" in self.name:
            return {"error": "no"}
        return {"seconds": [0.5] * runs, "version": "torch 2", "config": "static"}

    def end(self, kill=False):
        self.alive = False


@pytest.fixture
def rows(monkeypatch, tmp_path):
    """A function: rows of a run with these workers, where ours is told in advance."""
    rates = {"-p": [4000.0, 1000.0, 2000.0], "tg": [20.0, 40.0, 30.0]}

    def told(command, **how):
        batch = int(command[command.index("--batch") + 1])
        kind = "tg" if command[command.index("-p") + 1] == "0" else "-p"
        found = [rate * batch for rate in rates[kind]]
        return types.SimpleNamespace(stdout=json.dumps({"rates": found, "plan": "one kernel; 8 blocks"}))

    def run(model):
        path = tmp_path / "rows.csv"
        options = types.SimpleNamespace(build="build", runs=3, batch=None, version="0.1.0")
        peers = decode_speed.Peers([f"hf:{model}", f"training:{model}"], tmp_path, 1)
        record = results_csv.Run(path, "c0ffee", "engine", device="NVIDIA H200", driver="d")
        peers.wait(1)
        assert decode_speed.run_model(options, peers, record, model) == (model == "qwen3-0.6b")
        return results_csv.read(path)

    monkeypatch.setattr(decode_speed, "WorkerProcess", Worker)
    monkeypatch.setattr(subprocess, "run", told)
    monkeypatch.setattr(decode_speed.gpu_state, "clock_mhz", lambda: 1980.0)
    return run


def test_rows_hold_medians_of_ours_and_of_the_peers(rows):
    found = {(row["dir"], row["shape"], row["impl"]): row for row in rows("qwen3-8b")}
    assert list(found) == [("decode", "b1_tg128@d512", "tegula"), ("decode", "b1_tg128@d512", "hf"),
                           ("decode", "b32_tg128@d512", "tegula"), ("prefill", "b1_pp2048", "tegula"),
                           ("prefill", "b1_pp2048", "training_forward")]
    figures = {key[1:]: (float(row["ms"]), float(row["tokens_per_s"])) for key, row in found.items()}
    assert figures == {
        ("b1_tg128@d512", "tegula"): (pytest.approx(1e3 / 30, rel=1e-5), 30.0),
        ("b1_tg128@d512", "hf"): (500.0, 2.0),
        ("b32_tg128@d512", "tegula"): (pytest.approx(1e3 / 30, rel=1e-5), 960.0),
        ("b1_pp2048", "tegula"): (1024.0, 2000.0), ("b1_pp2048", "training_forward"): (500.0, 4096.0)}
    assert {row["run"] for row in found.values()} == {found["decode", "b1_tg128@d512", "hf"]["run"]}


def test_a_peer_that_failed_has_no_row(rows, monkeypatch, capsys):
    monkeypatch.setitem(decode_speed.BATCHES, "dead", [1])
    monkeypatch.setattr(decode_speed, "vocabulary", lambda name: 320)
    assert [row["impl"] for row in rows("dead")] == ["tegula"]
    assert "hf:dead: not run: no" in capsys.readouterr().out


def test_a_case_that_failed_has_no_row(rows, monkeypatch, capsys):
    monkeypatch.setattr(decode_speed, "run_ours", failing(decode_speed.run_ours))
    assert [row["dir"] for row in rows("qwen3-0.6b")] == ["decode", "decode"]
    assert "qwen3-0.6b b1_pp2048: FAILED: out of memory" in capsys.readouterr().out


def failing(run_ours):
    def run(options, model, batch, *arguments):
        if arguments[:2] == ("-p", 2048):
            raise subprocess.CalledProcessError(1, "tegula", stderr="out of memory")
        return run_ours(options, model, batch, *arguments)

    return run
