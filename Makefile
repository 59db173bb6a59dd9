# Every target sets up what it needs, so that each works first on a fresh clone.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PACKAGES := catalogue indexer retrieval cli

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check bench clean postgres redis FORCE

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(INSTALLED) ## index sample photos, ask questions, write pictures and a page to demo/
	$(BIN)/texcat demo

# Every process holds torch and an encoder, some 2 GB, and machines with many cores need not be filled with them.
test: $(INSTALLED) postgres ## run all tests, on as many as 8 cores
	$(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal

check: $(INSTALLED) ## lint, formatting, types, import rules, links of the documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES:%=-p texcat.%)
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q tests/test_docs.py -k links

bench: $(VENV)/benched redis ## run every benchmark, one after the other
	set -e; for script in $(sort $(wildcard benchmarks/[!_]*.py)); do $(BIN)/python $$script; done

clean: ## remove the virtual environment and all that the targets made
	rm -rf $(VENV) build dist demo *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(PACKAGES) tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# An editable install in strict mode is a tree of links, one for each file: it is made again when a file comes or goes.
$(INSTALLED): pyproject.toml $(VENV)/files | $(BIN)/python
	$(BIN)/pip install -e '.[dev,heif,postgres,ray,remote,vlm]' --config-settings editable_mode=strict
	@touch $@

$(VENV)/benched: $(INSTALLED)
	$(BIN)/pip install -e '.[bench]' --config-settings editable_mode=strict
	@touch $@

$(VENV)/files: FORCE | $(BIN)/python
	@find $(PACKAGES) -type f ! -path '*/__pycache__/*' | sort >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'texcat needs Python 3.11 or newer, and $(PYTHON) is not; name another: make PYTHON=python3.12' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The registry is tested against a real PostgreSQL server, which the tests start and stop themselves.
postgres:
	@command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends postgresql; \
	  else \
	    echo 'the tests start a PostgreSQL server: install one (Debian, Ubuntu: apt-get install postgresql)' >&2; \
	    exit 1; \
	  fi; }

# One of the stores that texcat is compared with; the benchmark starts and stops a server of its own.
redis:
	@command -v redis-server >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends redis-server; \
	  else \
	    echo 'the benchmarks start a Redis server: install one (Debian, Ubuntu: apt-get install redis-server)' >&2; \
	    exit 1; \
	  fi; }
