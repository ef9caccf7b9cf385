# Chores. `make serve` and `make test` are all that a fresh machine with Python 3.11 or newer needs.
# pip takes its index, proxy and certificates from its own configuration (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, pip.conf …).

# Tried in this order; the first that is new enough makes the virtual environment.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --constraint constraints.txt --editable

.PHONY: help serve test browser mutants bench soak audit format clean

help: ## List the chores
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

serve: $(VENV)/serve.installed ## Serve on port 8000; settings as variables: make serve MODEL_ID=weights/other PORT=9000
	$(BIN)/bert-service serve

test: $(VENV)/dev.installed ## Lint, types, all tests, and the least coverage of each package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest --cov --cov-report=
	$(BIN)/coverage report --include='bert_core/*'
	$(BIN)/coverage report --include='service/*'

browser: $(VENV)/dev.installed ## Try the page in a headless Chromium or Chrome, which must be on the path
	$(BIN)/pytest -m browser

mutants: $(VENV)/dev.installed ## Break the code in many small ways; each must make a test fail
	$(BIN)/python -m tests.mutants

bench: $(VENV)/dev.installed ## Measure ours and its peers, in turns (Linux, wrk; about 25 minutes); a short form: make bench BENCH=quick
	$(BIN)/python -m tests.benchmarks $(if $(BENCH),--$(BENCH))

soak: $(VENV)/dev.installed ## Chaos, fuzzing and steady traffic in their long forms; about an hour, minutes each: make soak MINUTES=1
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz tokenizer --minutes $(or $(MINUTES),10)
	$(BIN)/python -m tests.fuzz checkpoint --minutes $(or $(MINUTES),10)
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),5)
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),30) --name soak

audit: $(BIN)/python ## Ask the Python packaging advisories about every pinned version, by pip-audit in an environment of its own
	$(BIN)/python -m venv $(VENV)/audit
	$(VENV)/audit/bin/pip install --quiet pip-audit
	$(VENV)/audit/bin/pip-audit --strict --progress-spinner off --requirement constraints.txt --no-deps --disable-pip

format: $(VENV)/dev.installed ## Format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the virtual environment and everything that was built
	rm -rf $(VENV) build dist *.egg-info .coverage htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f bert_core/*.so
	find bert_core service tests -name __pycache__ -prune -exec rm -rf {} +

# Editable, so that only a change of these files asks for another install.
INSTALLED_FROM := pyproject.toml constraints.txt $(wildcard bert_core/*.[ch])
# Without those of before: a build that fails leaves none.
$(VENV)/serve.installed: $(INSTALLED_FROM) | $(BIN)/python
	@rm -f bert_core/*.so
	$(INSTALL) .
	@touch $@

$(VENV)/dev.installed: $(INSTALLED_FROM) | $(BIN)/python
	@rm -f bert_core/*.so
	$(INSTALL) '.[dev]'
	@touch $(VENV)/serve.installed $@

$(BIN)/python:
	@for candidate in $(PYTHON); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Making $(VENV) with $$candidate"; \
	    "$$candidate" -m venv --clear $(VENV) && exit; \
	    rm -rf $(VENV); exit 1; \
	  fi; \
	done; \
	echo 'Python 3.11 or newer is needed. Tried: $(PYTHON). Name another with: make PYTHON=/path/to/python' >&2; exit 1
