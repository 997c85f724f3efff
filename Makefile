# Lorekeep's commands for developers. `make install` makes .venv; everything else runs in it.
.DEFAULT_GOAL := help
.PHONY: help install demo test nightly endurance fuzz check format docs pictures bench bench-real bounds cuda lock clean

PYTEST_ARGS ?=
BENCH_ARGS ?=
FUZZ_ARGS ?=
SECONDS ?= 60
MINUTES ?= 30
TURNS ?= 0
MODEL ?=
ARCHITECTURE ?= 90
BIN := .venv/bin
LOCKED = $(BIN)/uv pip compile --universal --python-version 3.11 --fork-strategy fewest --generate-hashes --system-certs --no-header

help:      ## what can be made
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

install:   ## .venv with everything; compiles llama.cpp once per machine
	@scripts/system_packages.sh
	@$$(scripts/python.sh) scripts/install.py
	@# Each process of the tests would compile what it imports where PYTHONDONTWRITEBYTECODE is set: a fifth of a start.
	@$(BIN)/python -P -m compileall -q orchestrator codex governor formatters

demo: install   ## load two real codebases, ask, show what was cached
	@$(BIN)/python scripts/demo.py

test: install   ## the whole suite, in three processes: a third of a test's time is a wait
	@scripts/system_packages.sh tests
	@# pytest keeps the tests that it has rewritten: without that each process takes ten seconds to collect them, each time.
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile $(PYTEST_ARGS)

nightly: install  ## the laws, each with 10,000 generated cases where it sets no number of its own, longer lives of the engine, and 10,000 turns and 500 real ones under chance: hours
	@HYPOTHESIS_PROFILE=nightly LORE_SOAK_TURNS=10000 LORE_SOAK_REAL_TURNS=500 LORE_SOAK_OPERATIONS=2000 LORE_SOAK_KILLS=100 $(BIN)/python -m pytest -n 2 --dist loadfile --timeout 7200 tests/laws tests/unit/governor tests/unit/prompt tests/soak/test_chaos.py tests/soak/test_daemon_chaos.py tests/soak/test_engine_soak.py tests/soak/test_llama_soak.py tests/faults/test_memories_kills.py $(PYTEST_ARGS)

endurance: install  ## half an hour (MINUTES=30) of kills, damage, full disks and little memory on real daemons: a table, and JSON under build/endurance
	@$(BIN)/python tests/soak/endurance.py --minutes $(MINUTES) --turns $(TURNS)

fuzz: install   ## whatever the OpenAPI document allows, and what not, to a daemon of its own: a minute, or SECONDS=900
	@$(BIN)/python scripts/fuzz.py --seconds $(SECONDS) $(FUZZ_ARGS)

check: install  ## lint, format, strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=scripts:benchmarks $(BIN)/mypy scripts benchmarks/*.py
	$(BIN)/python -m pytest tests/test_architecture.py

format: install ## rewrite what check would refuse
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install   ## write docs/reference, manual pages and completions anew from the program itself
	@$(BIN)/python scripts/reference.py

pictures: install  ## docs/pictures anew, from one real run in a terminal, in lore top and in a browser
	@scripts/system_packages.sh tests
	@$(BIN)/python scripts/pictures.py

bench: install  ## figures with llama-server beside ours: a table, and JSON under build/bench
	@$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

bench-real: install  ## the same with real weights: Gemma 3 270M, MODEL=smollm2, or MODEL=FILE
	@$(BIN)/python benchmarks/run.py --real $(if $(MODEL),"$(MODEL)") $(BENCH_ARGS)

bounds: install ## tests with the lowest versions that pyproject.toml allows
	@scripts/lowest_versions.sh

cuda:           ## llama.cpp's CUDA backend (ARCHITECTURE=90), where there is nvcc and without a GPU: an hour on two cores
	@$$(scripts/python.sh) scripts/cuda_backend.py --architecture $(ARCHITECTURE)

lock:           ## resolve pyproject.toml's dependencies anew: what runs, and the tools of developers
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(LOCKED) --upgrade pyproject.toml -o requirements.lock
	$(LOCKED) --upgrade --group dev -c requirements.lock -o requirements-dev.lock

clean:          ## forget .venv and what tools left; compiled wheels stay in the cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build
