# Everything a fresh machine needs: make sweep, make test. Python 3.11+, pip and make are enough.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
EXTRAS ?= bench,cmaes
TESTS  ?= --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
SEEDS  ?= 1000
SWEEP  ?= search_spaces/digits_cnn.yaml

# Hundreds of processes import the same modules: they are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install sweep test test-all test-gpu fuzz mutants reuse-contract lint audit api format bench bench-quick bench-guard clean

help:            ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a minute or two the first time) ..."
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]' --group dev
	@touch $@

install: $(VENV)/.installed ## virtual environment with everything

sweep: install   ## search the digits CNN (another: make sweep SWEEP=search_spaces/digits_mlp.yaml)
	@$(BIN)/python scripts/sweep.py run $(SWEEP)

test: install    ## a test of every promise, in some five minutes on two cores
	@$(BIN)/python -m pytest $(TESTS) -m "not slow and not alone and not long and not gpu"

test-all: install ## the other tests: real kills, two nodes, a browser, PostgreSQL, every Keras class; twenty minutes
	@$(BIN)/python .ci/tests.py slow alone

test-gpu: install ## what needs a GPU, how fast an epoch is on it, and the six headline ratios there
	@$(BIN)/python -m pytest -s -m gpu tests/gpu
	@$(BIN)/python scripts/bench/measuring/floors.py --only-measure

fuzz: install    ## so many simulated sweeps that are killed and resumed (make fuzz SEEDS=5000)
	@$(BIN)/python tests/driver_simulation/simulate.py --seeds $(SEEDS)
	@$(BIN)/python tests/driver_simulation/simulate.py --seeds $(SEEDS) --reproducible

reuse-contract: install ## all arguments of all classes of Keras, in reused processes against fresh ones (ten minutes)
	@$(BIN)/python -m pytest --numprocesses 2 tests/training/contract

mutants: install ## small mutations of a module that its tests do not find (make mutants MODULE=tune_tf/objective.py OF=tests/vocabulary/test_objective.py)
	@test -x $(VENV)/mutants/bin/cosmic-ray || $(PYTHON) -m venv $(VENV)/mutants
	@$(VENV)/mutants/bin/python -m pip install --quiet "cosmic-ray>=8.4"
	@rm -rf build/mutants && mkdir -p build/mutants && cp -R tune_tf tests scripts search_spaces docs *.md *.toml setup.cfg build/mutants
	@cd build/mutants && printf '[cosmic-ray]\nmodule-path = "$(MODULE)"\ntimeout = 300.0\ntest-command = "$(abspath $(BIN))/python -m pytest -x -q $(OF)"\n[cosmic-ray.distributor]\nname = "local"\n' > mutants.toml
	@cd build/mutants && export PYTHONPATH=$$PWD PATH=$(abspath $(VENV)/mutants/bin):$$PATH && cosmic-ray baseline mutants.toml && cosmic-ray init mutants.toml mutants.sqlite && cosmic-ray exec mutants.toml mutants.sqlite && cr-report --surviving-only --show-diff mutants.sqlite

lint: install    ## format, lint, types, architecture
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

audit: install   ## known weaknesses of what constraints.txt names; asks https://osv.dev
	@test -x $(VENV)/audit/bin/pip-audit || $(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet "pip-audit>=2.7"
	@$(VENV)/audit/bin/pip-audit --vulnerability-service osv --no-deps --disable-pip --progress-spinner off --requirement constraints.txt

api: install     ## pages of all public names in build/api
	@$(BIN)/pdoc --docformat google --output-directory build/api tune_tf

format: install  ## write the format that lint asks for
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: install   ## all benchmarks, each with its ratios as JSON on the last line
	@for b in scripts/bench/*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

bench-quick: install ## each benchmark once, briefly: whether it runs and tells its ratios; half an hour
	@$(BIN)/python -m pytest tests/test_benchmarks.py

bench-guard: install ## six headline ratios against their floors, in ten minutes
	@$(BIN)/python scripts/bench/measuring/floors.py

clean:           ## remove what was built, keep sweeps and mlflow.db
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
