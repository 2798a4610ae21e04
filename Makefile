# Every target can be repeated: what is up to date takes seconds and says so. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
TORCH := $(shell sed -n 's/^torch==\([0-9.]*\).*/\1/p' requirements/torch.txt | tail -n 1)
OLDEST_TORCH := 2.11.0
PY := $(VENV)/bin/python
# For output of our own programs in the virtual environment, and for CMake to find its tools there.
RUN := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"
PIP := -m pip install --disable-pip-version-check -q
CMAKE := $(RUN) cmake -G Ninja --log-level=WARNING -DPython3_EXECUTABLE=$(CURDIR)/$(PY)
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help
# A compiler is passed on only where the user names one; otherwise CMake takes the system's.
ifneq ($(origin CXX),default)
export CXX
endif

# Clones in different folders share what the compiler cache holds; paths below this one are stored relative.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
export CCACHE_SLOPPINESS := pch_defines,time_macros

.PHONY: help
help:  ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

.PHONY: preflight
preflight:
	@tools/preflight.sh $(PYTHON) $(TORCH) $(VENV)

$(PY): | preflight
	@echo "environment: making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-torch: requirements/torch.txt | $(PY)
	@echo "environment: installing torch (5.5 GB on disk, some minutes)"
	@$(PY) $(PIP) -r $<
	@touch $@

$(VENV)/.installed-%: requirements/%.txt $(VENV)/.installed-torch | $(PY)
	@echo "environment: installing $<"
	@$(PY) $(PIP) -r $<
	@touch $@

# Editable: the Python files are used where they stand, the native modules are built into python/prismllm.
$(VENV)/.installed-package: pyproject.toml setup.py $(VENV)/.installed-build | $(PY)
	@echo "build: compiling the native modules and installing prismllm into $(VENV) (minutes the first time)"
	@$(PY) $(PIP) --no-build-isolation --no-deps -e .
	@touch $@

.PHONY: build
build: preflight $(VENV)/.installed-package  ## make .venv with torch, compile, leave .venv/bin/prism working
	@$(PY) setup.py -q build_ext --inplace
	@echo "build: up to date, the command is $(VENV)/bin/prism"

.PHONY: demo
demo: build  ## capture a 16-rank GPT training on 2 slots, replay it, draw its timeline
	@PRISM=$(VENV)/bin/prism tools/demo.sh

.PHONY: test
test: lint test-cpp test-python  ## lint, C++ tests, Python tests

.PHONY: lint
lint: $(VENV)/.installed-test  ## ruff, clang-format, shellcheck
	@$(RUN) tools/lint.sh

.PHONY: format
format: $(VENV)/.installed-test  ## format Python and C++
	@$(RUN) tools/lint.sh --fix

.PHONY: test-cpp
test-cpp: $(VENV)/.installed-build  ## C++ tests alone, without torch
	@tools/catch2.sh
	@$(CMAKE) -B build/tests -DPRISM_TORCH=OFF -DPRISM_TESTS=ON -DPRISM_BENCH=ON
	@$(RUN) cmake --build build/tests
	@$(RUN) ctest --test-dir build/tests --output-on-failure

# In two processes; tests that may not be disturbed run alone (tests/conftest.py). PYTEST_ARGS="-n 0 ..." is one process.
.PHONY: test-python
test-python: build $(VENV)/.installed-test
	@$(RUN) python -m pytest -q -n 2 $(PYTEST_ARGS)

.PHONY: test-torch211
test-torch211: preflight  ## build for the oldest supported torch and run the backend's tests there
	@tools/test_torch.sh $(PYTHON) $(OLDEST_TORCH) .venv-torch211

.PHONY: conformance
conformance: build $(VENV)/.installed-test  ## PyTorch's own tests of torch.distributed, under prism (minutes)
	@$(RUN) python -m pytest -q tests/conformance $(PYTEST_ARGS)

.PHONY: ecosystem
ecosystem: build $(VENV)/.installed-test  ## programs of accelerate, transformers, DeepSpeed, Megatron-core and Fabric, unedited
	@tools/test_ecosystem.sh $(PYTHON) .venv-ecosystem $(PYTEST_ARGS)

.PHONY: soak
soak: build $(VENV)/.installed-test  ## faults of every kind at many points of a capture (an hour)
	@$(RUN) python -m pytest -q tests/soak $(PYTEST_ARGS)

.PHONY: check-jobs
check-jobs: build  ## training programs of ../shared/jobs (or PRISM_JOBS) against their recorded losses
	@$(RUN) python tools/check_jobs.py

.PHONY: bench
bench: build  ## measure, and print each figure beside its limit
	@$(CMAKE) -B build/bench -DPRISM_TORCH=OFF -DPRISM_BENCH=ON -DCMAKE_BUILD_TYPE=Release
	@$(RUN) cmake --build build/bench
	@$(RUN) python bench/run.py

# Not a part of prismllm: GPL-2.0, and the only user of ns-3. Without its dependencies: they are bindings to Python.
NS3 := $(VENV)/bin/prism-ns3
.PHONY: ns3
ns3: $(NS3)  ## packet-level networks: ns-3 (69 MB) and prism-ns3, which is GPL-2.0, into .venv
	@echo "ns3: up to date, prism simulate collective --network ns3 uses $(NS3)"

$(NS3): requirements/ns3.txt $(wildcard ns3/*.* ns3/src/* ns3/prismllm_ns3/*.py) | $(VENV)/.installed-build
	@echo "environment: installing ns-3 (305 MB on disk) and compiling prism-ns3"
	@$(PY) $(PIP) --no-deps -r $<
	@$(PY) $(PIP) --no-deps --no-build-isolation --force-reinstall ./ns3
	@touch $@

.PHONY: ns3-test
ns3-test: ns3 build $(VENV)/.installed-test  ## packet-level networks against arithmetic and the flow level
	@$(RUN) python -m pytest -q tests/python/test_packets.py tests/python/test_packets_errors.py $(PYTEST_ARGS)

# The compiler alone: these programs use nothing of ours, and nothing of ours links SimGrid.
PEERS := $(patsubst bench/peers/%.cpp,build/peers/%,$(wildcard bench/peers/*.cpp))
.PHONY: peers
peers: simgrid $(PEERS)  ## programs of SimGrid that our network simulation is compared with, into build/peers
	@echo "peers: up to date in build/peers, bench/peers/README.md says how to run them"

.PHONY: simgrid
simgrid:
	@printf '#if !__has_include(<simgrid/s4u.hpp>)\n#error\n#endif\n' | $(CXX) -fsyntax-only -x c++ - 2>/dev/null || { \
	  echo "prismllm: SimGrid was not found; install it (Debian, Ubuntu: apt-get install libsimgrid-dev)" >&2; exit 1; }

build/peers/%: bench/peers/%.cpp bench/peers/simgrid.hpp | simgrid
	@mkdir -p $(@D)
	@echo "build: compiling $@"
	@$(CXX) -std=c++20 -O2 -DNDEBUG -Wall -Wextra $< -o $@ -lsimgrid

.PHONY: sanitize-address sanitize-thread
sanitize-address:  ## C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
sanitize-thread:  ## C++ tests under ThreadSanitizer
sanitize-address sanitize-thread: sanitize-%: $(VENV)/.installed-build
	@tools/catch2.sh
	@$(CMAKE) -B build/$* -DPRISM_TORCH=OFF -DPRISM_TESTS=ON -DPRISM_SANITIZE=$*
	@$(RUN) cmake --build build/$*
	@$(RUN) ctest --test-dir build/$* --output-on-failure

.PHONY: clean
clean:  ## remove what was built; the virtual environments stay
	@rm -rf build dist demo-out ns3/build python/prismllm/*.so python/*.egg-info $(VENV)/.installed-package
	@echo "clean: removed build/, dist/, demo-out/ and the native modules; 'rm -r $(VENV)' removes the environment"
