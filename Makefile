# Two commands do everything on a fresh machine: `make train` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
# The torch release that the suite is tested with. `make TORCH=torch` takes the newest instead.
TORCH  ?= torch==2.13.0
RUN    ?= runs/dyna_mind
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup train test lint bench clean

help:  ## Show this list.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else "dyna_gym needs Python >= 3.11, got %d.%d; set PYTHON=/path/to/python3.11" % v)'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq python3-venv; } \
	  || { echo "Python's venv module is missing: install it (Debian: sudo apt-get install python3-venv)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)" -e ".[dev]"
	touch $@

setup: $(STAMP)  ## Create .venv and install the package with all that training and testing need.

train: setup  ## Main job: ReSim -> distil -> GRPO and Dyna-GRPO at equal tokens on Sokoban, then a table. Goes on where it was stopped; RUN=folder starts another.
	$(BIN)/python -m dyna_gym.trainers.dyna_mind --run $(RUN) --resume

test: setup lint  ## Lint, types, doctests and the whole test suite.
	$(BIN)/python -m pytest --doctest-modules dyna_gym tests

lint: setup  ## ruff (check and format) and mypy on the installed package.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p dyna_gym

bench: setup  ## Every benchmark of benchmarks/, each a ratio against a named reference.
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:  ## Remove the virtual environment and build leftovers (runs are kept).
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
