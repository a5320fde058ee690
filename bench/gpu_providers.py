"""The providers of one case for gpu_ops.py: ours, PyTorch as it is, libraries behind it,
torch.compile, Liger-Kernel, and a copy of the same bytes; and whether they agree."""

import dataclasses
import sys

import torch

from baselines import TOLERANCE, as_list, build, compare, run_saved
from gpu_timing import Provider
from peers import liger_peers
from peers.peer_problem import Formula

SETS_BYTES = 200e6  # of all sets together: several times the second-level cache
MAX_SETS = 512
MEMORY_SHARE = 0.7  # of what is free that a case may take


def tensors_of(problem):
    found = {t.data_ptr(): t for value in problem.fields.values()
             for t in as_list(value) if isinstance(t, torch.Tensor)}
    return found.values()


def bytes_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def make_problem(case, seed, device):
    with torch.device(device):
        problem = build(case.op, case.dir, case.shape, case.dtype, (), seed)
    if case.in_place:
        source, result = case.in_place
        problem.fields[source] = problem.fields[result] = problem.fields[source].clone()
    return problem


def own_copy(formula):
    """Inputs and incoming gradients that a function may overwrite."""
    inputs = {name: t.clone() for name, t in formula.inputs.items()}
    return Formula(formula.function, inputs, formula.outputs, formula.fixed,
                   tuple(t.clone() for t in formula.incoming), formula.both)


def compiled(problem):
    """torch.compile for exactly these shapes; its graphs must survive a second backward."""
    torch._dynamo.reset()
    torch._functorch.config.donated_buffer = False
    formula = problem.formula
    return torch.compile(formula.models_code or formula.function, dynamic=False)


def kinds(case, problem, wanted, liger):
    """(impl, config, version, function of a Problem -> call, capturable) of each peer. The
    functions are called for every set of arrays, long after: none may look at a name bound here."""
    for number, peer in enumerate(problem.peers if "torch" in wanted else ()):
        if number == 0 or peer.impl in case.libraries:
            yield (peer.impl, peer.config, peer.version,
                   lambda p, number=number: p.peers[number].run, True)
    if "compile" in wanted and case.compiled:
        yield ("compile", "", torch.__version__,
               lambda p, function=compiled(problem): p.formula.caller(function), True)
    if "liger" in wanted and liger and problem.formula:
        for config, function, capturable in liger_peers.variants(liger, case.op, case.dir):
            yield ("liger", config, liger_peers.version(),
                   lambda p, function=function: own_copy(p.formula).caller(function), capturable)


def copy_call(size, device):
    """A kernel that reads half of the bytes and writes the others. (copy_ would become a node of
    the graph that copies at two thirds of a kernel's pace.)"""
    source = torch.randn(max(1, int(size / 8)), device=device)
    target = torch.empty_like(source)
    return lambda: torch.mul(source, 1.0, out=target)


def peak_of(run):
    """Memory that a call takes beside its inputs and results."""
    run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results = run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before - bytes_of(results.values())


class Providers:
    """Everything of one case. `list` holds ours first, then the copy, then the peers; `failed` the
    peers that cannot do it, with the reason."""

    def __init__(self, case, library, wanted, liger):
        self.case, self.library, self.failed = case, library, []
        start = torch.cuda.memory_allocated()
        problem = make_problem(case, 1, library.device)
        self.bytes = bytes_of(tensors_of(problem))
        self.tolerance = problem.tolerance or TOLERANCE[case.dtype]
        call = self.our_call(problem)
        call()
        library.wait()
        mine = {slot: [t.clone() for t in as_list(v)] for slot, v in call.outputs().items()}
        self.ours = Provider(f"tegula:{library.entry}", [call], version=library.version,
                             capturable=not case.events,
                             peak_bytes=call.workspace_bytes if case.memory else 0)
        self.list = [self.ours]
        self.makers = []  # (peer, function of a problem that makes its call)
        if case.copied:
            self.list.append(Provider("copy", [copy_call(case.bytes, library.device)],
                                      version=torch.__version__, capturable=not case.events))
        for impl, config, version, make, capturable in kinds(case, problem, wanted, liger):
            provider = Provider(impl, [], config, version, capturable and not case.events)
            self.add_peer(provider, make, problem, mine)
        torch.cuda.synchronize()
        del mine
        held = torch.cuda.memory_allocated() - start
        self.add_sets(2 * held)  # graphs hold results, too

    def our_call(self, problem):
        if (self.case.op, self.case.dir) == ("attention", "bwd"):
            run_saved(self.library, self.case.op, problem.fields)
        return self.library.call(f"{self.case.op}_{self.case.dir}", problem.fields)

    def add_peer(self, provider, make, problem, mine):
        """PyTorch must give our results; another peer that does not is timed and said so."""
        try:
            call = make(problem)
            theirs = call()
            torch.cuda.synchronize()
        except Exception as error:  # a compiler's or a library's own: anything
            provider.note = f"failed: {str(error).strip().splitlines()[0][:120]}"
            self.failed.append(provider)
            print(f"{provider.impl} {self.case.op} {self.case.dir} {self.case.shape}: "
                  f"{provider.note}", file=sys.stderr)
            return
        try:
            compare(dataclasses.asdict(self.case), mine, provider, theirs, self.tolerance)
        except RuntimeError as error:
            if provider.impl == "torch":
                raise
            provider.note = f"differs: {str(error)[:120]}"
            print(error, file=sys.stderr)
        del theirs
        if self.case.memory:
            provider.peak_bytes = peak_of(call)
        provider.calls.append(call)
        self.list.append(provider)
        self.makers.append((provider, make))

    def add_sets(self, bytes_of_one):
        """As many more sets of arrays as fill the cache several times, and as fit."""
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0] * MEMORY_SHARE
        wanted = max(2, -int(-SETS_BYTES // max(self.bytes, 1)))
        self.sets = min(wanted, MAX_SETS, max(1, 1 + int(free / max(bytes_of_one, 1))))
        for seed in range(2, self.sets + 1):
            problem = make_problem(self.case, seed, self.library.device)
            self.ours.calls.append(self.our_call(problem))
            for provider in self.list:
                if provider.impl == "copy":
                    provider.calls.append(copy_call(self.case.bytes, self.library.device))
            for provider, make in self.makers:
                provider.calls.append(make(problem))
        for provider in self.list:  # compiles, loads and allocates what a graph must not
            provider.round()
        torch.cuda.synchronize()
