# make train: recognise exercises from a smartwatch, and stream one of them.   make test: run the tests, as
# make test-quick in three minutes those that tell first whether something is broken.
# Both build .venv first; they need python3, make and a package index, nothing else.

PYTHON ?= python3
BIN := .venv/bin
BUILDIFIER ?= $(or $(shell command -v buildifier),npx --yes @bazel/buildifier@8.2.1)
# One more than the cores: a quarter of the tests' time goes in waiting for processes that they start.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, os.cpu_count() + 1))')
PYTEST_FLAGS ?= -n $(WORKERS) --dist=worksteal

.PHONY: setup setup-locked train test test-quick test-slow test-torch mutate lint format docs wheel lock

setup: .venv/stamp

.venv/stamp: setup.py
	@$(PYTHON) -c 'import sys; sys.exit((3, 10) > sys.version_info[:2] or sys.version_info[:2] > (3, 13))' \
	  || { echo "keras_trellis needs Python 3.10 to 3.13, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	            "Name another one: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }
	@echo "Building .venv (4.6 GB, TensorFlow above all; a few minutes)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --upgrade pip
	@$(BIN)/python -m pip install -qq --editable '.[trainers,tune,series,estimators,serving,serve,beam,s3,gcs,test,lint,benchmarks,docs,release]'
	@touch $@

train: setup
	@$(BIN)/python -m trainers.series --task=watch --preset=stem
	$(BIN)/python -m trainers.series --mode=follow --workdir=runs/watch-stem

# Some machines write no bytecode. Each process that a test starts would compile all of our files anew.
# What needs jax2onnx, which .venv need not have, is skipped: `pip install jax2onnx`, as .ci/run does.
test: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_FLAGS) -m 'not slow'
	KERAS_BACKEND=jax JAX_PLATFORMS=cpu $(BIN)/python -m pytest $(PYTEST_FLAGS) -m 'not slow' tests/contract tests/formats

# QUICK in tests/conftest.py: the equations, the contract of main layers, a stream, bad inputs, a training.
test-quick: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_FLAGS) -m quick

# Programs and examples from end to end, kills and faults, backends beside each other; float64 on JAX.
test-slow: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_FLAGS) -m slow
	KERAS_BACKEND=jax JAX_ENABLE_X64=1 JAX_PLATFORMS=cpu $(BIN)/python -m pytest $(PYTEST_FLAGS) tests/contract

# What every layer promises, and what it exports, with Keras on torch, which .venv need not have:
# `pip install torch`. And what benchmarks compare with in torch.
test-torch: setup
	KERAS_BACKEND=torch $(BIN)/python -m pytest $(PYTEST_FLAGS) tests/contract tests/formats
	$(BIN)/python -m pytest -k 'torch or authors or names_the_gpu' \
	  tests/benchmarks/test_evaluate.py tests/benchmarks/test_serving.py tests/benchmarks/test_train_step.py

# Not in CI: tries the small changes of the sources in tools/mutants.csv, each of which a test should notice. Hours.
mutate: setup
	$(BIN)/python -m tools.mutate

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	git ls-files 'BUILD' '*/BUILD' 'MODULE.bazel' '*.bzl' | xargs $(BUILDIFIER) --mode=check --lint=warn

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python -m tools.build_files
	git ls-files 'BUILD' '*/BUILD' 'MODULE.bazel' '*.bzl' | xargs $(BUILDIFIER) --lint=fix

# Fails on a link that leads nowhere (not with --quiet, which swallows the warnings that --strict counts). The variable
# silences an advertisement of the theme's makers for another program.
# The notebooks of docs/learn are executed, in some five minutes.
docs: setup
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=$(CURDIR) CUDA_VISIBLE_DEVICES=-1 TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/mkdocs build --strict
	@echo "The site is in site/index.html"

# The source distribution, the wheel made of it, and what a package index would say of both.
wheel: setup
	rm -rf dist
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

# What .venv holds, with the hashes of its files: for setup-locked and for Bazel, under Python 3.11 (MODULE.bazel).
# The setuptools that venv brings along has published vulnerabilities.
lock: setup
	$(BIN)/python -m pip install -qq uv
	$(BIN)/python -m pip install -qq --upgrade "setuptools>=78.1.1"
	$(BIN)/python -m pip freeze --all --exclude-editable --exclude uv | $(BIN)/uv pip compile --quiet --generate-hashes \
	  --no-deps --no-annotate --no-header --python $(BIN)/python --output-file requirements_lock.txt -

# In place of setup: exactly the versions of requirements_lock.txt, and no file without its hash.
setup-locked:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
	  || { echo "requirements_lock.txt is for Python 3.11, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	            "Name another one: make setup-locked PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install -qq --require-hashes --requirement requirements_lock.txt
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation --editable .
	@touch .venv/stamp
