#!/usr/bin/env python3
"""What is installed stays small: the shared library and the command line, stripped, and the wheel.
   scripts/check/check_size.py BUILD_DIR
Bounds are for release builds by gcc, in millions of bytes; what is in a library and how to see it:
docs/design.md, "Sizes". Those of kernels for GPUs count what the build compiles: for each entry that
is in the library, its launches on the host, and its code for each GPU and for PTX."""
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
import zlib

CPU_ONLY = 3.5         # libtegula.so without CUDA
CUDA_RUNTIME = 0.8     # cudart, and what the library has around it
COMMAND_LINE = 1.2
ONE_GPU, ALL_GPUS = 13.0, 34.0  # library and command line together
CPU_WHEEL, ONE_GPU_WHEEL = 6.0, 12.0


@dataclasses.dataclass(frozen=True)
class EntryBounds:
    launches: float  # code of the host
    machine: float   # machine code for one GPU
    ptx: float


ENTRIES = {"any": EntryBounds(1.0, 2.9, 3.7), "sm80": EntryBounds(1.25, 3.6, 4.3),
           "sm90": EntryBounds(0.8, 1.9, 2.1)}


def stripped(path):
    """Bytes of the file without symbols, and of the section with the kernels for GPUs."""
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "-o", copy.name, path], check=True)
        size = pathlib.Path(copy.name).stat().st_size
    sections = subprocess.run(["size", "-A", path], text=True, check=True,
                              stdout=subprocess.PIPE).stdout
    kernels = re.search(r"^\.nv_fatbin\s+(\d+)", sections, re.M)
    return size / 1e6, int(kernels.group(1)) / 1e6 if kernels else 0.0


def compiled_entries(ninja):
    """{entry: [code]} of libtegula.so from the text of build.ninja: {"sm80": ["sm_80", "compute_80"]}."""
    link = re.search(r"^build src/libtegula\.so\S*: C_SHARED_LIBRARY\S* ([^\n|]*)", ninja, re.M)
    names = set(re.findall(r"\bsrc/cuda_(\w+)/", link.group(1))) - {"all"} if link else set()
    entries = {}
    for name in sorted(names):
        command = re.search(rf"(-gencode [^\n]*?) -std=[^\n]*/cuda_{name}/", ninja).group(1)
        entries[name] = re.findall(r"code=(\w+)", command)
    return entries


def bounds_of(entries):
    """(host, kernels, library and command line) in millions of bytes."""
    host = CPU_ONLY + CUDA_RUNTIME + sum(ENTRIES[name].launches for name in entries)
    kernels = sum(ENTRIES[name].ptx if code.startswith("compute") else ENTRIES[name].machine
                  for name, codes in entries.items() for code in codes)
    one = "any" not in entries and all(len(codes) == 1 for codes in entries.values())
    return host, kernels, ONE_GPU if one else ALL_GPUS


def grafted(module):
    """The libraries that auditwheel puts into the wheel beside the module: all that it needs but libtegula and the system's."""
    done = subprocess.run(["ldd", module], text=True, check=True, stdout=subprocess.PIPE)
    found = re.findall(r"^\s*(lib\S+) => (/\S+)", done.stdout, re.M)
    return [pathlib.Path(path).resolve() for name, path in found
            if not re.match(r"lib(tegula|c|m|dl|rt|pthread)\.so", name)]


def compressed(path):
    """Bytes of the file in a wheel, which is a zip archive: code without symbols, all deflated."""
    with tempfile.NamedTemporaryFile() as copy:
        content = path.read_bytes()
        if content[:4] == b"\x7fELF":
            subprocess.run(["strip", "-o", copy.name, path], check=True)
            content = pathlib.Path(copy.name).read_bytes()
    return len(zlib.compress(content, 6))


def wheel_size(build):
    """Megabytes of a wheel of the build's Python package; None without one."""
    package = build / "python/tegula"
    modules = [package / f"{name}.abi3.so" for name in ("_core", "_runtime")]
    if not all(module.exists() for module in modules):
        return None
    files = [build / "src/libtegula.so", *modules, *grafted(modules[1])]
    for folder in ("tegula", "tegula_bench"):
        files += [path for path in (build / "python" / folder).rglob("*.py*") if path.is_file()]
    return sum(map(compressed, files)) / 1e6


def main():
    build = pathlib.Path(sys.argv[1])
    cache = (build / "CMakeCache.txt").read_text()
    if not re.search(r"^CMAKE_BUILD_TYPE:\w+=Release$", cache, re.M):
        print("size: expected a release build")
        return True
    library, kernels = stripped(build / "src/libtegula.so")
    program, _ = stripped(build / "src/cli/tegula")
    entries = compiled_entries((build / "build.ninja").read_text())
    bounds = [("command line", program, COMMAND_LINE)]
    if entries:
        host, code, both = bounds_of(entries)
        words = ", ".join(f"{name} for {' '.join(codes)}" for name, codes in entries.items())
        bounds += [("libtegula.so without kernels for GPUs", library - kernels, host),
                   (f"kernels: {words}", kernels, code),
                   ("library and command line", library + program, both)]
    else:
        bounds += [("libtegula.so", library, CPU_ONLY)]
    wheel = wheel_size(build)
    if wheel and (not entries or bounds[-1][2] == ONE_GPU):
        bounds += [("wheel", wheel, ONE_GPU_WHEEL if entries else CPU_WHEEL)]
    failed = False
    for what, size, bound in bounds:
        print(f"size: {what}: {size:.2f} MB of {bound:.1f}")
        if size > bound:
            print(f"size: {what}: expected at most {bound:.1f} MB")
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
