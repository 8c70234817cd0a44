# Two commands are enough: `make demo` and `make test`. Each makes .venv if it is not there.
# Needs Python >= 3.11 and make. Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
WORKERS ?= 2
PYTEST_ARGS ?=
PAGES ?= $(wildcard docs/how-to/*.md docs/concepts/*.md docs/start.md)

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# One BLAS thread per test process: the processes share the cores, and OpenBLAS slows down tenfold when oversubscribed.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1

# Tests of the laboratory, the pages, the cluster and the package itself: `make test-all` has them too.
NOT_LIBRARY := tests/lab tests/docs tests/scale/test_cluster.py tests/test_package.py tests/test_comparison.py

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all coverage lint format docs docs-serve docs-refresh bench bench-peers bench-figures package lowest clean

help:
	@echo "make demo     a deep equilibrium model, its kernel and its shallow twin on handwritten digits"
	@echo "make test     the tests of the library (PYTEST_ARGS='-k kernels', WORKERS=0 for one process)"
	@echo "make test-all  those of the laboratory, the pages, the cluster and the package as well"
	@echo "make coverage  the tests with the lines that they run, as a table and in htmlcov/"
	@echo "make lint     ruff format --check, ruff check, mypy --strict"
	@echo "make format   ruff format, ruff check --fix"
	@echo "make docs     the site, built strictly into site/"
	@echo "make docs-serve    the site while one writes, at http://127.0.0.1:8000"
	@echo "make docs-refresh  what the pages print and draw, written anew (PAGES=docs/start.md)"
	@echo "make bench    speed and memory, with correctness beside them"
	@echo "make bench-peers  beside neural-tangents and TorchDEQ (4 GB of environments)"
	@echo "make bench-figures  the figures of docs/evidence, from kept rows"
	@echo "make package  build the sdist and the wheel into dist/, install them where nothing else is, and use them"
	@echo "make lowest   the tests with the lowest versions that pyproject.toml allows"
	@echo "make clean    remove .venv, caches and builds"

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "notsodeep needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

install: $(INSTALLED)

demo: $(INSTALLED)
	$(BIN)/notsodeep demo --overwrite

test: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) $(NOT_LIBRARY:%=--ignore=%) $(PYTEST_ARGS)

test-all: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

coverage: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python -m coverage run -m pytest -n $(WORKERS) $(PYTEST_ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage html --quiet
	$(BIN)/python -m coverage report --skip-covered --sort=cover

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The variable silences an advertisement of the theme's authors. Not --quiet: then warnings are not counted as errors.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# Output and pictures of pages, written by running them: make docs-refresh PAGES=docs/how-to/train.md
docs-refresh: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python tests/docs_pages.py $(PAGES)

bench: $(INSTALLED)
	$(BIN)/python benchmarks/run.py

package: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python tools/check_package.py --extras none all --dist dist

lowest: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python tools/check_lowest.py

# An environment for each peer, with the package and the peer's exact versions.
bench-peers:
	for peer in neural_tangents torchdeq; do folder=benchmarks/peers/$$peer; \
	$(PYTHON) -m venv $$folder/.venv && $$folder/.venv/bin/pip install -q -e ".[torch]" -r $$folder/requirements.txt && \
	$$folder/.venv/bin/python $$folder/compare.py; done

# The figures and tables of docs/evidence, from the kept rows.
bench-figures: $(INSTALLED)
	for script in $$(grep -l "^@drawn" benchmarks/*.py); do $(BIN)/python $$script --figure-only; done

clean:
	rm -rf $(VENV) build dist site htmlcov .coverage* .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
