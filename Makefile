# make demo · make test · make test-all · make lint · make docs · make sim · make bench · make e2e
# Needs Python >= 3.11, Java >= 17 and make; everything else goes into .venv, in locked versions.

PYTHON ?= python3
SEEDS ?= 2000
MINUTES ?= 10
SEED ?= 0
KILLS ?= 50
BASE ?=
# Many short processes are started: without the bytecode of an earlier one, each compiles hundreds of
# modules.
unexport PYTHONDONTWRITEBYTECODE
# The folders of tests that start no cluster and no Spark: a busy machine only makes them slower.
COMPUTING := tests/model tests/sim tests/unit
PARALLEL := -p no:randomly -n auto --dist loadgroup --no-loadscope-reorder
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help demo test test-all test-quick-computing test-slow-computing test-others extras lint crds vectors docs sim model chaos mutants fuzz bench bench-peers bench-compare bench-spark spark-kills images release e2e e2e-nodes e2e-killed e2e-nodes-killed e2e-shapes e2e-shapes-killed e2e-kind test-matrix lock clean

help:
	@echo "make demo    run a local cluster, a year of flights and a Spark job: about three minutes"
	@echo "make test    run the quick tests on all cores: about six minutes on two"
	@echo "make test-all   run every test that needs no Kubernetes"
	@echo "make test-quick-computing, test-slow-computing, test-others   the same in three parts"
	@echo "make extras  try each extra of the wheel in a fresh environment: about three minutes"
	@echo "make lint    check style, words, types and import contracts"
	@echo "make crds    generate the CRDs in crds/ from their models"
	@echo "make vectors  generate the test vectors in spec/vectors from the encoders"
	@echo "make docs    build the documentation site in site/"
	@echo "make sim     run SEEDS=$(SEEDS) simulated clusters"
	@echo "make model   check the model of the recovery rule in every state: minutes; see CONTRIBUTING.md"
	@echo "make chaos   run real processes under faults for MINUTES=$(MINUTES), and check what clients saw"
	@echo "make mutants   plant bugs into the product, each of which the simulator or a test must catch"
	@echo "make fuzz    fuzz frames, files and sessions for MINUTES=$(MINUTES)"
	@echo "make bench   measure throughput and latency of a local cluster"
	@echo "make bench-peers   measure Waltz, NATS, Kafka, etcd and PostgreSQL in turns, and write bench/RESULTS.md"
	@echo "make bench-compare   compare the speed of this tree and BASE, the last recorded commit"
	@echo "make bench-spark   measure how fast Spark reads a local cluster's log"
	@echo "make spark-kills   kill KILLS=$(KILLS) tasks, executors and drivers while Spark writes"
	@echo "make images  build the images of all processes with Docker, in build/images"
	@echo "make release  TAG=v0.1.0: build wheel, sdist, chart and images of one version"
	@echo "make test-matrix   run the unit tests on every installed Python from 3.11 to 3.14"
	@echo "make e2e     test the operator on the Kubernetes of the current context"
	@echo "make e2e-nodes   drain and stop nodes of a Kubernetes that has three; WALTZ_E2E_NODE stops one"
	@echo "make e2e-killed   the tests of a start and of changes, with operators that are killed after every step"
	@echo "make e2e-nodes-killed   the same for the tests of nodes"
	@echo "make e2e-shapes   pools and storages are added and removed, reverted half-way, and pods are killed meanwhile"
	@echo "make e2e-shapes-killed   the same with operators that are killed after every step"
	@echo "make e2e-kind   the same as make e2e on a new kind cluster"
	@echo "make lock    update the locked versions in requirements.lock"

.venv: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed, this is $$($(PYTHON) --version): set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	@# Programs compile what they import: compiling all modules now would take half of the time.
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch .venv

demo: .venv
	.venv/bin/python -m demo

# A group of tests shares a cluster or a Spark session, which one worker starts.
test: .venv
	.venv/bin/python -m pytest $(PARALLEL) -m "not slow"

test-all: .venv
	.venv/bin/python -m pytest $(PARALLEL)

# The same tests in three parts. The first two do not mind what else the machine does.
test-quick-computing: .venv
	.venv/bin/python -m pytest $(PARALLEL) -m "not slow" $(COMPUTING)

test-slow-computing: .venv
	.venv/bin/python -m pytest $(PARALLEL) -m "slow" $(COMPUTING)

test-others: .venv
	.venv/bin/python -m pytest $(PARALLEL) $(COMPUTING:%=--ignore=%)

extras: .venv
	.venv/bin/python -m release.extras

lint: .venv
	ruff check .
	ruff format --check .
	python -m tests.tidy
	mypy
	lint-imports

crds: .venv
	.venv/bin/python -m waltz_operator.shell.crds crds charts/waltz/files/crds

vectors: .venv
	.venv/bin/python -m tests.vectors.generate

docs: .venv
	.venv/bin/python -m docs.reference
	.venv/bin/python -m charts.generate
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict
	@echo "site/index.html; with search: python -m http.server --directory site"

sim: .venv
	.venv/bin/python -m tests.sim.runner --seeds $(SEEDS)

model: .venv
	.venv/bin/python -m tests.model

chaos: .venv
	.venv/bin/python -m tests.chaos --minutes $(MINUTES) --seed $(SEED)

mutants: .venv
	.venv/bin/python -m tests.mutants

fuzz: .venv
	.venv/bin/python -m tests.fuzz --minutes $(MINUTES)

bench: .venv
	.venv/bin/python -m bench

bench-peers: .venv
	.venv/bin/python -m bench.peers

bench-compare: .venv
	.venv/bin/python -m bench.compare $(BASE)

bench-spark: .venv
	.venv/bin/python -m bench.spark

spark-kills: .venv
	SPARK_KILLS=$(KILLS) .venv/bin/python -m pytest tests/spark/test_spark_kills.py --durations=2

images: .venv
	.venv/bin/python -m images

release: .venv
	.venv/bin/python -m release $(if $(TAG),--tag $(TAG))

test-matrix: .venv
	.venv/bin/nox --no-error-on-missing-interpreters

e2e: .venv
	.venv/bin/python -m e2e

e2e-nodes: .venv
	.venv/bin/python -m e2e nodes

e2e-killed: .venv
	.venv/bin/python -m e2e killed

e2e-nodes-killed: .venv
	.venv/bin/python -m e2e killed nodes

e2e-shapes: .venv
	.venv/bin/python -m e2e shapes

e2e-shapes-killed: .venv
	.venv/bin/python -m e2e killed shapes

e2e-kind: images
	e2e/kind

lock:
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-annotate --no-header \
		pyproject.toml --output-file requirements.lock

clean:
	rm -rf .venv demo-out site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
