# The two commands of the README: `make up` and `make test`. Both build .venv when it is missing or stale.
PYTHON   ?= python3
VENV     ?= .venv
TOPOLOGY ?= deploy/topology.toml
TORCH    ?= 2.13.0
VLLM_VENV ?= .venv-vllm
CLIENTS_VENV ?= .venv-clients

# Kept byte code spares every process that tests start to compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

# Files with random runs, of which there are more at night.
SEEDED = $(shell grep -rlE --include=test_*.py "from (tests.seeds|hypothesis) import" tests | grep -v end_to_end/clusters/test_ray)

BIN   := $(VENV)/bin
PIP   = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE = $(BIN)/python -m compileall -qq -x '/(_inductor|ao|onnx|testing)/'
STAMP := $(VENV)/.installed

.PHONY: compiled docs docs-serve up down test nightly check lint types floors env clean chaos siege mutation figures vllm-env gpu-check clients
.DEFAULT_GOAL := help

help:
	@echo "make up      environment, model and mesh: serves $(TOPOLOGY) until Ctrl-C"
	@echo "make down    stop a mesh that was started with --detach"
	@echo "make test    environment and all tests"
	@echo "make check   lint, types, import floors and all tests: what CI runs"
	@echo "make docs    the documentation as a site, in build/site; docs-serve shows it while you write"
	@echo "make chaos   kills, stops, partitions and losses on real processes: a table of what came of the requests"
	@echo "make siege   attacks on a real mesh beside an honest client, by class: a table of what each did to it"
	@echo "make mutation  writes small defects into a copy of the tree, and counts how many of them the tests notice"
	@echo "make vllm-env  an environment with vLLM in $(VLLM_VENV), for engines with backend = \"vllm\" (3.5 GB)"
	@echo "make compiled  gateways, engines and simulations with less CPU: compiles their hot modules for these sources (minutes)"
	@echo "make clients  small programs with clients that others wrote, against a real mesh (an environment of 500 MB)"
	@echo "make gpu-check  all tests and benches that need an NVIDIA GPU, in one table (installs the extra gpu)"
	@echo "make nightly 10,000 simulations with faults, ten times the random runs of the tests, and the siege"
	@echo "make figures the plots of docs/results; with DATA=folder of traces, the papers' comparisons anew into build/figures"
	@echo "variables    TOPOLOGY=deploy/other.toml  PYTHON=python3.12  TORCH=2.13.0"

env: $(STAMP)

# The kernels are compiled on one core beside all else. uv unpacks packages in a third of pip's CPU time; where it cannot
# install, as pip's own settings are not its own, pip does. What is imported is compiled then, but for torch.
$(STAMP): pyproject.toml $(wildcard engines/torch_engine/csrc/*)
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; set PYTHON=/path/to/python (3.11 or newer)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than 3.11; set PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) uv || true
	@$(PIP) --no-deps --editable . & kernels=$$!; \
	  $(BIN)/python deploy/install_torch.py $(TORCH) --no-compile && \
	  { $(BIN)/uv pip install --quiet --python $(BIN)/python -r pyproject.toml --extra dev || { wait $$kernels; $(PIP) '.[dev]'; }; } && \
	  { $(COMPILE) $(VENV)/lib/python*/site-packages/torch || true; }; \
	  code=$$?; wait $$kernels && exit $$code
	@touch $@

up: $(STAMP)
	@$(BIN)/mesh up $(TOPOLOGY)

down: $(STAMP)
	@$(BIN)/mesh down $(TOPOLOGY)

test: $(STAMP)
	@$(BIN)/python -m pytest --forks 4

chaos: $(STAMP)
	@mkdir -p build
	$(BIN)/python -m tests.tools.harm chaos --json build/chaos.json

siege: $(STAMP)
	@mkdir -p build
	$(BIN)/python -m tests.tools.harm siege --json build/siege.json

mutation: $(STAMP)
	$(BIN)/python -m tests.tools.mutation --out build/mutation.json

vllm-env: $(STAMP)
	$(BIN)/python deploy/install_vllm.py $(VLLM_VENV)

compiled: $(STAMP)
	@$(BIN)/python -m simulation.compiled

clients: $(STAMP)  # in an environment of their own: some want other versions of one another's parts than the tests do
	test -x $(CLIENTS_VENV)/bin/python || $(PYTHON) -m venv $(CLIENTS_VENV)
	$(BIN)/uv pip install --quiet --python $(CLIENTS_VENV)/bin/python -r tests/clients/requirements.txt || \
	  $(CLIENTS_VENV)/bin/python -m pip install --quiet -r tests/clients/requirements.txt
	CLIENTS_VENV=$(abspath $(CLIENTS_VENV)) $(BIN)/python -m pytest tests/clients

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

floors: $(STAMP)
	$(BIN)/lint-imports

check: $(STAMP)  # types beside the tests, which wait for a part of their time
	@$(MAKE) --no-print-directory --jobs 2 lint floors types test

gpu-check: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,gpu]'
	$(BIN)/python -m bench.engine.gpu_check

nightly: $(STAMP)
	$(BIN)/python -m tests.tools.fault_runs --runs 10000
	SEEDS=10 $(BIN)/python -m pytest -n 4 --dist load --timeout 1200 $(SEEDED)
	SEEDS=10 $(BIN)/python -m pytest tests/end_to_end/nodes tests/end_to_end/clusters/test_ray.py tests/end_to_end/clusters/test_ray_autoscaling.py tests/docs/test_tutorials.py
	@$(MAKE) --no-print-directory siege

FIGURES := build/figures

figures: $(STAMP)  # those of docs/results; with DATA, the papers' comparisons anew, in a reduced size
	$(BIN)/python -m bench.figures
ifdef DATA
	@test -d "$(DATA)" || { echo "make: DATA is not a folder; give the one with the files that docs/results/index.md names"; exit 1; }
	@mkdir -p $(FIGURES)
	$(BIN)/python -m bench.papers.tropical --mooncake $(DATA)/conversation_trace.jsonl.gz \
	    --only colocated disaggregated tropical elastic --requests 100 --seeds 1 --out $(FIGURES)/tropical
	$(BIN)/python -m bench.papers.seallm --arrivals $(DATA)/azure2021_199.csv --rates 5 10 --seconds 40 --assignments 1 \
	    --history 100 --batches 2 --systems ours dedicated alpaserve muxserve --out $(FIGURES)/seallm
	$(BIN)/python -m bench.papers.scls --ask rates --rates 20 --seconds 30 --out $(FIGURES)/slices
	$(BIN)/python -m bench.papers.llumnix --coast --only S-L sharegpt --contenders infaas llumnix --requests 1000 \
	    --seeds 1 --out $(FIGURES)/llumnix
	$(BIN)/python -m bench.papers.aladdin --ask links engines --models llama2-13b --rates 10 --seeds 1 --thetas 0.9 \
	    --contenders default JSQ "packing, in slack" --out $(FIGURES)/aladdin
endif

docs: $(STAMP)  # warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

docs-serve: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
