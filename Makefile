# Everything runs in .venv. Each command installs its requirements there at its first use, and again after a change of
# pyproject.toml or constraints.txt: .venv/.train marks that training is ready, .venv/.test the tests.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# Settings with which every seed learns in a few minutes: each agent has as many mini-batches as the critic, all smaller, and
# half the paper's weight of the entropy, so that returns rise earlier.
DEMONSTRATION := --steps 50000 --temperature 0.1 --warmup-steps 5000 --eval-interval 5000 --eval-episodes 3 --batch-size 128 --actor-coefficient 5
# Test files that start first: one that compiles all algorithms for the rest, and the longest ones, so that no core is idle
# at the end.
FIRST := tests/algorithms/test_exact.py tests/rollout/test_rollout.py tests/reliability/test_kills.py tests/sweeps/test_sweeps.py tests/video/test_video.py \
  tests/learning/test_losses.py tests/reliability/test_faults.py tests/cli/test_cli.py tests/algorithms/test_baselines.py tests/docs/test_docs.py \
  tests/watch/test_watch_page.py tests/video/test_play.py
FIRST_SLOW := tests/reliability/test_sweep_kills.py tests/docs/test_docs.py tests/learning tests/reliability
PYTEST := $(BIN)/python -m pytest --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup system train demonstration campaign results test test-slow smoke test-thirdparty test-sb3 torture lint format docs figures \
  wheel bench bench-peers against-sb3 clean

help:  ## print this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: .venv/.train  ## install the requirements of training into .venv; other commands add theirs

# Install packages, the arguments of pip, and print the progress; on failure, print pip's messages.
install = rm -f .venv/failed; \
  { $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt $(1) 2>.venv/pip.log || touch .venv/failed; } \
  | sed -n -e 's/^Collecting \([A-Za-z0-9._-]*\).*/  fetching \1/p' -e 's/^Installing collected.*/  unpacking them/p'; \
  if [ -e .venv/failed ]; then cat .venv/pip.log >&2; exit 1; fi

.venv/.train: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("ARAC needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@echo "installing the requirements of training into .venv: about a minute the first time"
	@$(PYTHON) -m venv .venv
	@$(call install,-e .)
	@touch $@

.venv/.%: .venv/.train
	@echo "installing the extra $* of pyproject.toml into .venv"
	@$(call install,-e '.[$*]')
	@touch $@

train: .venv/.train  ## train ARAC on HalfCheetah-v5 (about five minutes) and print the result
	$(BIN)/arac train HalfCheetah-v5 $(DEMONSTRATION)

demonstration: .venv/.train  ## run `make train` with the seeds 0 to 4 and print a table of the returns: 25 minutes
	$(BIN)/python -m benchmarks.demonstration

# All other work on the machine has priority.
IDLE := $(shell command -v chrt >/dev/null && echo "chrt --idle 0" || echo "nice -n 19")

campaign: .venv/.train  ## train the paper's table at its scale: weeks, at the lowest priority; Ctrl-C saves
	@# Linux shares the processor among terminals first, whatever the priorities within each.
	@if test -w /proc/self/autogroup; then echo 19 > /proc/self/autogroup; fi
	$(IDLE) $(BIN)/arac sweep results/campaign/sweep.toml --runs runs/campaign --keep results/campaign/runs --fresh 100

results: .venv/.train  ## update the tables of README and docs/results.md from the runs that are kept in results/
	$(BIN)/python -m benchmarks.results

# Install a Debian package for some tests if apt is available and the user is root.
apt = { test "$$(id -u)" = 0 && { apt-get install -qq -y $(1) || { apt-get update -qq && apt-get install -qq -y $(1); }; } >/dev/null 2>&1; } \
	  || echo "$(1) is missing and cannot be installed: the tests of $(2) are skipped"

system:  ## install Chromium (pages) and OSMesa (pictures) for the tests, if apt is available
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || $(call apt,chromium,web pages)
	@$(PYTHON) -c 'import sys; from ctypes.util import find_library; sys.exit(not find_library("OSMesa"))' \
	  || $(call apt,libosmesa6,MuJoCo in pictures)

test: .venv/.test system  ## run the fast tests, required for every change, on up to four cores: six minutes on two
	$(PYTEST) --numprocesses $$(expr $$(nproc) + 1) $(FIRST) tests --durations 10  # one more than cores, because processes sometimes wait

test-slow: .venv/.slow system  ## run the slow tests (learning, kills, Ray clusters, whole pages, the wheel): fourteen minutes
	$(PYTEST) --numprocesses auto $(FIRST_SLOW) tests -m slow --durations 10

smoke: .venv/.test  ## train three generations on each of the paper's tasks, and ERL and CERL until they learn: 20 minutes
	$(BIN)/python -m pytest tests/envs/test_tasks.py tests/learning -m smoke -v

test-thirdparty: .venv/.test .venv/.thirdparty  ## test environments of other packages, which it installs: about five minutes
	$(BIN)/python -m pytest tests/envs/test_tasks.py -m thirdparty -v

torture: .venv/.train  ## kill runs of every algorithm many times and compare the results: ten minutes
	$(BIN)/python tests/reliability/torture.py

lint: .venv/.test .venv/.lint  ## check with ruff (format and lint) and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/.lint  ## fix format and lint with ruff
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/.docs  ## build the documentation as a site that needs no network: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

figures: .venv/.train  ## draw the figures of docs/explained.md
	$(BIN)/python docs/figures.py

wheel: .venv/.docs  ## build the sdist and the wheel into dist/
	$(BIN)/python -m build --no-isolation

bench: .venv/.train  ## measure updates against the machine's limit, growth, phases, start and saving: half an hour
	$(BIN)/python -m benchmarks.speed updates profile growth phases start --out results/bench
	$(BIN)/python -m benchmarks.saving

.venv-peers/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers]'
	@touch $@

bench-peers: .venv/.train .venv-peers/.ready  ## whole runs against SBX and Stable-Baselines3, in a separate environment: 20 minutes
	$(BIN)/python -m benchmarks.speed peers --out results/bench

against-sb3: .venv-peers/.ready  ## compare TD3 and SAC with Stable-Baselines3: half an hour
	.venv-peers/bin/python -m benchmarks.against_sb3

test-sb3: .venv-peers/.ready  ## our agents in Stable-Baselines3's evaluation, in a separate environment: a minute
	.venv-peers/bin/python -m pytest tests/agents/test_sb3.py

clean:  ## remove .venv and caches
	rm -rf .venv .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site *.egg-info
