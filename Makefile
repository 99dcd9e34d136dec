# Two commands do everything on a machine with Python >= 3.11, gcc and make: `make demo` and `make test`.

PYTHON ?= python3
ENVIRONMENT ?= .venv
BIN := $(ENVIRONMENT)/bin
INSTALLED := $(ENVIRONMENT)/.installed
BUILD ?= build
CC ?= gcc
DEMO_SIZE ?= 2048
ONE_IN ?= 1
JOBS ?= $(shell nproc)
DEMO := $(BUILD)/demo/dgemm
SIDE_BY_SIDE := $(patsubst %,tests/live/test_%.py,children merge paths recorded_calls recorded_threads recording \
	shared_copies survey values watching)
ALONE := $(patsubst %,tests/live/test_%.py,service)

.PHONY: demo check test test-long lint bench headline suite clean
.DELETE_ON_ERROR:

demo: $(INSTALLED) $(DEMO)
	@$(BIN)/python -m bench.demo $(DEMO) $(DEMO_SIZE)

# $(call tests,MARKERS,FOLDERS,FOLDERS): what does not depend on time runs side by side, test by test; then programs that
# are sampled or interrupted, file by file; last what goes by the clock, and what uses all processors by itself. 5: nothing
# was selected there.
PYTEST := $(BIN)/python -m pytest --durations=15
define tests
	@status=0; \
	$(PYTEST) -n $(JOBS) --dist worksteal -m "$(1)" $(PYTEST_FLAGS) $(2) $(SIDE_BY_SIDE) || [ $$? -eq 5 ] || status=1; \
	$(PYTEST) -n $(JOBS) --dist loadfile -m "$(1)" $(PYTEST_FLAGS) $(SIDE_BY_SIDE:%=--ignore=%) $(ALONE:%=--ignore=%) \
	  tests/live || [ $$? -eq 5 ] || status=1; \
	$(PYTEST) -m "$(1)" $(PYTEST_FLAGS) $(ALONE) $(3) || [ $$? -eq 5 ] || status=1; \
	exit $$status
endef

# Before each commit: all that is decided without a live process, and a dozen live programs.
check: $(INSTALLED)
	$(call tests,not long and (check or not live),tests/unit tests/property tests/golden)

# As much as ten minutes can show, of everything.
test: $(INSTALLED)
	$(call tests,not long,tests/unit tests/property tests/golden)

# What make test leaves out: drawn nests by the hundred, seeded faults, more seeds, compilers and levels. ONE_IN=4: a quarter
# of the cases, but all of what the promise rests on.
test-long: PYTEST += --one-in $(ONE_IN)
test-long: $(INSTALLED)
	$(call tests,long,tests/unit tests/property tests/golden,tests/equivalence tests/mutation)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# The whole matrix: variants x compilers x instruction sets; BENCH_FLAGS selects less (python -m bench.run --help).
bench: $(INSTALLED)
	$(BIN)/python -m bench.run $(BENCH_FLAGS)

headline: $(INSTALLED)
	$(BIN)/python -m bench.run --headline $(BENCH_FLAGS)

# The kernels of every family in every build, hours long; SUITE_FLAGS selects less (python -m bench.suite --help).
suite: $(INSTALLED)
	$(BIN)/python -m bench.suite --fp $(SUITE_FLAGS)

$(DEMO): bench/kernels/gemm_ijk.c bench/kernels/matrix.h
	@mkdir -p $(@D)
	$(CC) -O2 -g -o $@ $<

# The stamp is younger than pyproject.toml exactly when the environment holds what it names.
$(INSTALLED): pyproject.toml memopt/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "memopt: $(PYTHON) is not Python 3.11 or newer: name one, as in: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "memopt: $(PYTHON) cannot make environments: install its venv module, on Debian: apt install python3-venv" >&2; \
	  exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(ENVIRONMENT)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(BUILD) *.egg-info
