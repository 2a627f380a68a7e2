# Everything a person runs. `make up` starts the product, `make check` is everything a reviewer needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
ARGS ?=
VENV := .venv
PY := $(VENV)/bin/python
NODE_BIN = $(abspath $(VENV)/node)
NPM = cd web && PATH="$(NODE_BIN):$$PATH" npm
BENCHES = $(patsubst bench/%.py,%,$(filter-out bench/_%,$(wildcard bench/*.py)))
WEB_SOURCES = $(shell find web -path web/node_modules -prune -o -type f -print 2>/dev/null)
PAGES = src/secondsight/api/static/index.html

.PHONY: help up check soak eval-ask eval-guard bench gpu-check format lint types imports tests web-check pages wheel lock clean

help:  ## list what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

up: $(VENV)/ready $(PAGES)  ## start the platform with this host and a small simulated fleet
	@exec $(VENV)/bin/secondsight up $(ARGS)

$(VENV)/ready: requirements.lock pyproject.toml tools/bootstrap.sh
	@bash tools/bootstrap.sh $(VENV)
	@touch $@

web/node_modules/.ready: web/package-lock.json | $(VENV)/ready
	@echo "pages: installing packages"
	@$(NPM) ci --no-audit --no-fund --loglevel=error
	@touch $@

$(PAGES): web/node_modules/.ready $(WEB_SOURCES)
	@echo "pages: building"
	@$(NPM) run --silent build
	@touch $@

pages: $(PAGES)  ## build the web pages

check: $(VENV)/ready $(PAGES)  ## format, lint, types, import rules, all tests; ends by naming what could not run
	@bash tools/check.sh

soak: $(VENV)/ready $(PAGES)  ## the long fuzz, chaos and load runs
	@SECONDSIGHT_SOAK=1 $(VENV)/bin/pytest tests -m soak --timeout 7200 -p no:cacheprovider

format: $(VENV)/ready  ## rewrite sources in the one format
	@$(VENV)/bin/ruff format --quiet src tests bench tools && $(VENV)/bin/ruff check --fix --quiet src tests bench tools
	@$(PY) tools/reference.py && $(PY) -m secondsight.catalog.reference >docs/reference/metrics.md
	@$(NPM) run --silent format

gpu-check: $(VENV)/ready  ## read this machine's GPUs as the agent does, show what they give and record it as a case
	@$(PY) -m secondsight.agent.nvml.check --out .build/gpu-check $(ARGS)

bench:  ## list the benchmarks; make bench-NAME runs one
	@for name in $(BENCHES); do printf '  make bench-%-14s %s\n' "$${name//_/-}" "$$(sed -n '1s/^"""//;1s/"""$$//;1p' bench/$$name.py)"; done

bench-%: $(VENV)/ready
	@$(PY) bench/$(subst -,_,$*).py

eval-guard: $(VENV)/ready  ## run the cases of the SQL guard against the oracle: rates by kind
	@PYTHONPATH=tests $(PY) tests/guard_eval.py $(ARGS)

eval-ask: $(VENV)/ready  ## try the kept questions in words on the planner: treatment and figures by category
	@PYTHONPATH=tests $(PY) tests/ask_eval.py $(ARGS)

wheel: $(VENV)/ready $(PAGES)  ## build a wheel that holds the pages
	@$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . && ls dist

lock: $(VENV)/ready  ## pin every dependency again, with hashes
	@bash tools/lock.sh

clean:  ## remove what was built
	@rm -rf $(VENV) web/node_modules src/secondsight/api/static dist build .build
