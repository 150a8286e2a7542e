# Every target works on a fresh clone: `install` runs by itself, once and whenever the lock changes.
# PYTHON=python3.12 make … chooses another interpreter (3.11 or newer).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := --extra embedded --extra flower --extra otel --extra dev
SOURCES := tasks engines models alembic tests bench

.DEFAULT_GOAL := help
.PHONY: help install demo dev test check static bench drill valem-score fmt lock

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## Make .venv from the lock (uv when it can be had, else pip)

$(VENV)/.installed: pyproject.toml uv.lock requirements.lock tasks/dev/install.py
	@$(PYTHON) tasks/dev/install.py $(VENV) $(EXTRAS)
	@touch $@

demo: install ## Run real jobs on an embedded PostgreSQL, Redis and local model, then stop
	@$(BIN)/vancetope demo

dev: install ## Run the whole stack in the foreground until Ctrl-C
	@$(BIN)/vancetope dev

test: install ## Run all tests
	@$(BIN)/python -m pytest

static: install ## Lint, formatting, types and import directions
	@$(BIN)/ruff check $(wildcard $(SOURCES))
	@$(BIN)/ruff format --check $(wildcard $(SOURCES))
	@$(BIN)/mypy
	@cd tasks/client && ../../$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

check: static test ## Everything that must pass before a commit

drill: install ## Kill workers, PostgreSQL and Redis under load and prove that nothing is lost
	@$(BIN)/python tests/acceptance/drill.py --jobs 300
	@$(BIN)/python tests/acceptance/drill.py --tree 2000

bench: install ## Measure turns per second against other durable engines
	@$(BIN)/python bench/run.py

valem-score: install ## Score a model on generating Valem specs; MODEL=provider:model chooses one
	@$(BIN)/python -m bench.valem_score $(if $(MODEL),--model $(MODEL))

fmt: install ## Sort imports and format
	@$(BIN)/ruff check --fix $(wildcard $(SOURCES))
	@$(BIN)/ruff format $(wildcard $(SOURCES))

lock: ## Resolve again after a change of pyproject.toml (needs uv)
	@uv lock
	@uv export --quiet --frozen --no-hashes --no-emit-project --no-annotate --all-extras --output-file requirements.lock
