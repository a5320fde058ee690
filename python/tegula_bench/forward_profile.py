"""python -m tegula.profile: forward passes and decoding of the presets, as profiling_data.json and performance_dashboard.html."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time

from .dashboard import chart_page, performance_charts
from .dashboard.chart_data import finite
from .time_spread import spread_of

MODELS = ["gpt_nano", "gpt_micro", "gpt_mini", "gpt_tile_small", "gpt_tile_medium", "gpt_tile_large"]
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
TIMING = ("mean", "std", "min", "max", "median", "p95", "p99")


def options_of(arguments):
    parser = argparse.ArgumentParser("python -m tegula.profile", description=__doc__)
    parser.add_argument("--run-profiling", action="store_true", help="measure; without it the page is made of --data")
    parser.add_argument("--data", type=pathlib.Path, metavar="FILE", help="a profiling_data.json of another run")
    parser.add_argument("--models", default=",".join(MODELS), help="presets, with commas between")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--vocab-size", type=int, default=0, help="0: the presets' own")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--peers", default="", help="beside PyTorch: some of eager, compile, reduce-overhead, with commas between")
    parser.add_argument("--command", help="the program tegula, where it is not found")
    parser.add_argument("--output", default="performance_dashboard.html", metavar="NAME", help="of the page")
    parser.add_argument("--output-dir", type=pathlib.Path, default=pathlib.Path("profiling_results"))
    parser.add_argument("--svg", action="store_true", help="a small page: charts drawn by matplotlib, not by Plotly")
    options = parser.parse_args(arguments)
    if options.run_profiling == bool(options.data):
        parser.error("expected one of --run-profiling and --data FILE")
    if min(options.batch_size, options.seq_len, options.iterations) < 1:
        parser.error("--batch-size, --seq-len, --iterations: expected 1 or more")
    if not options.output or pathlib.Path(options.output).name != options.output:
        parser.error(f"--output: expected a name, with its folder in --output-dir, got {options.output!r}")
    return options


# ---- measuring by the command line ----


def find_command():
    """The program tegula: on the PATH, or in the build folder that this package is of. None: in neither."""
    build = pathlib.Path(__file__).parents[2] / "src" / "cli" / "tegula"  # of a build's python/, which has links to the sources
    return shutil.which("tegula") or (str(build) if build.exists() else None)


def bench(options, mode, name, *words):
    """What `tegula bench` says in JSON."""
    command = [options.command, "bench", mode, "--preset", name, "--dtype", options.dtype, "--device", options.device, "--json", *words]
    if options.vocab_size:
        command += ["--vocab-size", str(options.vocab_size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"{' '.join(command)}: exit code {done.returncode}")
    return json.loads(done.stdout)


def contexts_of(positions):
    """Tokens in the cache that decoding is timed behind."""
    found = [16]
    while found[-1] * 4 < positions - 1:
        found.append(found[-1] * 4)
    return [one for one in found if one < positions - 1] + [positions - 1]


def by_command(options, name, positions):
    shape = ["--batch", str(options.batch_size), "--seq", str(options.seq_len), "--iterations", str(options.iterations)]
    said = bench(options, "forward", name, *shape, "--logits-dtype", options.dtype, "--ops")
    decode = []
    for context in contexts_of(positions):
        step = bench(options, "decode", name, "--seq", str(context), "--steps", "20")
        decode.append({"context": context, "ms": step["ms"], "tokens_per_sec": step["tokens_per_s"]})
    return {
        "config": said["config"],
        "timing": {key: said["ms" if key == "median" else f"ms_{key}"] for key in TIMING},
        "parameters": said["parameters"], "weight_bytes": said["weight_bytes"], "gflops": said["gflops"],
        "peak_bytes": said.get("device_peak_bytes") or said["peak_bytes"],
        "roof": said["ops"]["roof"], "share": said["ops"]["share"], "ops": said["ops"]["rows"], "decode": decode,
    }  # fmt: skip


# ---- measuring in this process, where the program is not there ----


def by_model(options, name):
    import tegula
    from tegula.compare import shape_of

    model = tegula.Model.from_preset(name, seed=0, vocab_size=options.vocab_size or None, device=options.device)
    info = model.info
    ids = [[(7919 * (row + place)) % info["vocab_size"] for place in range(options.seq_len)] for row in range(options.batch_size)]
    times = []
    for number in range(options.iterations + 2):
        start = time.perf_counter()
        model(ids)
        if number >= 2:
            times.append(1e3 * (time.perf_counter() - start))
    return {
        "config": shape_of(info), "timing": spread_of(times), "parameters": info["num_parameters"],
        "weight_bytes": info["weight_bytes"], "peak_bytes": None,
    }  # fmt: skip


def beside_peers(options, name):
    from tegula import compare

    words = ["--model", name, "--batch-size", str(options.batch_size), "--seq-len", str(options.seq_len), "--dtype", options.dtype]
    words += ["--device", options.device, "--vocab-size", str(options.vocab_size), "--benchmark", "--peers", options.peers]
    result = compare.compare(name, compare.options_of(words))
    return result["times"]


# ---- what it was measured on ----


def ask(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def number_of(text):
    """nvidia-smi says [N/A] where a card does not tell."""
    try:
        return float(text) or None
    except ValueError:
        return None


def first_match(path, word):
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(word)), "")


def metadata(options):
    """The predecessor's keys first."""
    import tegula

    on_gpu = options.device != "cpu"
    index = int(options.device.partition(":")[2] or 0)
    try:
        info = tegula.device_info(index) if on_gpu else {}
    except (NotImplementedError, RuntimeError):  # this package lacks the GPU that the program has
        info = {}
    capability = info.get("compute_capability")
    clock = ask("nvidia-smi", f"--id={index}", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits") if on_gpu else ""
    cuda = ask("nvidia-smi").partition("CUDA Version:")[2].split() if on_gpu else []
    folder = pathlib.Path(__file__).resolve().parent
    return {
        "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu_name": info.get("name"), "compute_capability": capability and f"{capability // 10}.{capability % 10}",
        "cuda_version": cuda[0] if cuda else None,
        "device": options.device, "cpu": first_match("/proc/cpuinfo", "model name") or platform.machine(), "cpus": os.cpu_count(),
        "dtype": options.dtype, "version": tegula.__version__,
        "commit": os.environ.get("TEGULA_COMMIT") or ask("git", "-C", str(folder), "rev-parse", "HEAD") or None,
        "clocks": {"sm_mhz": number_of(clock), "cpu_mhz": number_of(first_match("/proc/cpuinfo", "cpu MHz"))},
        "iterations": options.iterations,
    }  # fmt: skip


def positions_of(options):
    """Of each model. Raises what can be known to be wrong before anything is measured."""
    import tegula

    known = {preset["name"]: preset["max_position_embeddings"] for preset in tegula.presets()}
    found = {}
    for name in options.models.split(","):
        if name not in known:
            raise ValueError(f"--models: expected some of {', '.join(known)}, got {name}")
        found[name] = known[name]
        if options.seq_len > found[name]:
            raise ValueError(f"--seq-len: expected at most {found[name]} (the positions of {name}), got {options.seq_len}")
    if not options.command and options.dtype != "f32":
        raise ValueError(f"--dtype: expected f32 without the program tegula (--command), got {options.dtype}")
    chart_page.check(options.output_dir, options.svg)
    return found


def measure_one(options, name, positions):
    run = by_command(options, name, positions) if options.command else by_model(options, name)
    tokens = options.batch_size * options.seq_len
    run |= {"throughput_tokens_per_sec": 1e3 * tokens / run["timing"]["mean"], "batch_size": options.batch_size,
            "seq_len": options.seq_len, "dtype": options.dtype}  # fmt: skip
    if options.peers:
        run["peers"] = beside_peers(options, name)
    print(f"{name}: {run['timing']['mean']:.3f} ms, {run['throughput_tokens_per_sec']:,.0f} tokens/s", file=sys.stderr)
    return run


def measure(options):
    """What was measured, and whether that is all: an error of one model costs no other its numbers."""
    runs, whole = {}, True
    for name, positions in positions_of(options).items():
        try:
            runs[name] = measure_one(options, name, positions)
        except ERRORS as error:
            print(f"tegula.profile: {name}: {error}", file=sys.stderr)
            whole = False
    return (finite({"metadata": metadata(options), "benchmarks": runs}) if runs else None), whole


# ---- the page ----


def machine(data):
    known = data["metadata"]
    rows = []
    for key, value in known.items():
        for word, one in value.items() if isinstance(value, dict) else [("", value)]:
            if one is not None:
                rows.append([f"{key} {word}".strip().replace("_", " "), str(one)])
    return chart_page.table(("what", "value"), rows, caption="Measured on")


def slowest_ops(data):
    """Of every model the ops that take most."""
    rows = []
    for name, run in data["benchmarks"].items():
        for row in sorted(run.get("ops", ()), key=lambda row: -row["ms"])[:5]:
            rows.append([name, f"{row['op']} {row['shape']}", row["calls"], row["ms"], 100 * row["share"], row["bound"]])
    if rows:
        heading = ("model", "op", "calls", "ms of a pass", "% of the roof", "bound by")
        yield "<details><summary>The five ops of each model that take most</summary>"
        yield from chart_page.table(heading, rows)
        yield "</details>"


def write_page(options, data):
    lines = [*machine(data), *slowest_ops(data)]
    path = options.output_dir / (options.output.removesuffix(".html") + ".html")
    return chart_page.write(path, "Tegula: forward passes", lines, performance_charts.charts_of(data), options.svg)


ERRORS = (ValueError, TypeError, KeyError, OSError, RuntimeError, NotImplementedError, ModuleNotFoundError)


def page_of_data(options):
    """The page of another run's data."""
    expected = f"--data: {options.data}: expected a profiling_data.json that --run-profiling has left"
    try:
        data = json.loads(options.data.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or not isinstance(data.get("benchmarks"), dict) or not data["benchmarks"]:
            raise ValueError("no benchmarks")
        return write_page(options, data)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{expected}, got {type(error).__name__}: {error}") from error


def main(arguments=None):
    options = options_of(arguments)
    options.command = options.command or find_command()
    try:
        if options.data:
            print(page_of_data(options))
            return 0
        if not options.command:
            print("tegula.profile: without the program tegula (--command), ops and decoding are left out", file=sys.stderr)
        data, whole = measure(options)
        if data:
            text = json.dumps(data, indent=1, allow_nan=False) + "\n"
            (options.output_dir / "profiling_data.json").write_text(text, encoding="utf-8")
            print(write_page(options, data))
        return 0 if whole else 1
    except ERRORS as error:
        print(f"tegula.profile: {error}", file=sys.stderr)
        return 1
