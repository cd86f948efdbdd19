# Everything lives in .venv; each target sets up what it needs.
PYTHON ?= python3
SUITES := popgym,mujoco,box2d,minigrid,metaworld,jax,crafter,video,minari,view,docs,window,ray
EXTRAS ?=
BIN := .venv/bin
comma := ,
WANTED := dev,$(SUITES)$(if $(EXTRAS),$(comma)$(EXTRAS))

.PHONY: install demo test test-all test-faults check bench docs

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(WANTED)]'
	touch $@

demo: install
	$(BIN)/python examples/demo.py

# The viewer is tested in a real browser: Debian's, installed where it is missing and may be.
.venv/browser: | .venv/installed
	which chromium chromedriver >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; }
	touch $@

# Parts with shapes and types checked at run time; then whole runs at their real speed.
test: install .venv/browser
	$(BIN)/python -m pytest -n 2 -m 'not learning and not faults and not slow and not thorough'
	$(BIN)/python -m pytest -n 2 -m 'slow and not learning and not faults and not thorough' -o addopts='-ra --strict-markers --strict-config'

test-faults: install
	$(BIN)/python -m pytest -o addopts= -s -m faults tests/faults

# Whole runs have their types checked, too.
test-all: install .venv/browser
	$(BIN)/python -m pytest -n 2 -m 'not learning and not faults'
	$(MAKE) test-faults
	$(BIN)/python -m pytest -n 0 -m learning

check: install .venv/browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 -m 'not learning and not faults and not slow and not thorough' -q

bench: install
	$(BIN)/python benchmarks/table.py

# into site/; needs no network
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
