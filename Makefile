# The front: every target does its own set-up. CMake and Ninja do the work; see CMakePresets.json.
PRESET ?= release
BUILD := build/$(PRESET)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
JOBS ?=
TRAINING := bench-small bench-8b bench-8b-seq bench-gpt-oss bench-qwen3-moe bench-evaluation bench-fsdp bench-ddp bench-rmsnorm bench-lce bench-ops bench-profile bench-loss
CTEST_JOBS := $(or $(JOBS),$(shell nproc 2>/dev/null || echo 2))
# The demo's build: for the CPU alone, unless there is a GPU to run on and nvcc to build for it.
DEMO_PRESET ?= $(shell nvidia-smi -L 2>/dev/null | grep -q GPU && PATH=$$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null && \
                 echo release || echo demo)
BUILD_NOW := cmake --build $(BUILD) $(if $(JOBS),-j $(JOBS))

.PHONY: all build announce help demo test test-c test-python test-gpu sanitize-gpu bench bench-gpu $(TRAINING) prof wheel check nightly format \
        abi support python-stubs mutate fuzz coverage install clean
.DEFAULT_GOAL := all

all: build ## Build the libraries and the command line (PRESET=release)

# Configure once; CMake itself notices what changes later.
$(BUILD)/build.ninja:
	@scripts/setup.sh build
	@cmake --preset $(PRESET)

build: $(BUILD)/build.ninja
	@scripts/setup.sh build
	@$(BUILD_NOW)

# What a build is about to compile, and how long that takes.
announce: $(BUILD)/build.ninja
	@scripts/announce_build.sh $(BUILD)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

demo: ## Train a small GPT on text, then generate from it (two to four minutes)
	@scripts/setup.sh demo
	@test -e build/$(DEMO_PRESET)/build.ninja || cmake --preset $(DEMO_PRESET)
	@cmake --build build/$(DEMO_PRESET) --target tegula_cli story_corpus $(if $(JOBS),-j $(JOBS))
	@scripts/demo.sh build/$(DEMO_PRESET)

test: test-c test-python ## Run all tests (TEGULA_TORCH=none: without PyTorch)

test-c: announce build
	@scripts/setup.sh test
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -LE '^nightly$$' -j $(CTEST_JOBS)

test-python: build
	@scripts/test_python.sh $(BUILD)

test-gpu: build ## Run every op's tests on GPU 0, on each entry of its chain
	@scripts/test_gpu.sh $(BUILD)

sanitize-gpu: build ## Run small cases of every op under compute-sanitizer's tools on GPU 0
	@scripts/sanitize_gpu.sh $(BUILD)

bench: build ## Measure the ops and a training step beside their roofs and peers; record it
	@scripts/bench.sh $(BUILD)

bench-gpu: build ## Measure the ops on GPU 0 beside a copy and their peers; record it
	@scripts/bench_gpu.sh $(BUILD)

bench-small: ## Training steps of Qwen3-0.6B beside their peers on GPU 0; record it
bench-8b: ## The same of Qwen3-8B, 4096 and 8192 tokens
bench-8b-seq: ## The same from 256 to 32768 tokens
bench-gpt-oss: ## Training steps of GPT-OSS 20B with 6 layers on GPU 0
bench-qwen3-moe: ## The same of Qwen3-30B-A3B
bench-evaluation: ## Time and memory of evaluating that GPT-OSS on 8192 tokens
bench-fsdp: ## Qwen3-8B on several GPUs with FSDP2, beside one (BENCH_FLAGS="--gpus 2")
bench-ddp: ## Qwen3-0.6B on several GPUs with DDP, beside one
bench-rmsnorm: ## tegula.ops.rms_norm beside PyTorch and Liger-Kernel
bench-lce: ## The head with its loss, 256 to 32768 tokens
bench-ops: ## Every function of tegula.ops that has a peer
bench-profile: ## Where the time of a training step goes, by kind of kernel and provider
bench-loss: ## Losses of 50 steps on text, stock and patched
$(TRAINING): bench-%: build
	@scripts/bench_training.sh $(BUILD) $* $(BENCH_FLAGS)

wheel: ## Build a wheel that brings its libraries, into wheels/ (TEGULA_CUDA_ARCHS=none: for the CPU)
	@scripts/setup.sh build
	@scripts/build_wheel.sh wheels

prof: build ## Profile a call with ncu (OP=softmax_bwd SHAPE=4096x32768 [SET=full]), or without OP forward passes with nsys
	@$(if $(OP),scripts/prof.sh $(BUILD) $(OP) $(SHAPE) $(SET),scripts/nsys.sh $(BUILD) $(PROF_FLAGS))

check: ## Check format, lint, headers, symbols, struct layouts and names; warnings are errors
	@scripts/check/check.sh $(UNITS)

nightly: ## Run what .ci/run leaves out: every unit's lint, every GPU's kernels, tests under all presets
	@scripts/nightly.sh

format: ## Format every C file
	@scripts/setup.sh check
	@scripts/sources.sh | xargs clang-format-14 -i

abi: ## Write docs/abi.txt: sizes and offsets of the public structs
	@scripts/check/check_layout.py --write

support: build ## Write docs/support.md: which kernel takes which case
	@$(BUILD)/tests/test_ops --support > docs/support.md.new
	@mv docs/support.md.new docs/support.md

python-stubs: build ## Write the signatures of tegula.ops for editors (needs .venv of make test)
	@PYTHONPATH=$(BUILD)/python PYTHONDONTWRITEBYTECODE=1 .venv/bin/python scripts/python_stubs.py

mutate: ## Change kernels one token at a time; write the changes that no test noticed
	@scripts/setup.sh test
	@scripts/mutation/mutate.py $(MUTATE_FLAGS)

fuzz: ## Fuzz whatever reads files (FUZZ_SECONDS=60 each)
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh $(FUZZ_SECONDS)

coverage: ## Line coverage of the C tests: build/coverage/coverage.html
	@scripts/setup.sh coverage
	@scripts/coverage.sh

install: build ## Install into PREFIX=/usr/local, below DESTDIR
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## Remove everything that was built
	rm -rf build build-* .venv demo wheels
