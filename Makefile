# Two commands matter: `make demo` and `make test`. Both set up all that they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Two workers per core would only make the compilers of the tests wait for each other.
JOBS ?= $(shell nproc)

.PHONY: demo test test-gpu attacks kill-trials lint format lock clean

demo: $(VENV)/demo.ready
	@$(BIN)/musacoder demo

test: $(VENV)/test.ready lint
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not gpu and not attack_variant"

# On a machine with an accelerator, in an environment that has torch for it.
test-gpu:
	@PYTHONPATH=.:inference:verifier python3 -m pytest -m gpu

# All attacks on the verifier that need no accelerator; `test` runs at least one of each class.
attacks: $(VENV)/test.ready
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not gpu" tests/attacks

# 200 times kill -9 over client, server, worker, candidate and compiler; about a quarter of an hour.
kill-trials: $(VENV)/test.ready
	@MUSACODER_KILL_TRIALS=200 $(BIN)/python -m pytest -n $(JOBS) -q tests/e2e/test_kill.py

lint: $(VENV)/test.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/test.ready
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

$(VENV)/demo.ready: requirements/demo.txt pyproject.toml scripts/environment.sh
	@PYTHON="$(PYTHON)" scripts/environment.sh $(VENV) requirements/demo.txt
	@touch $@

$(VENV)/test.ready: requirements/test.txt requirements/demo.txt pyproject.toml scripts/environment.sh
	@PYTHON="$(PYTHON)" scripts/environment.sh $(VENV) requirements/test.txt
	@touch $(VENV)/demo.ready $@

lock: $(VENV)/test.ready
	@scripts/lock.sh $(VENV)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
