# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
DEMO_DOCUMENTS ?= 320
DEMO_SEED ?= 7

# Processes write the bytecode of this package. Where images for containers forbid that, each of the thousand processes of
# a test run would compile 300 modules anew, for 0.4 CPU s.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo docs test pytest test-slow test-browser test-full lint lint-text lint-types fuzz powerloss chaos soak bench lock clean

setup: .venv/.installed

# uv installs the locked set, torch included, in under a minute; pip would take several. Nothing is compiled yet: that takes
# 93 CPU s for 30,000 modules. The demo compiles the 3,500 that it imports, in 8.
.venv/.installed: infra/requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes infra/requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

infra/demo/world/truth/sentences.parquet: | .venv/.installed
	$(BIN)/python infra/demo/generate.py --seed $(DEMO_SEED) --documents $(DEMO_DOCUMENTS) --out infra/demo/world

demo: setup infra/demo/world/truth/sentences.parquet
	$(BIN)/pairmill run demo

# The documentation site, below build/docs/site. A link that leads nowhere is an error.
docs: setup
	$(BIN)/python -m infra.site.build

# Types take as long as all the rest: both at once.
lint: setup
	$(MAKE) --no-print-directory -j 2 lint-text lint-types

lint-text:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m infra.plain_words

# A larger young generation saves 8 of its 75 CPU s.
lint-types:
	NODE_OPTIONS=--max-semi-space-size=128 $(BIN)/pyright

# Three at a time, whatever the machine has: on two cores two of them use but one, since tests wait for servers, disks
# and each other; one that has loaded models holds 2 to 3 GB. Each begins with its part of the list; who is done first
# takes from the others' rest. What all need, worlds and lakes, is made once (tests/worlds/shared.py). One thread each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist worksteal

# What a change needs to be told within minutes: no test of 1.5 CPU s, but some fifty that alone hold a promise. CI runs
# the slow tests and those in a browser with them: one run collects once, makes each shared lake once, and has small
# tests left for who waits for the other's last long one.
TESTS ?= not slow and not browser
pytest: setup
	$(PYTEST) -m "$(TESTS) and not full"

# Lint runs beside the tests, since pyright uses but one core, for 40 s.
test: setup
	$(MAKE) --no-print-directory -j 3 lint-text lint-types pytest

# The pages of `pairmill browse` in a real browser. Needs Chromium on the path, or its path in PAIRMILL_CHROMIUM.
test-browser: setup
	$(BIN)/pytest -n 0 -m browser tests/flows/browse

# What takes 1.5 CPU s or more: kills in every stage, waits, S3 that fails, machines of a Ray cluster, the commands of
# README and infra/docs, the demo world's truth. CI runs it with the rest.
test-slow: setup
	$(PYTEST) -m "slow and not full"

# The tests marked `full`: statistics over many seeds, whole enumerations, long histories. Every property again, with five
# times the examples, and 200 histories of runs, which take two hours of CPU time; captions by vLLM, which is 6 GB; a
# team's cluster that loses a machine. Before a release, and when its code has changed; not in CI.
test-full: setup
	$(PYTEST) -m "full or hypothesis" --hypothesis-profile full --timeout 3600
	PAIRMILL_VLLM=1 $(BIN)/pytest -n 0 tests/flows/test_served_captioner.py -k vllm
	PAIRMILL_TEAM_CLUSTER=1 $(BIN)/pytest -n 0 tests/flows/test_team_cluster.py

# Every format that is read, mutated for ten minutes, then every command on 500 lakes of which one file is damaged (200 of
# killed runs too), 300 copies of a lake that is being written, 10,000 rules; the bounded forms of all are in the tests.
fuzz: setup
	$(BIN)/python -m tests.fuzz.inputs --seconds 600 --seed 1
	$(BIN)/python -m tests.fuzz.corruption --times 500 --seed 1
	$(BIN)/python -m tests.fuzz.corruption --times 200 --seed 1 --killed
	$(BIN)/python -m tests.fuzz.power_loss --times 300 --seed 1
	$(BIN)/python -m tests.fuzz.rules --times 10000 --seed 1

# The writes of a run, by strace, and 510 power cuts at any of them: each lake opens to what was committed, 20 minutes.
powerloss: setup
	$(BIN)/python -m infra.endure.power_loss --prefixes 510

# 44 interruptions of every kind, after each of which the next run must end in the same dataset: up to 45 minutes; a full
# disk in each step of a run, 30 minutes. Then
# 300 histories of commands that are killed anywhere, on lakes that must equal a model: 55 CPU minutes.
chaos: setup
	$(BIN)/python -m infra.endure.chaos $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m infra.endure.chaos --full --minutes 90
	$(BIN)/python -m infra.endure.histories --times 200 $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m infra.endure.histories --times 100 $(if $(SEED),--seed $(SEED)) --postgres

# 30 nights of a growing lake with kills, replays, maintenance and three readers: up to 40 minutes.
soak: setup
	$(BIN)/python -m infra.endure.soak $(if $(SEED),--seed $(SEED))

# Every figure of infra/bench/README.md anew, peers included; how long each takes stands there.
bench: setup
	$(BIN)/python -m infra.bench.run_all $(if $(PHOTOS),--photos $(PHOTOS))

lock:
	$(BIN)/uv pip compile --universal --no-emit-index-url --generate-hashes --group dev --python-version 3.11 pyproject.toml -o infra/requirements.lock

clean:
	rm -rf lake infra/demo/world build
