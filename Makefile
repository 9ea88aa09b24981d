# make demo   set up, then train the embedded policy (a few minutes on two cores)
# make test   set up, then run the tests
# make lint   formatting and static checks
# make bench  measurements, one JSON line each
# make test-jetstream  the tests of the extra `jetstream`, in an environment of its own (3.5 GB)
# Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d%d" % sys.version_info[:2])')
# Folder of the six benchmark files, which bench reads; README.md ("Evaluating") says whence.
GOLDS ?= ../shared/benchmarks
VENV ?= .venv-py$(VERSION)
BIN := $(VENV)/bin
CONSTRAINTS := requirements/constraints-py$(VERSION).txt
INSTALLED := $(VENV)/.installed
JETSTREAM := .venv-jetstream
export JAX_PLATFORMS ?= cpu

.PHONY: demo test test-jetstream lint bench golds clean

demo: $(INSTALLED)
	$(BIN)/python -m disco_jax.train --config=configs/arithmetic.py --workdir=runs/demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-jetstream: $(JETSTREAM)/.installed
	$(JETSTREAM)/bin/python -m pytest tests/rollout/test_jetstream.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: golds $(INSTALLED)
	$(BIN)/python benchmarks/grade.py --golds=$(GOLDS)

golds:
	@ls $(GOLDS)/*.parquet >/dev/null 2>&1 || { \
		echo "GOLDS=$(GOLDS): no parquet files there, nothing is measured. README.md, under"; \
		echo "Evaluating, says where the six benchmark files are from: make bench GOLDS=FOLDER"; \
		exit 1; } >&2

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[test]'
	touch $@

$(JETSTREAM)/.installed: pyproject.toml requirements/constraints-jetstream.txt
	$(PYTHON) -m venv $(JETSTREAM)
	$(JETSTREAM)/bin/python -m pip install --quiet --disable-pip-version-check \
		-c requirements/constraints-jetstream.txt -e '.[jetstream,test]'
	touch $@

$(CONSTRAINTS):
	@echo "Python 3.11, 3.12 or 3.13 is needed; $(PYTHON) is $$($(PYTHON) --version)."; \
	echo "Name another one: make test PYTHON=python3.11"; exit 1

clean:
	rm -rf $(VENV) $(JETSTREAM) build *.egg-info
