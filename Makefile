# A machine that forbids bytecode files makes every process start twice as slow.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AS_ROOT := $(shell test `id -u` = 0 || echo sudo)
INSTALLED := $(VENV)/.installed

.PHONY: docs test-tutorial test-external demo test check lock chaos bench bench-quick clean

demo: $(INSTALLED)
	$(BIN)/scraper demo

test: $(INSTALLED)
	$(BIN)/pytest -q -n 3 -m "not chaos and not tutorial and not external" --dist worksteal

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The tutorial and the README, followed to the letter.
test-tutorial: $(INSTALLED)
	$(BIN)/pytest -q -m tutorial tests/docs

# What needs more than Python and make; the packages are Debian's.
test-external: $(INSTALLED)
	for tool in tmux wget git chromium npm; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	  test -z "$$missing" || { $(AS_ROOT) apt-get update --quiet && $(AS_ROOT) apt-get install --yes --quiet $$missing; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-browser.lock
	$(BIN)/pytest -q -n 2 --dist loadfile -m external tests/external

chaos: $(INSTALLED)
	$(BIN)/pytest -q -m chaos --timeout 3600 -s

# Ours and the peers in turns; the peers are installed below .bench/ (benchmarks/README.md).
bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

bench-quick: $(INSTALLED)
	$(BIN)/python -m benchmarks --quick

# Everything is installed from the lock, with hashes, into a virtual environment of the checkout.
$(INSTALLED): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(INSTALLED)

# The one page that is made from the code; a test says when it is out of date.
docs: $(INSTALLED)
	$(BIN)/python -m cli.reference > docs/reference/commands.md

lock: $(INSTALLED)
	$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --extra postgres --universal --generate-hashes --no-header -o requirements.lock
	echo "playwright>=1.49" | $(BIN)/uv pip compile --quiet - -c requirements.lock --universal --generate-hashes --no-header -o requirements-browser.lock

clean:
	rm -rf $(VENV) state dist build
