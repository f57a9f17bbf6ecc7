# Everything a newcomer needs: `make profile` shows what Stash does, `make test` that it works.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: setup profile test oldest check docs bench system clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch torchvision
	$(BIN)/pip install -q -c constraints.txt -e '.[nlp,report,parquet,tensorboard,mlflow,wandb,browser,docs,dev]'
	touch $(STAMP)

profile: setup
	$(BIN)/stash profile tinycnn --max-minutes 3

test: setup
	$(BIN)/pytest

check: setup
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation as a site in build/site; any warning is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The same tests with the oldest torch that is supported; downloads several gigabytes.
oldest:
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/pip install -q 'torch==2.6.0' 'torchvision==0.21.0'
	$(VENV)-oldest/bin/pip install -q -e '.[report,dev]'
	$(VENV)-oldest/bin/pytest -m 'gang or not root'

# Longer proofs with figures for docs/benchmarks.md; half an hour and more on two cores.
bench: setup
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/coverage.py
	$(BIN)/python benchmarks/epochs.py
	$(BIN)/python benchmarks/overlap.py

# System packages that some tests want (as root); tests that miss them are skipped and say so.
system:
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends iproute2 chromium fonts-liberation

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
