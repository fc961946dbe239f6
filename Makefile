# Every verb sets up what it needs. PYTHON may name any Python from 3.11 on; KEY=value options are shown by `make help`.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test check fix bench torture score lock wheels clean
help: ## list the verbs
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(READY) ## create .venv and install the pinned dependencies
$(READY): requirements/lock.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Fleetstream needs Python 3.11 or newer: install python3.11 and python3.11-venv, or set PYTHON=/path/to/python."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Python has no venv module: install the python3-venv package."; rm -rf $(VENV); exit 1; }
	@echo "installing pinned dependencies into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes -r requirements/lock.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

demo: $(READY) ## start everything with a simulated fleet; SECONDS=60 ends with a proof
	@$(BIN)/fleetstream demo $(if $(SECONDS),--seconds $(SECONDS))

test: $(READY) ## every test, on real Kafka, MQTT, Spark and PostgreSQL
	@$(BIN)/python -m pytest $(ARGS)

check: $(READY) ## lint, types, import rules, generated files; changes nothing
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.house.generated --check

fix: $(READY) ## what `check` can mend by itself
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/python -m tests.house.generated --write

bench: $(READY) ## every published number, one script each; last line one JSON object
	@$(BIN)/python -m tests.bench $(ARGS)

torture: $(READY) ## faults drawn from SEED= (KILLS=, SECONDS=) against a real stack; last line one JSON object
	@$(BIN)/python -m tests.torture $(if $(SECONDS),--seconds $(SECONDS)) $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(APPEND),--append $(APPEND))

score: $(READY) ## detection and remaining-life scores; DATA= names the folder
	@$(BIN)/fleetstream score $(if $(DATA),--data $(DATA)) --page docs/scores.md

lock: $(READY) ## resolve the dependencies again and pin them with hashes
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet -o requirements/lock.txt

wheels: $(READY) ## build the two wheels: fleetstream-edge and fleetstream
	@$(BIN)/python -m infra.wheels

clean: ## remove the virtual environment and the stack's files (its data too)
	rm -rf $(VENV) .fleetstream build dist *.egg-info
