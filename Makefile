# Two commands need nothing before them on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run test test-slow test-system test-hostile test-cluster test-machine test-quiet lint types contracts unit benchmark gpu reliability diagnose-score \
	diagnose-texts mutants docs man images dist sbom audit clean

# A test that fails is run once more by itself: what fails there too is broken, and what passes is named
# as one that the load of the machine, or a race, had brought down.
alone = { [ $$? = 1 ] && echo "these failed; once more, alone:" && \
	  $(BIN)/pytest -m "$(1)" $(2) --last-failed --last-failed-no-failures none; }

# Files outside of tests/system that have tests with such a mark: to read all others takes each worker 10 s.
marked = $(filter-out tests/system/%,$(shell grep -rl --include='test_*.py' 'mark\.$(1)' tests))

# Which tests take longer than a second is said at the end of every run.
TIMES := --durations=0 --durations-min=1

run: $(VENV)/.run ## install, then check this machine
	$(BIN)/wirespeed check

test: lint types contracts unit ## lint, types, import contracts, quick tests without root or servers

test-slow: $(VENV)/.dev ## whole commands on several real ranks, and what waits for seconds
	@$(BIN)/pytest $(call marked,slow) -m "slow and not system and not hostile" -n 3 --dist loadscope $(TIMES) || $(call alone,slow)

test-system: test-slow test-hostile test-cluster test-machine test-quiet ## all that needs root, servers, a cluster

SYSTEM := test-cluster test-machine test-quiet test-hostile
$(SYSTEM): export PATH := $(CURDIR)/$(BIN):$(PATH):/usr/sbin

# Tests of a cluster wait most of the time: they may run beside the machine's. Each remembers its own failures.
# Those that cut or taint its nodes have the cluster for themselves.
test-cluster: OWN := -o cache_dir=.pytest_cache/cluster
test-cluster: $(VENV)/.system ## Kubernetes, on the cluster that KUBECONFIG names
	$(BIN)/pytest tests/system -m "cluster and not quiet" -n 2 --dist worksteal $(TIMES) $(OWN) || \
	  $(call alone,cluster and not quiet,$(OWN))
	$(BIN)/pytest tests/system -m "cluster and quiet" $(TIMES) $(OWN) || $(call alone,cluster and quiet,$(OWN))

test-machine: $(VENV)/.system ## network namespaces, ssh, MPI, Slurm, images, browser
	@$(BIN)/pytest tests/system $(call marked,system) -m "system and not (cluster or quiet or hostile)" -n 3 --dist worksteal $(TIMES) || $(call alone,system)

test-quiet: $(VENV)/.system ## what compares speeds: it has the machine for itself
	$(BIN)/pytest tests/lab tests/system -m "system and quiet and not cluster" $(TIMES) || $(call alone,system and quiet and not cluster)

test-hostile: $(VENV)/.system ## strangers, floods, forged messages, tampered stores, fuzzed files; how many of each
	@$(BIN)/pytest tests/system $(call marked,hostile) -m "hostile and not quiet" -n 4 --dist worksteal || $(call alone,hostile)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports

# Where no bytecode is written, each worker rewrites the assertions of all test files at each run.
unit test-slow $(SYSTEM): export PYTHONDONTWRITEBYTECODE :=
unit: $(VENV)/.dev
	$(BIN)/pytest -m "not system and not slow" --ignore tests/system -n 3 --dist loadscope $(TIMES) || \
	  $(call alone,not system and not slow)

benchmark: $(VENV)/.dev ## ratios to a peer; see docs/benchmarks.md
	$(BIN)/python benchmarks/run.py

# What is missing is said before anything is installed; a Python that has all it takes is taken as it is.
gpu: ## all that a GPU can show, in at most 9 minutes and one file: docs/gpu.md; without a GPU error 3
	@$(PYTHON) benchmarks/gpu.py --look
	@$(PYTHON) benchmarks/gpu.py --able 2>/dev/null || $(MAKE) --no-print-directory $(VENV)/.run
	@python=$(PYTHON); $$python benchmarks/gpu.py --able 2>/dev/null || python=$(BIN)/python; \
	  exec $$python benchmarks/gpu.py $(if $(PARTS),--only $(PARTS))

reliability: $(VENV)/.dev ## each fault made, and what was said of it: the tables of docs/reliability.md
	$(BIN)/python benchmarks/reliability.py

diagnose-score: $(VENV)/.run ## precision and recall of diagnose on labelled cases: CASES=folder
	$(BIN)/python benchmarks/diagnose_score.py "$(CASES)"

diagnose-texts: $(VENV)/.run ## share of the error texts of public sources that diagnose knows
	$(BIN)/python benchmarks/diagnose_texts.py

N ?= 200
SEED ?= 17
JOBS ?= 1
TREE ?= .
OUT ?= build/mutants.jsonl
mutants: $(VENV)/.dev ## share of N seeded faults in src that the tests notice; goes on where it was stopped
	nice -n 15 $(BIN)/python benchmarks/mutants.py --tree $(TREE) --count $(N) --seed $(SEED) --jobs $(JOBS) --out $(OUT)

# Not with --quiet: mkdocs counts no warnings then, and --strict lets them pass.
docs: $(VENV)/.docs ## the documentation site, into site/; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

man: $(VENV)/.dev ## man pages from the help of every command, into share/man
	$(BIN)/python -m wirespeed.cli.manual

images: ## both container images, by podman, docker or buildah: images/README.md
	images/build cpu
	images/build cuda

# The same sources give the same bytes, wherever and whenever they are built.
dist images: export SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800))
dist: $(VENV)/.dev ## wheel and sdist into dist/, reproducible, with their SHA-256
	rm -rf dist
	$(BIN)/python -m hatchling build
	cd dist && sha256sum wirespeed-* | tee SHA256SUMS

# The wheel with what it declares, and nothing else.
SHIPPED := build/shipped
sbom: $(VENV)/.audit dist ## CycloneDX of the wheel as it is installed: dist/wirespeed.cdx.json
	rm -rf $(SHIPPED)
	$(PYTHON) -m venv --without-pip $(SHIPPED)
	$(PIP) --python $(SHIPPED)/bin/python install -q -c constraints.txt dist/wirespeed-*.whl
	sed "s/^dynamic = .*/version = \"$$($(BIN)/python -m hatchling version)\"/" pyproject.toml >build/pyproject.toml
	$(BIN)/cyclonedx-py environment --pyproject build/pyproject.toml --output-reproducible --output-format JSON \
	  --output-file dist/wirespeed.cdx.json $(SHIPPED)/bin/python

# Without a report nobody was asked: that is no clean result.
audit: sbom ## known vulnerabilities of what the SBOM lists, where the service for them can be reached
	$(PIP) --python $(SHIPPED)/bin/python list --format freeze --exclude wirespeed >build/audited.txt
	$(BIN)/pip-audit --strict --no-deps --disable-pip -r build/audited.txt -f json -o dist/audit.json; code=$$?; \
	  [ -s dist/audit.json ] || { echo "NOT AUDITED: no answer about every package, so nothing is known of them" >&2; \
	  exit 3; }; exit $$code

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist site

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; name it with PYTHON=…")'
	$(PYTHON) -m venv $(VENV)

DATA := $(wildcard src/wirespeed/checks/*.yaml src/wirespeed/clusters/kube/*.yaml src/wirespeed/diagnose/rules/*.yaml)

$(VENV)/.run: pyproject.toml constraints.txt $(DATA) | $(BIN)/python
	$(PIP) install -q -c constraints.txt -e '.[torch,gpu,watch]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(DATA) | $(BIN)/python
	$(PIP) install -q -c constraints.txt -e '.[torch,gpu,dev]'
	touch $@ $(VENV)/.run

$(VENV)/.system: $(VENV)/.dev
	DS_BUILD_OPS=0 $(PIP) install -q -c constraints.txt -e '.[mpi,deepspeed,flows,fuzz]'
	touch $@

$(VENV)/.audit: $(VENV)/.dev
	$(PIP) install -q -c constraints.txt -e '.[audit]'
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -q -c constraints.txt -e '.[docs]'
	touch $@
