# Every target sets the machine up first; the second time that costs nothing.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: quickstart test test-slow check bench setup golden clean

quickstart: setup
	$(BIN)/cptlaw quickstart

test: setup
	$(BIN)/python -m pytest -m 'not slow'

test-slow: setup
	$(BIN)/python -m pytest -m slow

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

bench: setup
	$(BIN)/python -m tests.benchmarks

setup: $(STAMP)

$(STAMP): pyproject.toml .ci/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint .ci/constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint .ci/constraints.txt --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf .venv
