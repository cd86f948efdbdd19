# Every target installs what it needs into .venv.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS_core := test
EXTRAS_lint := test,lint
EXTRAS_docs := docs,view
EXTRAS_test := test-extras
EXTRAS_all := dev
# with it, each of hundreds of test processes would compile the Python sources of PyTorch
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo quick test test-all test-faults docs bench

install: .venv/core

# uv is several times as fast as pip but ignores pip's settings: pip installs PyTorch, for which they may name a CPU build,
# and everything else where uv fails.
define install
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[$(1)]' || \
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[$(1)]'
	touch $@
endef

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 …")'
	$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt torch uv
	$(call install,$(EXTRAS_core))

.venv/lint .venv/docs .venv/test .venv/all: .venv/%: .venv/core
	$(call install,$(EXTRAS_$*))

# for the viewer's tests
.venv/chromium: .venv/all
	which chromium chromedriver || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; }
	touch $@

# for the test of examples/browser: onnxruntime for pages, from the npm registry
.venv/onnxruntime-web: .venv/all
	which npm || { apt-get update -qq && apt-get install -y -qq --no-install-recommends npm; }
	rm -rf $@ $@.tmp && mkdir $@.tmp
	cd $@.tmp && npm pack --silent onnxruntime-web@1.30.0
	cd $@.tmp && tar -xzf onnxruntime-web-*.tgz package/package.json package/dist/ort.wasm.min.mjs \
		package/dist/ort-wasm-simd-threaded.mjs package/dist/ort-wasm-simd-threaded.wasm
	mv $@.tmp/package $@ && rm -r $@.tmp

demo: .venv/core
	$(BIN)/python examples/demo.py

# style, types, import layers and unit tests: about a minute
quick: .venv/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -o addopts= -m "not slow and not thorough" tests/unit

# the default tests; the second command runs whole training runs, without run-time checks of shapes and types
test: .venv/test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not learning and not faults and not slow and not thorough and not browser'
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'slow and not learning and not faults and not thorough and not browser' -o addopts='-ra --strict-markers --strict-config'

test-faults: .venv/test
	$(BIN)/python -m pytest -o addopts= -s -m faults tests/faults

# all tests: types on Windows and macOS, shape checks everywhere but in long runs, a browser, faults, runs until a task is solved
test-all: .venv/lint .venv/chromium .venv/onnxruntime-web
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not thorough and not learning and not faults'
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'thorough and not learning and not faults' -o addopts='-ra --strict-markers --strict-config'
	$(MAKE) test-faults
	$(BIN)/python -m pytest -n 2 --dist worksteal -m learning -o addopts='-ra --strict-markers --strict-config'

bench: .venv/test
	$(BIN)/python benchmarks/table.py

# into site/; needs no network
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
