# Two commands for everyone: `make demo` and `make test`. Both begin with `make setup`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.ready-dev
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-header
# The pinned files are whole. Left to look for more, pip would find newer releases of what they pin and refuse those.
PINNED := --no-deps --require-hashes -r requirements
OURS := pyproject.toml requirements/build.in
AIRFLOW := .venv-airflow
AIRFLOW_READY := $(AIRFLOW)/.ready

.PHONY: help setup demo test test-slow test-airflow test-airflow-slow ollama test-ollama check bench truth docs pictures pins clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

setup: $(READY) ## the command at .venv/bin/tipbench, with the embedded engine and its weights

$(READY): pyproject.toml requirements/run.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tipbench needs Python 3.10 or newer: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); PYTHON=$(PYTHON) ./.ci/python-venv && $(PYTHON) -m venv $(VENV); }
	@echo "installing tipbench and its engine into $(VENV) (about 600 MB)"
	$(PIP) $(PINNED)/run.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/tipbench engine pull
	@touch $(READY)

$(DEV_READY): $(READY) requirements/dev.txt
	$(PIP) $(PINNED)/dev.txt
	@PYTHON=$(BIN)/python ./.ci/browser
	@./.ci/postgres
	@touch $(DEV_READY)

$(AIRFLOW_READY): $(READY) requirements/airflow.txt
	@rm -rf $(AIRFLOW) && $(PYTHON) -m venv $(AIRFLOW)
	@echo "installing Airflow into $(AIRFLOW) (about 300 MB), for the tests of the DAG alone"
	$(AIRFLOW)/bin/python -m pip install --quiet --disable-pip-version-check $(PINNED)/airflow.txt
	@touch $(AIRFLOW_READY)

demo: setup ## bench a real model and show a leaderboard
	$(BIN)/tipbench demo

test: $(READY) ## all checks and tests but the slow ones
	@$(MAKE) --no-print-directory --jobs=2 check $(AIRFLOW_READY)
	$(BIN)/python -m pytest -m "not slow and not ollama" -n 4 --dist loadfile --no-loadscope-reorder

test-slow: $(DEV_READY) $(AIRFLOW_READY) ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-airflow: $(DEV_READY) $(AIRFLOW_READY) ## the DAG run whole, in Airflow's own environment
	$(BIN)/python -m pytest -m "airflow and not slow" -n 2 --dist loadfile

test-airflow-slow: $(DEV_READY) $(AIRFLOW_READY) ## the DAG under a real scheduler and API server
	$(BIN)/python -m pytest -m "airflow and slow"

ollama: $(READY) ## a real Ollama for `make test-ollama`: about 4 minutes on 2 cores, 1 GB of Go's caches
	@PYTHON=$(BIN)/python ./.ci/ollama

test-ollama: $(DEV_READY) ## the tests against a real Ollama; with OLLAMA_HOST set, against that server
	@[ -n "$$OLLAMA_HOST" ] || PYTHON=$(BIN)/python ./.ci/ollama
	$(BIN)/python -m pytest tests/ollama_server -m ollama --timeout 300 -rs

check: $(DEV_READY) ## lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.13 src
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml

truth: $(DEV_READY) ## the simulations behind the statistical claims, about 100 minutes on two cores
	$(BIN)/python benchmarks/truth/truth.py

bench: $(DEV_READY) ## speed and memory, as ratios within one run
	$(BIN)/python benchmarks/run.py

docs: $(DEV_READY) ## the generated reference pages
	$(BIN)/python docs/generate.py

pictures: $(DEV_READY) ## the screenshots in the README, by the tests that take them
	TIPBENCH_PICTURES=docs $(BIN)/python -m pytest tests/web/test_screenshots.py::test_pictures_are_taken

pins: $(DEV_READY) ## compile the pinned requirements anew
	$(COMPILE) $(OURS) --extra embedded --extra mcp --extra postgres --output-file requirements/run.txt
	$(COMPILE) $(OURS) --extra embedded --extra mcp --extra postgres --extra dev --constraint requirements/run.txt --output-file requirements/dev.txt
	$(COMPILE) requirements/airflow.in --output-file requirements/airflow.txt
	$(COMPILE) --no-deps requirements/go.in --output-file requirements/go.txt
	$(COMPILE) --no-deps requirements/miniaudio.in --output-file requirements/miniaudio.txt

clean: ## remove the environments and caches
	rm -rf $(VENV) $(AIRFLOW) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
