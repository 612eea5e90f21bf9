# Two commands set up everything: `make demo` and `make test`. Each builds .venv from the lock first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SCALE ?= smoke
# Without slurm: its plugin imports pandas, and Snakemake imports every plugin that is there, on each start.
EXTRAS ?= test,report,deepspeed
# One thread a process: results do not depend on how many cores the machine has, and two workers use two cores.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder

.PHONY: help demo test test-all test-cpu test-pdf lint bench pdf clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "respath needs Python 3.11 or newer; set one with: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "no venv module: on Debian, install the package python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[$(EXTRAS)]'
	@touch $@

demo: $(VENV)/.ready  ## from raw text to ResFormer Table 3 at scale smoke, and everything around it
	$(BIN)/snakemake demo

test: $(VENV)/.ready  ## unit, DAG and smoke tests (about 10 minutes on two cores)
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.ready  ## the tests that take longer
	$(PYTEST) -m slow

test-cpu: $(VENV)/.ready  ## smoke trainings under two instruction sets and in two precisions (part of test-all)
	$(PYTEST) -n 0 tests/smoke -k instruction_set

test-pdf: $(VENV)/.ready  ## the tests of the PDF, with whatever TeX is here (part of test)
	$(PYTEST) tests/unit/test_reporting_pdf.py tests/unit/test_letters.py

lint: $(VENV)/.ready  ## ruff, mypy, snakefmt, snakemake --lint, generated files in step
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/python -m respath.config.schema --check
	$(BIN)/python -m respath.reporting.architectures --check
	$(BIN)/python -m respath.reporting.replication --check

bench: $(VENV)/.ready  ## measure, and write docs/performance.md
	$(BIN)/python -m benchmarks

pdf: $(VENV)/.ready  ## one PDF per paper (needs latexmk and lmodern, or tectonic)
	$(BIN)/snakemake pdf --config scale=$(SCALE)

clean:  ## remove everything generated (results, checkpoints, reports, .venv)
	rm -rf results checkpoints reports/out logs .snakemake $(VENV)
