# Commands for users and developers. Needs make and Python 3.11 or newer, 3.11 preferred.
# A candidate must run (a pyenv shim may exist for a version that is not active) and have venv.
SUITABLE := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,\
	$(shell $(name) -c '$(SUITABLE)' >/dev/null 2>&1 && echo $(name))))
# $(call venv,FOLDER): the command that creates a virtual environment, unless it exists.
venv = $(if $(wildcard $(1)/bin/python),,$(or $(PYTHON),\
	$(error no Python 3.11 or newer with venv found: install python3.11 and python3.11-venv, \
	or set PYTHON=/path/to/python)) -m venv $(1))
BIN := .venv/bin
DEMO := runs/demo
CHROMIUM := /usr/bin/chromium

.PHONY: install demo test browser test-all long worlds slow torture fuzz check format peers bench screenshots docs clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(call venv,.venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev]'
	touch $@

demo: install  ## train DNA on MinAtar/Breakout for about three minutes; evaluate, plot, record
	@$(BIN)/dna train MinAtar/Breakout-v1 --interactions 800000 --out $(DEMO) --restart
	@$(BIN)/dna eval $(DEMO) --episodes 100 --random
	@$(BIN)/dna plot $(DEMO)
	@$(BIN)/dna record $(DEMO) --best-of 3
	@echo
	@echo "Results are in $(DEMO): curve.png, episode.mp4, eval.json, policy/, metrics.jsonl, tensorboard/"
	@echo "Three commands to try next:"
	@echo "  $(BIN)/dna train CartPole-v1                            # about a minute"
	@echo "  $(BIN)/dna train MinAtar/Asterix-v1 --algo ppo          # PPO on another game"
	@echo "  $(BIN)/dna show minatar.dna --diff minatar.ppg          # how DNA differs from PPG"

browser:  ## Debian's Chromium, for the tests of `dna report` and `dna watch`
	@if [ -x $(CHROMIUM) ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get -qq update >/dev/null; \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
			chromium fonts-liberation fonts-dejavu-core >/dev/null \
			|| echo "browser: apt-get could not install chromium; tests/browser will be skipped"; \
	else echo "browser: no $(CHROMIUM); install Debian's chromium to run tests/browser"; fi

test: install browser  ## a few minutes on two cores; `make test-all` runs the long forms too
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m 'not long and not slow and not worlds'

long: install browser  ## more cases of what `make test` covers: faults, ranks, Ray, browsers
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m 'long and not slow and not worlds'

slow: install  ## training runs that must reach a score: minutes
	$(BIN)/python -m pytest -m slow

worlds: install  ## 81 environments: one iteration, snapshots, parity: minutes
	$(BIN)/python -m pytest -m worlds

torture: install  ## fault injection (docs/reliability.md): over an hour; continues where it stopped
	PYTHONPATH=tools:tests $(BIN)/python -m torture --json benchmarks/results/torture.json

fuzz: install  ## five fuzzers of 20 minutes, two at a time: an hour; continues where it stopped
	PYTHONPATH=tools:tests $(BIN)/python -m fuzz --minutes 20 --jobs 2 --json benchmarks/results/fuzz.json

test-all: test long worlds slow torture

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src
	$(BIN)/python -m pytest -q -p no:randomly tests/test_architecture.py

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

peers: .venv-peers/installed  ## the libraries that `dna bench --against` compares with

.venv-peers/installed: benchmarks/peers/requirements.txt
	$(call venv,.venv-peers)
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

bench: install peers  ## speed compared with peers and the machine's limit: an hour on an idle machine
	$(BIN)/dna bench atari --against sb3,cleanrl-style --out benchmarks/results/atari.json
	$(BIN)/dna bench mujoco --against sb3,sbx,cleanrl-style,torchrl,tianshou,skrl --out benchmarks/results/mujoco.json
	$(BIN)/dna bench minatar --against sb3,torchrl,tianshou,skrl --out benchmarks/results/minatar.json
	$(BIN)/python benchmarks/seeds.py --out benchmarks/results/seeds.json
	$(BIN)/python benchmarks/growth.py --out benchmarks/results/growth.json
	$(BIN)/dna bench procgen --against cleanrl-style --out benchmarks/results/procgen.json
	$(BIN)/python benchmarks/atari_backends.py
	$(BIN)/python benchmarks/tables.py

screenshots: install browser  ## pictures of `dna report` and `dna watch` for docs/img: minutes
	$(BIN)/python benchmarks/screenshots.py

docs: install  ## the site, in build/site; links, symbols and code blocks are checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m pytest -q tests/paper
	@echo "Open build/site/index.html"

clean:
	rm -rf .venv .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info
