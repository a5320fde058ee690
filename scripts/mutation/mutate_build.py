"""The base build of the mutation test, changed copies of its tests, and what running one says."""
import collections
import json
import os
import pathlib
import resource
import shlex
import signal
import subprocess
import threading

from mutate_report import ROOT

BUILD = ROOT / "build/mutate"
# The address sanitizer and traps for undefined shifts and bounds, as in .ci/run.
FLAGS = "-O1 -DTGI_INLINE_FREELY -fsanitize=address,shift,bounds -fsanitize-undefined-trap-on-error"
# The first for stdbuf; the second because 64-byte vectors on fake stacks crashed with gcc 13.3.
ASAN_OPTIONS = ("verify_asan_link_order=0:detect_stack_use_after_return=0:detect_leaks=0:"
                "hard_rss_limit_mb=8192")


class Toolbox:
    """The base build and how to make a changed one of it."""

    def __init__(self, entry):
        subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja",
                        "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_C_FLAGS_DEBUG={FLAGS}",
                        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                        "-DTEGULA_CUDA_ARCHS=none"], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", BUILD], check=True, stdout=subprocess.DEVNULL)
        self.compile = collections.defaultdict(list)
        for command in json.loads((BUILD / "compile_commands.json").read_text()):
            words = shlex.split(command["command"])
            entries = [w for w in words if w.startswith("-DTGI_ENTRY=")]
            if not entries or entries == [f"-DTGI_ENTRY={entry}"]:
                self.compile[pathlib.Path(command["file"])].append(words)
        self.link = {}
        self.baseline = {}
        self.lock = threading.Lock()

    def link_words(self, test):
        with self.lock:
            if test not in self.link:
                lines = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", f"tests/{test}"],
                                       check=True, text=True,
                                       stdout=subprocess.PIPE).stdout.splitlines()
                words = shlex.split(lines[-1])
                self.link[test] = words[words.index("&&") + 1:words.index("&&", 2)]
            return self.link[test]

    def compile_object(self, source, target, changed=None, overlay=None):
        """One object file; `changed` replaces the source's text, `overlay` goes before src/."""
        words = list(self.compile[source][0])
        words[words.index("-o") + 1] = str(target)
        if "-MF" in words:
            at = words.index("-MF")
            words[at + 1] = str(target) + ".d"
        if overlay:
            words.insert(1, f"-I{overlay}")
        if changed:
            words[words.index(str(source))] = str(changed)
            words += [f"-I{source.parent}"]
        return subprocess.run(words, cwd=BUILD, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0

    def link_test(self, test, objects, target):
        """The test with `objects` in place of the archive's members."""
        words = list(self.link_words(test))
        words[words.index("-o") + 1] = str(target)
        first = next(i for i, w in enumerate(words) if w.endswith(".o"))
        words[first:first] = ["-Wl,--allow-multiple-definition", *map(str, objects)]
        return subprocess.run(words, cwd=BUILD, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)


def no_core_file():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def notices(command, timeout):
    """How a test notices ("failed", "crashed", "hung"), or None when it passes."""
    with subprocess.Popen(["stdbuf", "-oL", *map(str, command)], text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, preexec_fn=no_core_file,
                          env=os.environ | {"ASAN_OPTIONS": ASAN_OPTIONS},
                          start_new_session=True) as process:
        timed_out = threading.Event()

        def stop():
            timed_out.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(timeout, stop)
        timer.start()
        failed = False
        for line in process.stdout:
            if line.startswith("FAILED") or line.startswith("[  FAILED  ]"):
                failed = True
                os.killpg(process.pid, signal.SIGKILL)
                break
        code = process.wait()
        timer.cancel()
    if failed:
        return "failed"
    if timed_out.is_set():
        return "hung"
    return None if code == 0 else "crashed" if code < 0 else "failed"
