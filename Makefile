# Everything is installed into .venv, by every target as much as it needs.
PYTHON ?= python3
BIN := .venv/bin
NEEDS_core := dev
NEEDS_docs := docs,view
NEEDS_test := test
NEEDS_browser := test,browser

.PHONY: install demo quick test test-all test-faults docs bench

install: .venv/core

# pip installs PyTorch, as its settings may name a place that has a CPU build. uv, several times as fast, the rest;
# where uv cannot (it ignores the settings of pip), pip does that, too.
define install
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[$(1)]' || \
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[$(1)]'
	touch $@
endef

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt torch uv
	$(call install,$(NEEDS_core))

.venv/docs .venv/test .venv/browser: .venv/%: .venv/core
	$(call install,$(NEEDS_$*))

# Debian's browser for the tests of the viewer
.venv/chromium: .venv/browser
	which chromium chromedriver || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; }
	touch $@

demo: .venv/core
	$(BIN)/python examples/demo.py

# under a minute: style, types, layers, and the parts one by one
quick: .venv/core
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 -q tests/unit

# everything that needs no browser, no cluster of machines and no patience; whole runs without checks of shapes and types
test: .venv/test
	$(BIN)/python -m pytest -n 2 -m 'not learning and not faults and not slow and not thorough and not browser'
	$(BIN)/python -m pytest -n 2 -m 'slow and not learning and not faults and not thorough and not browser' -o addopts='-ra --strict-markers --strict-config'

test-faults: .venv/test
	$(BIN)/python -m pytest -o addopts= -s -m faults tests/faults

# whole runs with checks of shapes and types, the browser, faults, and runs until a task is solved
test-all: .venv/chromium
	$(BIN)/python -m pytest -n 2 -m 'not learning and not faults'
	$(MAKE) test-faults
	$(BIN)/python -m pytest -n 0 -m learning

bench: .venv/test
	$(BIN)/python benchmarks/table.py

# into site/; needs no network
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
