# posenc: everything a contributor runs, inside a virtual environment that this file makes.

PYTHON ?= python3
VENV ?= .venv
BUILD_DIR ?= build/dev
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
TORCH ?= torch>=2.11
SEED ?= 20170612
POSENC_CUDA ?= AUTO

bin := $(abspath $(VENV))/bin
reports := $(abspath $(BUILD_DIR))/reports
pip := $(bin)/python -m pip --quiet --disable-pip-version-check
cpp_files = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu')

# Scripts that a recipe starts find the environment's python and cmake.
export PATH := $(bin):$(PATH)
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.PHONY: help build library test demo benchmarks bench format check-format lint check-cuda check-exactness check-neon check-all clean

help:
	@echo 'make build      virtual environment, C++ library, tests, examples, editable Python package'
	@echo 'make test       build, then every C++ and Python test'
	@echo 'make demo       build, then the demonstration on real text'
	@echo 'make bench      build, then the benchmarks'
	@echo 'make format     put all sources into the format of the project'
	@echo 'make lint       check format, spelling, types; ruff and clang-tidy'
	@echo 'make check-cuda what the compiled CUDA kernels use and cost; needs no GPU'
	@echo 'make check-exactness  10 million elements and all rows to 70,000 against exact values; minutes'
	@echo 'make check-neon kernels and their tests for 64-bit Arm under qemu; needs neither torch nor the environment'
	@echo 'make check-all  test, lint, the other checks, packaging tests, sanitizers'
	@echo 'make clean      remove what was built, but not the virtual environment'
	@echo
	@echo 'Variables and their values:'
	@echo '  PYTHON=$(PYTHON) VENV=$(VENV) BUILD_DIR=$(BUILD_DIR) JOBS=$(JOBS) TORCH="$(TORCH)" SEED=$(SEED) POSENC_CUDA=$(POSENC_CUDA)'

# ---- Environment: one stamp for what the build needs, one for the package and its extras. ----

$(VENV)/.tools:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo 'posenc: PYTHON must be Python >= 3.10, but got $(PYTHON). Run: make PYTHON=python3.12'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo 'posenc: $(PYTHON) must have the module venv, but has not. Run: sudo apt-get install python3-venv'; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || \
	  { echo 'posenc: a C++20 compiler must be installed, but there is none. Run: sudo apt-get install g++'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(pip) install '$(TORCH)' 'cmake>=3.28' ninja numpy 'setuptools>=77'
	@touch $@

$(VENV)/.package: pyproject.toml setup.py $(VENV)/.tools | library
	POSENC_BUILD_DIR=$(BUILD_DIR) $(pip) install --no-build-isolation --editable '.[dev]'
	@touch $@

# ---- One build folder serves the tests, the examples and the Python package. ----

library: $(VENV)/.tools
	@$(bin)/cmake --preset dev -B $(BUILD_DIR) --log-level=WARNING -DPOSENC_CUDA=$(POSENC_CUDA) \
	  -DPython3_EXECUTABLE=$(bin)/python -DCMAKE_MAKE_PROGRAM=$(bin)/ninja
	$(bin)/cmake --build $(BUILD_DIR) --parallel $(JOBS)
	@$(bin)/cmake --install $(BUILD_DIR) --prefix python/posenc >/dev/null
	@$(bin)/cmake --install $(BUILD_DIR) --prefix python/posenc --component python >/dev/null

build: library $(VENV)/.package

# ---- Tests: both runners always run; the report adds them up and decides. ----

test: build
	@rm -rf $(reports) && mkdir -p $(reports)
	-@$(bin)/ctest --test-dir $(BUILD_DIR) --parallel $(JOBS) --output-on-failure --output-junit $(reports)/cpp.xml
	-@$(bin)/python -m pytest tests/python --junitxml=$(reports)/python.xml
	@$(bin)/python tests/report.py $(reports)/cpp.xml $(reports)/python.xml

demo: build
	@PYTHON=$(bin)/python BUILD_DIR=$(BUILD_DIR) bash examples/demo.sh

# Apart from the rest, so that tests need no benchmark library.
benchmarks: build
	@$(bin)/cmake -S . -B $(BUILD_DIR) --log-level=WARNING -DPOSENC_BENCHMARKS=ON
	$(bin)/cmake --build $(BUILD_DIR) --parallel $(JOBS) --target benchmark_kernels

bench: benchmarks
	@PYTHON=$(bin)/python BUILD_DIR=$(BUILD_DIR) bash benchmarks/run.sh

# ---- Checks. ----

format: build
	@$(bin)/clang-format -i $(cpp_files)
	@$(bin)/ruff format
	@$(bin)/ruff check --fix

check-format: build
	@$(bin)/clang-format --dry-run --Werror $(cpp_files)
	$(bin)/ruff format --check
	$(bin)/ruff check
	$(bin)/codespell

# The warning is about the compiler's precompiled header, which clang-tidy cannot read and does without.
lint: check-format
	$(bin)/mypy
	@git ls-files --cached --others --exclude-standard 'csrc/*.cpp' | xargs -n 1 -P $(JOBS) \
	  $(bin)/clang-tidy --quiet -p $(BUILD_DIR) --extra-arg=-Wno-ignored-gch --extra-arg=-fno-openmp

# The long runs of tests/exactness; the short ones are among the tests. docs/accuracy.md tells what they print.
check-exactness: build
	$(bin)/python tests/exactness/check_exact.py $(BUILD_DIR)/tests/exactness/exactness_samples 100000 $(SEED)
	$(BUILD_DIR)/tests/exactness/exactness_samples 10000000 $(SEED)
	$(BUILD_DIR)/tests/exactness/exactness_rows 70001

check-cuda: build
	@if [ -e $(BUILD_DIR)/libposenc_cuda_kernels.a ]; then \
	  $(bin)/python tests/cuda/check_binary.py $(BUILD_DIR)/libposenc_cuda_kernels.a; \
	else echo 'posenc: check-cuda has nothing to check, since this build has no CUDA kernels'; fi

# The environment's cmake or else the system's.
check-neon:
	@for tool in cmake aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool >/dev/null || { \
	  echo "posenc: check-neon must find $$tool, but it is not on PATH." \
	    "Run: sudo apt-get install cmake g++-aarch64-linux-gnu qemu-user libgtest-dev"; exit 1; }; done
	@cmake --preset neon --log-level=WARNING
	cmake --build --preset neon --parallel $(JOBS)
	ctest --preset neon --parallel $(JOBS)

check-all: test lint check-exactness check-cuda check-neon
	$(bin)/python -m pytest tests/packaging
	$(bin)/cmake --preset asan -DPython3_EXECUTABLE=$(bin)/python -DCMAKE_MAKE_PROGRAM=$(bin)/ninja
	$(bin)/cmake --build --preset asan --parallel $(JOBS)
	$(bin)/ctest --preset asan --parallel $(JOBS)

clean:
	rm -rf build python/posenc/lib python/posenc/include python/posenc/_build_info.py python/posenc.egg-info
	rm -f $(VENV)/.package
