# Everything runs in .venv, which each target sets up by itself when it is missing or out of date.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
# Test files that take minutes: begun first, so that no core waits for them at the end.
LONGEST := tests/reliability tests/test_exact.py tests/test_baselines.py tests/learning

.DEFAULT_GOAL := help
.PHONY: help setup system train test smoke test-thirdparty test-sb3 torture lint format docs figures wheel bench bench-peers against-sb3 clean

help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY)  ## the environment, in .venv

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("ARAC needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: $(READY)  ## trains ARAC on HalfCheetah for about five minutes and shows what came out
	$(BIN)/arac train HalfCheetah-v5 --steps 40000 --warmup-steps 5000 --eval-interval 5000 --eval-episodes 5

# A Debian package for some tests, where apt and the rights for it are there.
apt = { test "$$(id -u)" = 0 && { apt-get install -qq -y $(1) || { apt-get update -qq && apt-get install -qq -y $(1); }; } >/dev/null 2>&1; } \
	  || echo "there is no $(1), and it cannot be installed here: the tests of $(2) will be skipped"

system:  ## what tests need from the system, Chromium for pages and OSMesa for pictures: installed where that may be
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || $(call apt,chromium,web pages)
	@$(PYTHON) -c 'import sys; from ctypes.util import find_library; sys.exit(not find_library("OSMesa"))' \
	  || $(call apt,libosmesa6,MuJoCo in pictures)

test: $(READY) system  ## all tests, on up to four cores
	$(BIN)/python -m pytest $(LONGEST) tests --numprocesses auto --maxprocesses 4 --dist loadfile --durations 12

smoke: $(READY)  ## the paper's eight tasks, three generations each, and what ERL and CERL learn: 20 minutes
	$(BIN)/python -m pytest tests/test_tasks.py tests/learning -m smoke -v

test-thirdparty: $(READY)  ## environments of other packages, which it installs: about five minutes
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[thirdparty]'
	$(BIN)/python -m pytest tests/test_tasks.py -m thirdparty -v

torture: $(READY)  ## kills runs of every algorithm, again and again, and compares: ten minutes
	$(BIN)/python tests/reliability/torture.py

lint: $(READY)  ## ruff (format and lint) and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## ruff rewrites what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## the documentation as a site that needs no network: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

figures: $(READY)  ## draws the figures of docs/explained.md again
	$(BIN)/python docs/figures.py

wheel: $(READY)  ## the sdist and the wheel, in dist/
	$(BIN)/python -m build --no-isolation

bench: $(READY)  ## how fast it is: against the machine's limit, growth, phases, start; and what checkpoints cost: half an hour
	$(BIN)/arac bench updates profile growth phases start --out results/bench
	$(BIN)/python benchmarks/saving.py

.venv-peers/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers]'
	@touch $@

bench-peers: $(READY) .venv-peers/.ready  ## whole runs against SBX and Stable-Baselines3, in an environment of their own: 20 minutes
	$(BIN)/arac bench peers --out results/bench

against-sb3: .venv-peers/.ready  ## what TD3 and SAC learn beside Stable-Baselines3's: half an hour
	.venv-peers/bin/python benchmarks/against_sb3.py

test-sb3: .venv-peers/.ready  ## our agents in Stable-Baselines3's own evaluation, in an environment of its own: a minute
	.venv-peers/bin/python -m pytest tests/test_sb3.py

clean:  ## removes .venv and caches
	rm -rf .venv .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site *.egg-info
