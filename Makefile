# Every target sets up what it needs by itself: python3 (3.11 or newer), make and a package registry are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip --disable-pip-version-check --quiet install
# every file that is downloaded must have the hash it had when it was pinned (docs/adr/0029)
HASHED := $(PIP) --require-hashes
ITSELF := $(PIP) --no-deps --no-build-isolation --editable .
# where it is set, every program started would compile all of its modules anew, hundreds of times in a run of the tests
unexport PYTHONDONTWRITEBYTECODE
NODE_MODULES := tools/node/node_modules
AGENTS := tools/agents/node_modules
CONFORMANCE := tools/conformance/node_modules
PROGRAMS := tools/programs
BROWSER := tools/browser/program
TESTED_WITH := $(VENV)/.dev $(NODE_MODULES)/.installed $(AGENTS)/.installed $(CONFORMANCE)/.installed $(PROGRAMS)/.installed $(BROWSER)/.installed
TESTS := $(BIN)/python -m tools.run_tests
NPM := ci
LOCKED := tools/node tools/agents tools/conformance tools/browser bench/discovery/tokenizers
UV := .venv-requirements/bin/uv
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make requirements' $(if $(UPGRADE),--upgrade)

.PHONY: help setup run test test-all test-deps check quick-tests lint lint-arch format types sizes tests test-race conformance build bench bench-discovery generated pictures requirements clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(VENV)/.installed  ## Make .venv with .venv/bin/trunkline
	@echo "ready: $(BIN)/trunkline"

run: $(VENV)/.installed  ## Run the gateway with an embedded demo
	@$(BIN)/trunkline demo $(ARGS)

test: lint types lint-arch sizes tests  ## Everything CI runs

test-all: lint types lint-arch sizes $(TESTED_WITH)  ## The same with whole products, long ledgers, soak and fuzz
	TEST_ALL=1 $(TESTS)

test-deps:  ## Install the system programs that tests need, by apt-get
	apt-get update
	apt-get install --yes --no-install-recommends bash bubblewrap git make

check: $(TESTED_WITH)  ## The quick part (under 2 minutes)
	@$(MAKE) --jobs=2 --output-sync=target types lint lint-arch sizes quick-tests

quick-tests: $(TESTED_WITH)
	$(TESTS) -m "not slow" tests/unit tests/meta

lint: $(VENV)/.dev  ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev  ## Apply ruff's fixes and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev $(NODE_MODULES)/.installed  ## pyright, strict
	$(BIN)/node $(NODE_MODULES)/pyright/index.js

lint-arch: $(VENV)/.dev  ## The direction of imports
	$(BIN)/lint-imports --cache-dir .cache/imports

sizes: $(VENV)/.dev  ## No function over 60 lines, no module over 500
	$(BIN)/python tools/check_sizes.py

tests: $(TESTED_WITH)
	$(TESTS)

test-race: $(TESTED_WITH)  ## All tests with asyncio's debug mode, warnings as errors
	PYTHONASYNCIODEBUG=1 PYTHONDEVMODE=1 $(TESTS)

conformance: $(VENV)/.dev $(CONFORMANCE)/.installed  ## The official harness, in every layout, as a table
	$(BIN)/python -m tests.support.conformance

build: $(VENV)/.dev  ## A wheel and an sdist in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

bench: $(VENV)/.dev  ## Side by side with the peers; writes bench/RESULTS.md
	$(BIN)/python -m bench

bench-discovery: $(VENV)/.dev  ## How well, how fast and how cheaply tools are found; TOOL_DATA=folder for the public sets
	$(BIN)/python -m bench.discovery $(if $(TOOL_DATA),--data '$(TOOL_DATA)') $(ARGS)

generated: $(VENV)/.dev  ## Write the docs that come from code: error codes, keys, commands, JSON Schema, OpenAPI
	$(BIN)/python tools/write_error_docs.py
	$(BIN)/python -m tools.write_command_docs
	$(BIN)/python -m tools.write_config_docs
	$(BIN)/python -m tools.write_route_and_tool_docs
	$(BIN)/python -m tools.write_protected_path_docs
	$(BIN)/python -m tools.write_protocol_docs
	$(BIN)/python -m tools.write_openapi
	$(BIN)/python -m tools.write_config_schema

pictures: $(VENV)/.dev  ## Make the terminal pictures of the docs anew, from real runs
	$(BIN)/python -m tools.terminal_pictures

requirements: $(VENV)/.dev $(UV)  ## Pin what pyproject.toml and package.json ask for, with hashes; UPGRADE=1 for newer versions
	$(COMPILE) pyproject.toml --extra dev --group build --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --constraint requirements/dev.txt --output-file requirements/run.txt
	$(COMPILE) pyproject.toml --extra plugins --constraint requirements/dev.txt --output-file requirements/plugins.txt
	$(COMPILE) --group build --constraint requirements/dev.txt --output-file requirements/build.txt
	$(COMPILE) --group uv --output-file requirements/uv.txt
	$(COMPILE) --group mcp-proxy --output-file bench/pins/mcp-proxy.txt
	for folder in $(LOCKED); do \
		( cd $$folder && $(if $(UPGRADE),rm -rf package-lock.json node_modules &&) PATH="$(CURDIR)/$(BIN):$$PATH" \
			npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund --loglevel=error ) || exit; \
	done

clean:  ## Remove everything that was set up or built
	rm -rf $(VENV) .venv-* $(NODE_MODULES) $(AGENTS) $(CONFORMANCE) $(PROGRAMS)/* $(PROGRAMS)/.installed tools/browser/node_modules $(BROWSER) dist build .cache .bench .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Trunkline needs Python 3.11 or newer; point PYTHON at one: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml requirements/run.txt requirements/build.txt | $(VENV)/bin/python
	$(BIN)/python $(HASHED) -r requirements/run.txt -r requirements/build.txt
	$(BIN)/python $(ITSELF)
	@touch $@

$(VENV)/.dev: pyproject.toml requirements/dev.txt | $(VENV)/bin/python
	$(BIN)/python $(HASHED) -r requirements/dev.txt
	$(BIN)/python $(ITSELF)
	@touch $@ $(VENV)/.installed

$(UV): requirements/uv.txt
	$(PYTHON) -m venv --clear .venv-requirements
	.venv-requirements/bin/python $(HASHED) -r requirements/uv.txt
	@touch $@

# of opencode the lock file has the builds for Linux on x86-64 only, and `npm ci` wants all or nothing
$(AGENTS)/.installed: NPM := install --no-save
%/node_modules/.installed: %/package.json %/package-lock.json | $(VENV)/.dev
	cd $* && PATH="$(CURDIR)/$(BIN):$$PATH" npm $(NPM) --no-audit --no-fund --loglevel=error
	@touch $@

$(BROWSER)/.installed: tools/browser/unpack.mjs tools/browser/node_modules/.installed
	$(BIN)/node tools/browser/unpack.mjs
	@touch $@

$(PROGRAMS)/.installed: tools/unpack_programs.sh
	sh tools/unpack_programs.sh
