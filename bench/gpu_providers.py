"""The providers of one case for gpu_ops.py: ours, PyTorch as it is, libraries behind it,
torch.compile, other libraries of kernels, and a copy of the same bytes; and whether they agree."""

import dataclasses
import sys

import torch

from baselines import TOLERANCE, as_list, build, compare, run_saved
from gpu_timing import Provider
from peers import fa4_peer, liger_cutedsl_peers, liger_peers, quack_peers
from peers.peer_problem import Formula

# Libraries of kernels that have functions of their own in a Formula's place.
LIBRARIES = {"liger": liger_peers, "liger_cutedsl": liger_cutedsl_peers, "quack": quack_peers}
PEERS = ("torch", "compile", *LIBRARIES, fa4_peer.IMPL)

SETS_BYTES = 200e6  # of all sets together: several times the L2 cache
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


def load_libraries(wanted):
    """impl -> what its variants() needs, of those that are wanted and there."""
    found = {impl: LIBRARIES[impl].load() for impl in wanted if impl in LIBRARIES}
    return {impl: loaded for impl, loaded in found.items() if loaded}


def variants(case, libraries):
    """(impl, configuration, function of the problem's Formula, capturable) of the case."""
    return [(impl, *variant) for impl, loaded in libraries.items()
            for variant in LIBRARIES[impl].variants(loaded, case.op, case.dir, case.shape)]


def is_wanted(case, number, peer, wanted):
    """Of a problem's own peers: PyTorch, the first, then the libraries that the case names."""
    if number == 0:
        return "torch" in wanted
    if peer.impl not in case.libraries:
        return False
    if peer.impl == fa4_peer.IMPL:
        return peer.impl in wanted and bool(fa4_peer.load())
    return "torch" in wanted


def kinds(case, problem, wanted, libraries):
    """(impl, config, version, function of a Problem -> call, capturable) of each peer. The
    functions are called for every set of arrays, long after: none may look at a name bound here."""
    for number, peer in enumerate(problem.peers):
        if is_wanted(case, number, peer, wanted):
            yield (peer.impl, peer.config, peer.version,
                   lambda p, number=number: p.peers[number].run, True)
    if "compile" in wanted and case.compiled:
        yield ("compile", "", torch.__version__,
               lambda p, function=compiled(problem): p.formula.caller(function), True)
    for impl, config, function, capturable in variants(case, libraries) if problem.formula else ():
        yield (impl, config, LIBRARIES[impl].version(),
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

    def __init__(self, case, library, wanted, libraries):
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
        for impl, config, version, make, capturable in kinds(case, problem, wanted, libraries):
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
        touched = min(self.bytes, self.case.bytes or self.bytes)  # experts without rows are not read
        wanted = max(2, -int(-SETS_BYTES // max(touched, 1)))
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
