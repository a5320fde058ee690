#!/usr/bin/env python3
"""What is installed stays small: the shared library and the command line, stripped.
   scripts/check_size.py BUILD_DIR
Bounds are for release builds by gcc, in millions of bytes; what is in a library and how to see it:
docs/design.md, "Sizes"."""
import pathlib
import re
import subprocess
import sys
import tempfile

CPU_ONLY = 3.0        # libtegula.so without CUDA
HOST = 5.5            # with it, all but the kernels for GPUs: cudart and launches come on top
KERNELS = 3.9         # for each GPU of TEGULA_CUDA_ARCHS, twice as much for PTX: two entries
COMMAND_LINE = 0.9
ONE_GPU, ALL_GPUS = 10.0, 30.0  # library and command line together


def stripped(path):
    """Bytes of the file without symbols, and of the section with the kernels for GPUs."""
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "-o", copy.name, path], check=True)
        size = pathlib.Path(copy.name).stat().st_size
    sections = subprocess.run(["size", "-A", path], text=True, check=True,
                              stdout=subprocess.PIPE).stdout
    kernels = re.search(r"^\.nv_fatbin\s+(\d+)", sections, re.M)
    return size / 1e6, int(kernels.group(1)) / 1e6 if kernels else 0.0


def architectures(build):
    """The words of TEGULA_CUDA_ARCHS as configured, from the commands of the build."""
    found = re.search(r'TGI_CUDA_ARCHS=[\\"]+([0-9aPTX. ]+)', (build / "build.ninja").read_text())
    return found.group(1).split() if found else []


def main():
    build = pathlib.Path(sys.argv[1])
    cache = (build / "CMakeCache.txt").read_text()
    if not re.search(r"^CMAKE_BUILD_TYPE:\w+=Release$", cache, re.M):
        print("size: expected a release build")
        return True
    library, kernels = stripped(build / "src/libtegula.so")
    program, _ = stripped(build / "src/cli/tegula")
    gpus = architectures(build)
    parts = sum(2 if word == "PTX" else 1 for word in gpus)
    bounds = [("command line", program, COMMAND_LINE)]
    if gpus:
        bounds += [("libtegula.so without kernels for GPUs", library - kernels, HOST),
                   (f"kernels for {' '.join(gpus)}", kernels, KERNELS * parts),
                   ("library and command line", library + program,
                    ONE_GPU if len(gpus) == 1 and parts == 1 else ALL_GPUS)]
    else:
        bounds += [("libtegula.so", library, CPU_ONLY)]
    failed = False
    for what, size, bound in bounds:
        print(f"size: {what}: {size:.2f} MB of {bound:.1f}")
        if size > bound:
            print(f"size: {what}: expected at most {bound:.1f} MB")
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
