# Two commands: `make bench` evaluates a model, `make test` checks this project. Both install what they need.

PYTHON ?= python3
MODEL ?= dry/perfect
# A small local model needs minutes for the scenarios and hours for conversations: ask for those by BENCH_ARGS=--suite=spiral.
BENCH_ARGS ?= $(if $(filter local/%,$(MODEL)),--suite=tempaffect)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: bench sample test browser lint docs clean audit

bench: $(VENV)/.bench
ifneq (,$(filter local/%,$(MODEL)))
bench: $(VENV)/.local
endif
bench:
	@$(if $(filter local/%,$(MODEL)),$(BIN)/pytest-spiral fetch-model $(MODEL),true)
	$(BIN)/pytest --model=$(MODEL) $(BENCH_ARGS)

# Example reports of both suites: recorded runs of capable models, scored again.
sample: $(VENV)/.bench
	$(BIN)/pytest --replay=benchmarks/field_trial/records/g --run-id=sample-conversations
	$(BIN)/pytest --replay=benchmarks/field_trial/records/e --tempaffect-scenarios=benchmarks/field_trial/scenarios_1.0.json --run-id=sample-replies

# Hundreds of processes that import the same: without their bytecode on disk, each compiles it anew. Three workers for two
# cores, because many tests wait for processes, servers and timers.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.test browser
	$(BIN)/pytest-spiral fetch-model local/smollm2-135m
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# Types are checked on one core; meanwhile the tests are compiled once, which each worker would do anew.
	@$(BIN)/pytest --collect-only --quiet > $(VENV)/collected.txt 2>&1 & $(BIN)/mypy && wait
	$(BIN)/pytest -n 3 --dist=worksteal --timeout=180 --hypothesis-profile=ci $(TEST_ARGS)

# Pages are tested in a real browser; without one, their tests skip.
browser: $(VENV)/.test
	@$(BIN)/python tests/html/browser.py

# Known vulnerabilities of what is installed. Asks a public database, so it is no part of the tests.
audit: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --skip-editable

lint: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.bench: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.local: pyproject.toml | $(VENV)/.bench
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[local]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs,local,test]'
	@touch $@ $(VENV)/.bench $(VENV)/.docs $(VENV)/.local

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
