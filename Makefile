# Everything a newcomer needs: `make profile` shows what Stash does, `make test` that it works.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TOOLS  := $(VENV)/.tools-installed

.PHONY: setup profile test proofs oldest check docs truth mutants bench system clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch torchvision
	$(BIN)/pip install -q -c constraints.txt -e '.[nlp,report]'
	touch $(STAMP)

# What tests, checks and benchmarks want beside that.
$(TOOLS): $(STAMP)
	$(BIN)/pip install -q -c constraints.txt -e '.[nlp,examples,report,parquet,tensorboard,mlflow,wandb,browser,docs,bench,dev]'
	touch $(TOOLS)

profile: setup
	$(BIN)/stash profile tinycnn --max-minutes 3

test: $(TOOLS)
	$(BIN)/pytest -m 'not proof' --durations=10

# Short forms of long proofs: slow links, several machines, schedulers, servers; some minutes.
proofs: $(TOOLS)
	$(BIN)/pytest -m proof

check: $(TOOLS)
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation as a site in build/site; any warning is an error.
docs: $(TOOLS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The same tests with the oldest torch that is supported; downloads several gigabytes.
oldest:
	$(PYTHON) -m venv $(VENV)-oldest
	printf 'torch==2.6.0\ntorchvision==0.21.0\n' > $(VENV)-oldest/constraints.txt
	$(VENV)-oldest/bin/pip install -q -c $(VENV)-oldest/constraints.txt torch torchvision -e '.[nlp,examples,report,dev]'
	$(VENV)-oldest/bin/pytest -m 'not proof and (gang or not root)'

# Would the tests notice? Mistakes are put into the code one at a time; writes docs/mutants.md.
mutants: $(TOOLS)
	$(BIN)/python benchmarks/mutants.py --write docs

# Longer proofs with figures for docs/benchmarks.md; hours on two cores. What they measure is added to
# the slices in benchmarks/measured: for another machine, empty those first.
MEASURED := benchmarks/measured
bench: $(TOOLS)
	$(BIN)/python benchmarks/overhead.py --append $(MEASURED)/overhead.jsonl
	for tool in torch-profiler torch-profiler-stacks traceml; do for case in conv tiny-layers; do \
	  $(BIN)/python benchmarks/overhead.py --only $$case --peer $$tool --append $(MEASURED)/overhead.jsonl || exit 1; \
	done; done
	$(BIN)/python benchmarks/side_by_side.py --append $(MEASURED)/side_by_side.jsonl
	$(BIN)/python benchmarks/side_by_side.py --bursts --append $(MEASURED)/side_by_side.jsonl
	$(BIN)/python benchmarks/bench_tables.py --write docs
	$(BIN)/python benchmarks/coverage_by_kind.py --append $(MEASURED)/coverage.jsonl
	$(BIN)/python benchmarks/coverage_by_kind.py --bursts --append $(MEASURED)/coverage.jsonl
	$(BIN)/python benchmarks/coverage.py
	$(BIN)/python benchmarks/epochs.py
	$(BIN)/python benchmarks/overlap.py
	$(BIN)/python benchmarks/predict_speed.py
	$(BIN)/python benchmarks/recommend_worlds.py
	$(BIN)/python benchmarks/lab_kills.py
	$(BIN)/python benchmarks/lab_rates.py
	$(BIN)/python benchmarks/lab_tcp.py
	$(BIN)/python benchmarks/links_lab.py
	$(BIN)/python benchmarks/script_truth.py --out build/script-truth
	$(BIN)/python benchmarks/network_truth.py
	$(BIN)/python benchmarks/sixteen_workers.py
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/whatif_lab.py
	$(BIN)/python benchmarks/share_jobs.py

# Known stalls go in, the same stalls must come out: docs/truth.md; as root, about 90 minutes on two cores.
# Run again after an interruption, it goes on where it was; `rm -r build/truth` starts anew.
truth: $(TOOLS)
	$(BIN)/python benchmarks/truth.py --out build/truth
	$(BIN)/python benchmarks/truth.py --out build/truth --write docs

# System packages that some tests want (as root); tests that miss them are skipped and say so.
system:
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends iproute2 chromium fonts-liberation slurm-wlm munge

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
