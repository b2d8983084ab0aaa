# Everything happens in .venv, which the first target that needs it creates. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CHECKS := build/sanitize

WEB := web/node_modules/.package-lock.json
NATIVE := $(wildcard native/*.cpp native/*.h)
KERNELS := $(wildcard src/slipstream/cuda/kernels/*)
NATIVE_ALL := $(NATIVE) $(wildcard native/tests/*.cpp native/tests/*.h native/tests/fuzz/*.cpp benchmarks/*.cpp)
STUB := src/slipstream/_native.pyi
STUBGEN := $(BIN)/python -m nanobind.stubgen -q -m slipstream._native

# Written when a step is done, so that a second call has nothing to do.
INSTALLED := $(VENV)/installed.stamp
BUILT := $(VENV)/built.stamp

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-gpu bench bench-gpu lint format stub build clean distclean
.PHONY: web check-web check-browser check-python check-native check-stub test-native test-python

help:  ## list the targets
	@awk -F ':.*##' '/^[a-z-]+:.*##/ { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(BUILT)  ## the whole story on pictures it makes itself
	$(BIN)/slipstream demo

test: lint test-native test-python  ## lint, types, C++ tests under sanitizers, pytest

test-long: lint test-native $(BUILT)  ## the same with the sweeps that take minutes
	$(BIN)/python -m pytest -m ""
	$(BIN)/python -m tests.doctor.score
	$(BIN)/python -m benchmarks.doctor

test-gpu: $(BUILT)  ## what needs a GPU; also under compute-sanitizer, if it is there
	$(BIN)/python -m pytest tests/gpu
	if command -v compute-sanitizer >/dev/null; then $(BIN)/python -m tests.gpu.sanitize; fi

bench-gpu: $(BUILT)  ## measure decoding and training on a GPU; PHOTOS=folder, SAVE=file
	$(BIN)/python -m benchmarks.gpu --photos "$(PHOTOS)" $(if $(SAVE),--save "$(SAVE)")

# Peers live in an environment of their own: nothing of theirs may reach ours.
bench: $(BUILT) build/peers/installed.stamp  ## measure the published ratios; PHOTOS=folder for your own
	@$(BIN)/cmake -G Ninja -S . -B build/bench -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
	  -DSLIPSTREAM_BENCHMARKS=ON >build/bench.log || { cat build/bench.log; exit 1; }
	@$(BIN)/cmake --build build/bench >>build/bench.log || { cat build/bench.log; exit 1; }
	$(BIN)/python -m benchmarks --peers build/peers/bin/python $(if $(PHOTOS),--photos "$(PHOTOS)") \
	  $(if $(SAVE),--save "$(SAVE)")

build/peers/installed.stamp: constraints.txt Makefile
	@mkdir -p build
	$(PYTHON) -m venv build/peers
	build/peers/bin/pip install --quiet --constraint constraints.txt torch
	build/peers/bin/pip install --quiet --constraint constraints.txt pillow numpy opencv-python-headless xxhash
	@touch $@

lint: check-python check-native check-stub check-web  ## ruff, mypy, clang-format, codespell, stale stub and page

format: $(INSTALLED)  ## rewrite Python and C++ in the project's style
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .
	$(if $(NATIVE_ALL),$(BIN)/clang-format -i $(NATIVE_ALL))

stub: $(BUILT)  ## write the type stub of the extension again
	$(STUBGEN) -o $(STUB)

web: $(WEB)  ## build the page of the report again; needs node
	cd web && npm run --silent build

build: $(BUILT)  ## virtual environment and extension, nothing else

clean:  ## remove what was built; .venv stays
	rm -rf build dist wheelhouse $(BUILT) src/slipstream/_native*.so
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## remove .venv too
	rm -rf $(VENV)

check-python: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

check-native: $(INSTALLED)
	$(if $(NATIVE_ALL),$(BIN)/clang-format --dry-run --Werror $(NATIVE_ALL))

check-stub: $(BUILT)
	@mkdir -p build
	@$(STUBGEN) -o build/_native.pyi
	@diff -u $(STUB) build/_native.pyi || { \
	  echo "$(STUB) does not describe the extension any more. Run: make stub" >&2; exit 1; }

# Without node a test still compares the hash of the sources that the page carries.
check-web: $(if $(shell command -v npm),$(WEB))
	$(if $(shell command -v npm),cd web && npm run --silent check)

$(WEB): web/package.json web/package-lock.json
	cd web && npm ci --silent --no-audit --no-fund
	@touch $@

check-browser:
	@sh packaging/check_browser.sh

test-native: $(BUILT)
	@mkdir -p build
	@$(BIN)/cmake -G Ninja -S . -B $(CHECKS) -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
	  -DSLIPSTREAM_SANITIZE=ON -DSLIPSTREAM_TESTS=ON -DSLIPSTREAM_DEVELOPER=ON >build/sanitize.log \
	  || { cat build/sanitize.log; exit 1; }
	$(BIN)/cmake --build $(CHECKS)
	$(BIN)/ctest --test-dir $(CHECKS) --output-on-failure --no-tests=error

test-python: $(BUILT) check-browser
	$(BIN)/python -m tests.two_at_a_time

# torch by itself first, so that no later requirement has a say in which build of it is taken.
$(INSTALLED): constraints.txt
	@PYTHON="$(PYTHON)" sh packaging/check_system.sh
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --constraint constraints.txt torch
	$(BIN)/python -m pip install --requirement constraints.txt
	@touch $@

# Python files are used where they lie; only the extension has to be built again.
$(BUILT): $(INSTALLED) pyproject.toml CMakeLists.txt $(NATIVE) $(KERNELS)
	@echo "Building the extension"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation \
	  --config-settings=cmake.define.SLIPSTREAM_DEVELOPER=ON --editable .
	@touch $@
