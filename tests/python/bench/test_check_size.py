"""scripts/check/check_size.py: its bounds are those of what a build compiles, whatever TEGULA_CUDA_ARCHS says."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts" / "check"))
import check_size  # noqa: E402


def build_ninja(library, static, codes):
    """The lines that count: objects of both libraries, and a command for each entry."""
    objects = lambda entries: " ".join(f"src/cuda_{entry}/silu.o" for entry in entries)  # noqa: E731
    text = f"build src/libtegula_static.a: C_STATIC_LIBRARY_LINKER src/core/status.c.o {objects(static)} | x\n"
    text += f"build src/libtegula.so.0.1.0: C_SHARED_LIBRARY_LINKER__tegula_Release src/core/status.c.o {objects(library)} | x\n"
    text += "build src/libtegula.so.0 src/libtegula.so: CMAKE_SYMLINK_LIBRARY src/libtegula.so.0.1.0\n"
    for entry, names in codes.items():
        options = " ".join(f"-gencode arch=compute_80,code={name}" for name in names)
        text += f"  COMMAND = cd /b && nvcc {options} -std=c++17 -c silu.cu -o /b/src/cuda_{entry}/silu.o\n"
    return text


# TEGULA_CUDA_ARCHS: (entries of libtegula.so, those of the static library beside them, codes, bounds)
BUILDS = {
    "none": ([], [], {}, (4.3, 0, 13.0)),
    "8.0 9.0a, once": (["all", "sm80", "sm90"], [], {"all": ["sm_80"], "sm80": ["sm_80"], "sm90": ["sm_90a"]}, (6.35, 5.5, 13.0)),
    "9.0": (["all", "sm80", "sm90"], ["any"], {"any": ["sm_90"], "sm80": ["sm_90"], "sm90": ["sm_90a"]}, (6.35, 5.5, 13.0)),
    "8.0 9.0a PTX, the default": (
        ["all", "any", "sm80", "sm90"], [],
        {"any": ["compute_75"], "sm80": ["sm_80", "sm_90", "compute_80"], "sm90": ["sm_90a"]}, (7.35, 17.1, 34.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDS)
def test_bounds_follow_the_build(name):
    library, spare, codes, bounds = BUILDS[name]
    entries = check_size.compiled_entries(build_ninja(library, library + spare, codes))
    assert entries == {entry: codes[entry] for entry in library if entry != "all"}
    assert check_size.bounds_of(entries) == pytest.approx(bounds)


def test_the_default_build_fits():
    """Measured: 5.27 MB on the host with sm80 and sm90, 0.93 for the launches of any; PTX is 1.1 to 1.2 times machine code."""
    library, spare, codes, _ = BUILDS["8.0 9.0a PTX, the default"]
    host, kernels, _ = check_size.bounds_of(check_size.compiled_entries(build_ninja(library, library + spare, codes)))
    assert 5.27 + 0.93 <= host and 1.2 * 2.56 + 2 * 2.96 + 1.2 * 2.96 + 0.87 <= kernels


def test_a_library_that_is_too_large_fails(tmp_path, monkeypatch, capsys):
    (tmp_path / "CMakeCache.txt").write_text("CMAKE_BUILD_TYPE:STRING=Release\n")
    (tmp_path / "build.ninja").write_text(build_ninja(["sm80"], [], {"sm80": ["sm_80"]}))
    monkeypatch.setattr(sys, "argv", ["check_size.py", str(tmp_path)])
    for kernels, failed in ((3.5, False), (3.7, True)):
        sizes = {"libtegula.so": (5.0 + kernels, kernels), "tegula": (0.6, 0.0)}
        monkeypatch.setattr(check_size, "stripped", lambda path, sizes=sizes: sizes[path.name])
        assert check_size.main() is failed
        assert ("expected at most 3.6 MB" in capsys.readouterr().out) is failed
