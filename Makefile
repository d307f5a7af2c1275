# Every target sets the machine up first; the second time that costs nothing.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: quickstart test test-all test-kernels lint check bench chaos setup clean

quickstart: setup
	$(BIN)/cptlaw quickstart

# TESTS: arguments of pytest in place of all tests. A file's tests stay in one process, since they share fixtures;
# PROCESSES=0: all in pytest's own. What Python compiles is kept: some 200 processes import it.
PROCESSES ?= $(shell nproc)
PARALLEL := --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder
test: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m 'not slow' $(PARALLEL) $(TESTS)

# The long ones too: fast and slow ones of a file share its fixtures.
test-all: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PARALLEL) $(TESTS)

# Numbers must not depend on the processor: the kernels that OpenBLAS picks for two others, side by side. Those of
# SkylakeX need AVX512.
OTHER_KERNEL := $(if $(shell grep -m 1 avx512f /proc/cpuinfo),SkylakeX,Sandybridge)
test-kernels: TESTS ?= tests/fitting
test-kernels: setup
	OPENBLAS_CORETYPE=Haswell $(BIN)/python -m pytest -m 'not slow' -p no:cacheprovider $(TESTS) & haswell=$$!; \
	OPENBLAS_CORETYPE=$(OTHER_KERNEL) $(BIN)/python -m pytest -m 'not slow' -p no:cacheprovider $(TESTS); other=$$?; \
	wait $$haswell && exit $$other

# Style, types and layers: seconds.
lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

check: lint test-all

bench: setup
	$(BIN)/python -m tests.benchmarks

# 42 minutes for 1000 kills. Stopped and given again, it goes on behind the last cycle of studies/chaos/ledger.jsonl.
KILLS ?= 1000
chaos: setup
	$(BIN)/python -m tests.chaos --kills $(KILLS)

setup: $(STAMP)

$(STAMP): pyproject.toml .ci/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint .ci/constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint .ci/constraints.txt --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf .venv
