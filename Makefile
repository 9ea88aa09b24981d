# make demo   set up, then train the embedded policy (a few minutes on two cores)
# make test   set up, then run the tests
# make lint   formatting and static checks
# make bench  measurements, one JSON line each
# Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d%d" % sys.version_info[:2])')
# The six benchmark files (README.md says how they are got), which the grader's benchmark reads.
GOLDS ?= ../shared/benchmarks
VENV ?= .venv-py$(VERSION)
BIN := $(VENV)/bin
CONSTRAINTS := requirements/constraints-py$(VERSION).txt
INSTALLED := $(VENV)/.installed
export JAX_PLATFORMS ?= cpu

.PHONY: demo test lint bench clean

demo: $(INSTALLED)
	$(BIN)/python -m disco_jax.train --config=configs/arithmetic.py --workdir=runs/demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(INSTALLED)
	$(BIN)/python benchmarks/grade.py --golds=$(GOLDS)

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[test]'
	touch $@

$(CONSTRAINTS):
	@echo "Python 3.11, 3.12 or 3.13 is needed; $(PYTHON) is $$($(PYTHON) --version)."; \
	echo "Name another one: make test PYTHON=python3.11"; exit 1

clean:
	rm -rf $(VENV) build *.egg-info
