# make demo    the whole job on an embedded corpus, with a report
# make check   lint, types and the quick tests, before each commit
# make test    the tests but the exhaustive ones, before a pull request
# make test-all   every test, as CI
# make mutants [NAME ...]   the mechanisms of guarantees, changed in many careless ways: their tests must fail
# make exports    exported models in earlier sentence-transformers and in model2vec, installed beside from PyPI
# make hosts   tests across hosts, which are network namespaces: as root; installs Debian packages, which stay
# make lint    ruff and mypy
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export HF_HUB_OFFLINE ?= 1
# The sizes are those with torch's build for CPUs.
CUDA := (several GB more if pip takes torch's build for CUDA, as it does on Linux by default)

.PHONY: demo check test test-all mutants exports hosts lint clean

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/pip setup.py constraints.txt
	@echo "installing about 1,900 MB of packages into $(VENV) $(CUDA)"
	$(BIN)/pip install -q --no-warn-conflicts -c constraints.txt -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/pip setup.py constraints.txt
	@echo "installing about 2,900 MB of packages into $(VENV) $(CUDA)"
	$(BIN)/pip install -q --no-warn-conflicts -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks.demo --output demo

# Bytecode is kept, whatever the shell says: the processes that tests start import the packages faster.
PYTEST = env -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

check: lint
	$(PYTEST) -m 'not slow and not exhaustive'

test: $(VENV)/.dev
	$(PYTEST) -m 'not exhaustive'

test-all: $(VENV)/.dev
	$(PYTEST)

ifeq ($(firstword $(MAKECMDGOALS)),mutants)
NAMES := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(NAMES)
$(NAMES):
	@:
endif

mutants: $(VENV)/.dev
	PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutation $(NAMES)

exports: $(VENV)/.dev
	CI=true $(PYTEST) tests/train/test_portable.py

hosts: $(VENV)/.dev
	env -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python -m tests.hosts

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/pip check

clean:
	rm -rf $(VENV) demo demo.earlier* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
