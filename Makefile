# Two commands for everyone: `make demo` and `make test`. Both begin with `make setup`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.ready-dev
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-header pyproject.toml requirements/build.in

.PHONY: help setup demo test test-slow check bench docs pictures pins clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(READY) ## the command at .venv/bin/tipbench, with the embedded engine and its weights

$(READY): pyproject.toml requirements/run.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tipbench needs Python 3.10 or newer: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); PYTHON=$(PYTHON) ./.ci/python-venv && $(PYTHON) -m venv $(VENV); }
	@echo "installing tipbench and its engine into $(VENV) (about 600 MB)"
	$(PIP) --require-hashes -r requirements/run.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/tipbench engine pull
	@touch $(READY)

$(DEV_READY): $(READY) requirements/dev.txt
	$(PIP) --require-hashes -r requirements/dev.txt
	@PYTHON=$(BIN)/python ./.ci/browser
	@./.ci/postgres
	@touch $(DEV_READY)

demo: setup ## bench a real model and show a leaderboard
	$(BIN)/tipbench demo

test: check ## all checks and tests but the slow ones
	$(BIN)/python -m pytest -m "not slow" -n 3 --dist loadfile

test-slow: $(DEV_READY) ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

check: $(DEV_READY) ## lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.13 src
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml

bench: $(DEV_READY) ## speed and memory, as ratios within one run
	$(BIN)/python benchmarks/run.py

docs: $(DEV_READY) ## the generated reference pages
	$(BIN)/python docs/generate.py

pictures: $(DEV_READY) ## the screenshots in the README, by the tests that take them
	TIPBENCH_PICTURES=docs $(BIN)/python -m pytest tests/web/test_screenshots.py::test_pictures_are_taken

pins: $(DEV_READY) ## compile the pinned requirements anew
	$(COMPILE) --extra embedded --extra mcp --extra postgres --output-file requirements/run.txt
	$(COMPILE) --extra embedded --extra mcp --extra postgres --extra dev --constraint requirements/run.txt --output-file requirements/dev.txt

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
