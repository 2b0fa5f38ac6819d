# Needs Python >= 3.11 with venv and a C++20 compiler; everything else goes into .venv.

# The first interpreter that is new enough; `make PYTHON=...` chooses another.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
endif
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

ifeq ($(strip $(PYTHON)),)
$(error PYTHON: expected Python >= 3.11 on the path, got none; name one with make PYTHON=...)
endif

.DEFAULT_GOAL := help
.PHONY: help venv build test run bench papers docs sanitize csrc storm format clean

help:
	@echo 'make run       build, then the main job; its report is build/report.html'
	@echo 'make test      everything: build, lint, types, tests, sanitizers, sdist'
	@echo '               (some of it: make test PARTS="unit lint"; the names: make test PARTS=--list)'
	@echo 'make build     editable install with the extras that the tests need into .venv'
	@echo 'make bench     comparison with the peers of the extra bench'
	@echo 'make papers    the figures of the papers, as tables and plots'
	@echo 'make docs      the pages of docs/ as a web site in build/site'
	@echo 'make sanitize  kernel tests under the address and undefined-behaviour sanitizers'
	@echo 'make csrc      kernels alone, without the headers of Python, warnings as errors'
	@echo 'make storm     the jar for Storm, into the package (needs Maven and a JDK)'
	@echo 'make format    format Python and C++'
	@echo 'make clean     remove what was built, .venv included'

# Named by what they hold, made again when the list of dependencies changes.
.venv/made:
	$(PYTHON) -m venv .venv
	@touch $@

.venv/build-requires: pyproject.toml .venv/made
	@$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" > $@.tmp
	$(PIP) install -r $@.tmp
	@mv $@.tmp $@

# Without isolation, so that the objects of an earlier build are still up to date.
.venv/installed: pyproject.toml .venv/build-requires
	$(PIP) install --no-build-isolation --editable '.[dev,docs,spark,cli]'
	@touch $@

.venv/installed-bench: .venv/installed
	$(PIP) install --no-build-isolation --editable '.[dev,docs,spark,cli,bench]'
	@touch $@

venv: .venv/made

build: .venv/installed
	@$(BIN)/python setup.py --quiet build_ext --inplace

test:
	@$(PYTHON) tests/run.py $(PARTS)

run: build
	@mkdir -p build
	@$(BIN)/python -m pyroute run --report build/report.html

bench: build .venv/installed-bench
	@$(BIN)/python -m bench.compare

papers: build .venv/installed-bench
	@$(BIN)/python -m bench.papers.caneill --write
	@$(BIN)/python -m bench.papers.fang
	@$(BIN)/python -m bench.papers.rivetti --write
	@$(BIN)/python -m bench.papers.predictive --write
	@$(BIN)/python -m bench.papers.predictive_control --write

docs: build
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo 'build/site/index.html'

sanitize: build
	@$(PYTHON) tests/run.py sanitize

csrc:
	@$(PYTHON) tests/run.py csrc

storm: build
	@$(BIN)/python -m bench.storm.jars

format: .venv/installed
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .
	find csrc bindings -name '*.[ch]pp' -exec $(BIN)/clang-format -i {} +

clean:
	rm -rf .venv build dist *.egg-info pyroute/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
