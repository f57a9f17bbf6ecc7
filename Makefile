# Everything a newcomer needs: `make profile` shows what Stash does, `make test` that it works.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: setup profile test oldest check bench truth system clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch torchvision
	$(BIN)/pip install -q -c constraints.txt -e '.[nlp,dev,bench]'
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

# The same tests with the oldest torch that is supported; downloads several gigabytes.
oldest:
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/pip install -q 'torch==2.6.0' 'torchvision==0.21.0'
	$(VENV)-oldest/bin/pip install -q -e '.[dev]'
	$(VENV)-oldest/bin/pytest -m 'gang or not root'

# Longer proofs with figures for docs/benchmarks.md; half an hour and more on two cores.
bench: setup
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/coverage.py
	$(BIN)/python benchmarks/epochs.py
	$(BIN)/python benchmarks/overlap.py
	$(BIN)/python benchmarks/lab_kills.py
	$(BIN)/python benchmarks/lab_rates.py

# Known stalls go in, the same stalls must come out: docs/truth.md; as root, 45 minutes on two cores.
# Run again after an interruption, it goes on where it was; `rm -r build/truth` starts anew.
truth: setup
	$(BIN)/python benchmarks/truth.py --out build/truth
	$(BIN)/python benchmarks/truth.py --out build/truth --write docs

# System packages that some tests want (as root); tests that miss them are skipped and say so.
system:
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends iproute2

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
