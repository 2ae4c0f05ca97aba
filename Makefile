# Everyday commands. `make` lists them; each one sets up .venv first if it has to.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What it takes to run Omnigraph, without the tools to work on it: a third of the time to wait.
LIGHT := $(VENV)/.light
SOURCES := src tests docs studio/build.py $(wildcard bench deploy examples)

# A shared set of pins for what is installed and for what builds it. Newer versions of pip read the
# second name for builds, older ones the first for both.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Compiled modules are kept wherever the caller asks for none: tests start hundreds of processes, and
# each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

# Extra arguments for pytest: make test ARGS="-k branch -x"
ARGS ?=

# How many processes run tests: make test WORKERS=2. Two more than there are cores, since many tests
# wait for a process they started, for a lease or for storage.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-costs check crash crash-load crash-stream simulate hostile jepsen attack lint types audit studio pictures dist format bench bench-queries bench-aggregates bench-ldbc bench-load bench-streams bench-export bench-merge bench-upkeep bench-server bench-reviews bench-spark docs clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: $(STAMP) ## install Omnigraph and its tools into .venv

# $(1) are the extras to install.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Omnigraph needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
		echo "Name another one, for example: make setup PYTHON=python3.12"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing into $(VENV); the first time takes a few minutes."
	@$(BIN)/python -m pip install --quiet --editable '.[$(1)]'
endef

EVERYTHING := all,bench,dev

$(STAMP): pyproject.toml constraints.txt
	$(call install,$(EVERYTHING))
	@touch $(LIGHT) $@

$(LIGHT): pyproject.toml constraints.txt
	$(call install,all)
	@touch $@

demo: $(LIGHT) ## a tour on a graph of a million edges: under two minutes
	@$(BIN)/python examples/demo.py

test: studio ## the whole test suite, with a budget of ten minutes on two idle cores
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

# Before a release. Every property test searches for minutes, so a test may take longer.
test-long: studio ## the suite with large budgets and the long crash schedules; lists the slowest 20
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --hypothesis-profile long --timeout 3600 --durations 20 $(ARGS)

test-costs: studio ## the whole test suite, and where its processor time goes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -p tests.support.costs $(ARGS)

check: studio lint types audit ## lint, types, known advisories and the quick tests: about a minute
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not spark and not slow" $(ARGS)

# How long `make crash` and `make attack` run, and which random choices `make crash` makes.
SEED ?= 7
SECONDS ?= 120

crash: $(STAMP) ## kill writers at random and look for lost writes: make crash SEED=7 SECONDS=120
	@$(BIN)/python -m tests.crash.soak --seed $(SEED) --seconds $(SECONDS) $(ARGS)

# How many drivers of bulk loads `make crash-load` kills.
RUNS ?= 20

crash-load: $(STAMP) ## kill drivers of bulk loads at random: make crash-load RUNS=20 SEED=7
	@$(BIN)/python -m tests.pipeline.crash_load --seed $(SEED) --runs $(RUNS)

# How many batches the stream of `make crash-stream` has, and how many of its drivers are killed.
BATCHES ?= 100
KILLS ?= 5

crash-stream: $(STAMP) ## kill drivers of a stream at random: make crash-stream BATCHES=100 KILLS=5 SEED=7
	@$(BIN)/python -m tests.pipeline.crash_stream --seed $(SEED) --batches $(BATCHES) --kills $(KILLS)

# How many schedules `make simulate` runs, from which seed on; SECONDS=… begins none after that.
SEEDS ?= 1000
FIRST ?= 1

simulate: $(STAMP) ## interleave and kill operations at every step: make simulate SEEDS=1000 FIRST=1
	@$(BIN)/python -m tests.simulate --first $(FIRST) --seeds $(SEEDS) $(if $(filter command line,$(origin SECONDS)),--seconds $(SECONDS)) $(ARGS)

hostile: $(STAMP) ## every write against every fault of a store: make hostile ARGS="--cases 4"
	@LANCE_LOG=error $(BIN)/python -m tests.s3 $(ARGS)

jepsen: $(STAMP) ## check histories of processes that are killed and stopped: make jepsen SECONDS=120 ARGS=--s3
	@LANCE_LOG=error $(BIN)/python -m tests.histories --seconds $(SECONDS) --seed $(SEED) $(ARGS)

attack: $(STAMP) ## attack a real server and say what held: make attack SECONDS=120
	@LANCE_LOG=error $(BIN)/python -m tests.attack --seconds $(SECONDS) $(ARGS)

lint: $(STAMP) ## style and likely mistakes
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "Run 'make format'."; exit 1; }

types: $(STAMP) ## static types
	@$(BIN)/mypy

# STRICT=1 also fails where advisories cannot be fetched.
STRICT ?=

audit: $(STAMP) ## known advisories about the pinned packages: make audit STRICT=1
	@$(BIN)/python -m tests.packaging.audit $(if $(STRICT),--strict)

# Node comes from the path, or with the tools of `make setup`.
studio: $(STAMP) ## build the page of Studio, if a source of it has changed
	@$(BIN)/python studio/build.py

pictures: studio ## make the pictures of Studio in the documentation anew
	@OMNIGRAPH_WRITE_PICTURES=1 $(BIN)/python -m pytest -q -n 0 tests/studio/test_look.py

dist: studio ## build the wheel and the source archive into dist/
	@$(BIN)/python -m hatchling build --directory dist

format: $(STAMP) ## rewrite the code in the house style
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

# How much is measured: small, full or large. All suites together are small if nothing else is said;
# one alone takes the sizes its targets were set for.
SCALE ?=

bench: $(STAMP) ## measure beside peers and keep the record: make bench SCALE=full ARGS="kernel merge"
	@$(BIN)/python -m bench --scale $(or $(SCALE),small) $(ARGS)

bench-queries: $(STAMP) ## the suite of queries alone: Kuzu, DuckDB and bare Lance
	@$(BIN)/python -m bench queries --scale $(or $(SCALE),full) $(ARGS)

bench-aggregates: $(STAMP) ## aggregates over many paths and edges alone: Kuzu and DuckDB
	@$(BIN)/python -m bench aggregates --scale $(or $(SCALE),full) $(ARGS)

bench-ldbc: $(STAMP) ## the LDBC social network alone: equal answers and ratios to Kuzu and DuckDB
	@$(BIN)/python -m bench ldbc --scale $(or $(SCALE),full) $(ARGS)

bench-load: $(STAMP) ## bulk loading alone: Spark's own copy, Kuzu and bare Lance
	@$(BIN)/python -m bench load --scale $(or $(SCALE),full) $(ARGS)

bench-streams: $(STAMP) ## streams into a graph alone: micro-batches and the same loads in process
	@$(BIN)/python -m bench streams --scale $(or $(SCALE),full) $(ARGS)

bench-export: $(STAMP) ## exporting edges alone: a bare copy from Lance to Parquet
	@$(BIN)/python -m bench export --scale $(or $(SCALE),full) $(ARGS)

bench-merge: $(STAMP) ## merge and diff alone, at several sizes, widths and amounts of change
	@$(BIN)/python -m bench merge --scale $(or $(SCALE),full) $(ARGS)

bench-upkeep: $(STAMP) ## upkeep alone: a graph grown by many commits and one loaded at once
	@$(BIN)/python -m bench upkeep --scale $(or $(SCALE),full) $(ARGS)

bench-server: $(STAMP) ## serving alone: HTTP and the embedded engine, and 50 clients at once
	@$(BIN)/python -m bench server --scale $(or $(SCALE),full) $(ARGS)

bench-reviews: $(STAMP) ## reviews alone: pages of diffs and plans over HTTP, lists beside many events
	@$(BIN)/python -m bench reviews --scale $(or $(SCALE),full) $(ARGS)

bench-spark: $(STAMP) ## work on Spark alone: queries, algorithms and pipelines beside the same by hand
	@$(BIN)/python -m bench spark compute pipeline --scale $(or $(SCALE),full) $(ARGS)

docs: $(STAMP) ## rewrite the generated pages, and build the site into build/site
	@$(BIN)/python -m docs.generate
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove .venv, caches and build results
	rm -rf $(VENV) build dist src/omnigraph/server/page studio/node_modules studio/browser/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks .bench
	find src tests docs $(wildcard bench deploy examples) -name __pycache__ -type d -prune -exec rm -rf {} +
