# Two commands for everyone: `make demo` and `make test`. Both begin with `make setup`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PINS := requirements/all.txt

.PHONY: help setup demo test test-slow check bench docs pins clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## an environment with everything, in .venv

$(STAMP): pyproject.toml $(PINS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tipbench needs Python 3.10 or newer: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); ./.ci/python-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(PINS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/tipbench engine pull
	@touch $(STAMP)

demo: setup ## bench a real model and show a leaderboard
	$(BIN)/tipbench demo

test: setup check ## all checks and tests but the slow ones
	$(BIN)/python -m pytest -m "not slow"

test-slow: setup ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

check: setup ## lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.13 src
	$(BIN)/lint-imports

bench: setup ## speed and memory, as ratios within one run
	$(BIN)/python benchmarks/run.py

docs: setup ## the generated reference pages
	$(BIN)/python docs/generate.py

pins: setup ## compile the pinned requirements anew
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --all-extras pyproject.toml --output-file $(PINS)

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
