# Two commands do everything: `make chat` talks to a model, `make test` proves the tree.
# Each sets up .venv, builds what changed and fetches what it needs.

.DEFAULT_GOAL := help
.PHONY: help chat test test-slow bench web wheel sbom audit clean

help:
	@echo "make chat       set up, fetch the demo model, chat (ARGS=\"--model smollm2\" for options)"
	@echo "make test       lint, types, import rules, native, unit, oracle and end-to-end tests"
	@echo "make test-slow  the tests that take minutes or need other programs"
	@echo "make bench      prefill and decode speed of a model (ARGS=\"--model smollm2\")"
	@echo "make web        build the dashboard"
	@echo "make wheel      build dist/colibri_cli-*.whl and the source archive"
	@echo "make sbom       list what an installation consists of, with licences"
	@echo "make audit      look for known weaknesses in it"
	@echo "make clean      remove .venv and everything that was built"

chat:
	@scripts/setup run
	@.venv/bin/coli chat $(ARGS)

test:
	@scripts/setup dev
	@scripts/test all

test-slow:
	@scripts/setup dev
	@scripts/test slow

bench:
	@scripts/setup run
	@scripts/bench $(ARGS)

web:
	@scripts/web build

wheel:
	@scripts/setup venv
	@scripts/web build || echo "coli: the wheel is built without the dashboard" >&2
	@scripts/dist

sbom:
	@scripts/setup run
	@scripts/dist sbom

audit:
	@scripts/setup run
	@scripts/audit

clean:
	rm -rf .venv build dist web/dist web/node_modules .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -f engine/colibri_engine/kernels/_kernels*.so
	find . -name __pycache__ -prune -exec rm -rf {} +
