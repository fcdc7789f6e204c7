# `make run` starts a broker, `make test` passes the tests; both create what they need first.
# Python: Debian's own build is the faster one where several are installed.
PYTHON ?= $(shell for p in /usr/bin/python3 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard leveret tests examples tools)
# A checkout on sys.path would put the link `amqp` in front of Celery's package of that name.
export PYTHONSAFEPATH = 1

.PHONY: run test fast model fuzz fuzz-storage kill-loop check format lint types features storage-figures \
	conformance conformance-rabbitmq conformance-page clean

run: $(VENV)/run.stamp
	$(BIN)/leveret serve $(ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/pytest $(ARGS)

# Without the tests marked `slow`: those that start processes under load or wait for real time.
fast: $(VENV)/dev.stamp
	$(BIN)/pytest -m "not slow" $(ARGS)

# Channels, queues and what a power cut leaves of them against models, for minutes.
model: $(VENV)/dev.stamp
	$(BIN)/pytest --hypothesis-profile=model --timeout=3600 tests/broker/test_*_model.py tests/crash/test_*_model.py $(ARGS)

# Recovery of damaged files, for hours: other ones each time. A failure names its seed:
# `make fuzz-storage SEED=<seed> ROUNDS=1` does it again.
SEED ?= $(shell date +%s)
ROUNDS ?= 1000000
fuzz-storage: $(VENV)/dev.stamp
	LEVERET_FUZZ_SEED=$(SEED) LEVERET_FUZZ_ROUNDS=$(ROUNDS) $(BIN)/pytest --timeout=0 tests/crash/test_damage.py -k damaged_files $(ARGS)

# Conversations with a broker, mad ones and recorded ones that were spoilt, for an hour: other ones
# each time. A failure names its seed and the bytes: `make fuzz SEED=<seed> TIME_S=0` does it again.
TIME_S ?= 3600
fuzz: $(VENV)/dev.stamp
	FUZZ_SEED=$(SEED) FUZZ_SECONDS=$(TIME_S) $(BIN)/pytest --timeout=0 tests/wire/test_fuzz.py $(ARGS)

# SIGKILL under load, again and again: ROUNDS=100 for an hour.
kill-loop: $(VENV)/dev.stamp
	KILL_ROUNDS=$(ROUNDS) $(BIN)/pytest --timeout=0 tests/durability/test_kill_many_queues.py $(ARGS)

# What a broker does with each rule of AMQP: ours, started for it; then RabbitMQ; then both as a page.
RABBITMQ := /usr/lib/rabbitmq/bin/rabbitmq-server
conformance: $(VENV)/run.stamp
	$(BIN)/python tools/conformance.py leveret $(ARGS)

conformance-rabbitmq: $(VENV)/run.stamp | $(RABBITMQ)
	$(BIN)/python tools/conformance.py rabbitmq $(ARGS)

# An exit code of 1 says that rules are broken: the page shows which.
conformance-page: $(VENV)/run.stamp | $(RABBITMQ)
	mkdir -p build
	$(BIN)/python tools/conformance.py leveret --format json > build/leveret.json || test $$? -eq 1
	$(BIN)/python tools/conformance.py rabbitmq --format json > build/rabbitmq.json || test $$? -eq 1
	$(BIN)/python tools/conformance_page.py build/leveret.json build/rabbitmq.json > build/conformance.md
	mv build/conformance.md docs/conformance.md

$(RABBITMQ):
	apt-get install --yes --no-install-recommends rabbitmq-server || \
		{ echo "make: RabbitMQ is missing (Debian: apt install rabbitmq-server)"; exit 1; }

check: format lint types fast

format: $(VENV)/dev.stamp
	$(BIN)/ruff format $(SOURCES)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: $(VENV)/dev.stamp
	$(BIN)/mypy

# What priorities, expirations and delays cost on this machine: under three minutes.
features: $(VENV)/run.stamp
	$(BIN)/python tools/features.py $(ARGS)

# What long queues, many queues and many acknowledgements cost: five minutes, 3 GB of disk.
storage-figures: $(VENV)/run.stamp
	$(BIN)/python tools/storage.py $(ARGS)

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "make: no Python of 3.11 or newer with venv and pip found (Debian: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=23'

$(VENV)/run.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/dev.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,dev]'
	touch $@ $(VENV)/run.stamp

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
