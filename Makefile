# Two commands for everybody: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON := .venv/bin/python
RAWDUCK := .venv/bin/rawduck
SOURCES := $(shell find src ceph cmake python scripts -type f -not -name '*.pyc' 2>/dev/null) CMakeLists.txt pyproject.toml
INSTALLED := build/wheel/.installed

# make demo TARGET=/dev/nvme1n1 STOCK_DIR=/mnt/nvme1 ARGS='--force --keep'
TARGET ?=
STOCK_DIR ?=
SCALE ?= 1
# make bench BENCH=tpch TARGET=/dev/nvme1n1 STOCK_DIR=/mnt/nvme1 ARGS='--scale 10 --out results'
BENCH ?= scan
# make test-duckdb DUCKDB_SOURCE=../duckdb
DUCKDB_SOURCE ?=
DUCKDB_TESTS ?= attach copy_database index/art/storage outofcore storage
ARGS ?=
ARCHITECTURE ?= x86_64
RELEASE ?= 1.5.6
SEED ?= 1
CUTS ?= 20000
HISTORIES ?= 40
COMPARISONS ?= 100000
KILLS ?= 200

# DuckDB's builds of extensions lay their tools and DuckDB's source beside these files, and call targets of the tools:
# `make release`, `make test_release`. What both have is ours.
EXTENSION_TOOLS := extension-ci-tools/makefiles/duckdb_extension.Makefile
ifneq ($(wildcard $(EXTENSION_TOOLS)),)
PROJ_DIR := $(CURDIR)/
EXT_NAME := rawduck
EXT_CONFIG := $(CURDIR)/extension_config.cmake
include $(EXTENSION_TOOLS)
endif

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: demo
demo: build ## TPC-H on a volume against stock DuckDB; TARGET=/dev/... for a device, SCALE=1, ARGS=--keep
	@$(RAWDUCK) demo --scale $(SCALE) $(if $(TARGET),--target $(TARGET)) $(if $(STOCK_DIR),--stock-dir $(STOCK_DIR)) $(ARGS)

.PHONY: bench
bench: build ## Benchmarks against stock DuckDB; BENCH=scan (or all), TARGET=/dev/..., STOCK_DIR=, ARGS=--quick
	@$(RAWDUCK) bench $(BENCH) $(if $(TARGET),--target $(TARGET)) $(if $(STOCK_DIR),--stock-dir $(STOCK_DIR)) $(ARGS)

.PHONY: build
build: $(INSTALLED) ## Install what is missing, build the extension, install the package into .venv

$(INSTALLED): $(SOURCES) requirements.txt requirements-gpu.txt
	@scripts/bootstrap.sh build
	@scripts/build.sh
	@touch $@

.PHONY: test
test: build ## Style, unit tests under sanitizers, a minute of fuzzing, SQL tests, kills and power cuts, emulated NVMe, Ceph
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py usual

.PHONY: test-all
test-all: build ## The same with its long tests, unit tests without sanitizers, types of one name, every combination on emulated NVMe
	@scripts/bootstrap.sh test
	@NVME_EVERYTHING=1 $(PYTHON) scripts/run_tests.py all unit odr

.PHONY: test-style
test-style: ## Layers, file lengths, formatting, linters
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py style

.PHONY: test-unit
test-unit: ## Unit tests of the core
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py unit

.PHONY: test-sanitize
test-sanitize: ## Unit tests under ASan+UBSan and under TSan
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py asan tsan

.PHONY: test-aarch64
test-aarch64: ## Unit tests of a build for aarch64 and its wheel, under QEMU's emulation of programs (takes long)
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py aarch64

.PHONY: test-odr
test-odr: build ## Links everything with -flto: no two types of one name (-Wodr)
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py odr

.PHONY: fuzz
fuzz: ## Mount mutated images; FUZZ_SECONDS=60
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py fuzz

.PHONY: test-sql
test-sql: build ## SQL tests through the stock wheel; ARGS='-k wal'
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py sql -- $(ARGS)

.PHONY: test-processes
test-processes: build ## Two processes and one target, as a table; kills with writes in flight; ARGS='-k format'
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py processes -- $(ARGS)

.PHONY: test-bench
test-bench: build ## The benchmarks, with next to no data
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py bench

.PHONY: test-crash
test-crash: build ## Power cuts of DuckDB on a simulated device; SEED=1 CUTS=20000
	@scripts/bootstrap.sh test
	@$(PYTHON) test/crash/run.py --seed $(SEED) --cuts $(CUTS)

.PHONY: test-full
test-full: build ## Full volumes, killed and emptied again, in random histories; SEED=1 HISTORIES=40, ARGS='--only 7 --verbose'
	@scripts/bootstrap.sh test
	@$(PYTHON) test/crash/full/full_volumes.py --seed $(SEED) --histories $(HISTORIES) $(ARGS)

.PHONY: gpu-check
gpu-check: build ## Everything that only a GPU can show, and the bars, in ten minutes; ARGS='--scale 10', or --rehearse
	@scripts/bootstrap.sh test
	@$(PYTHON) test/gpu_check/run.py $(ARGS)

.PHONY: test-mutation
test-mutation: build ## Breaks one rule of the volume at a time: do the power cuts notice?
	@scripts/bootstrap.sh test
	@$(PYTHON) test/mutation/mutation_check.py $(ARGS)

.PHONY: test-nvme
test-nvme: build ## Engines and SQL on emulated NVMe devices in a QEMU guest; installs QEMU where it is missing
	@scripts/bootstrap.sh test
	@NVME_EVERYTHING=1 $(PYTHON) scripts/run_tests.py nvme

.PHONY: test-vfio
test-vfio: build ## Of the same only the driver in the process
	@scripts/bootstrap.sh test
	@NVME_EVERYTHING=1 test/nvme/run.sh vfio

.PHONY: test-vfio-kills
test-vfio-kills: build ## Writers through the driver in the process that are killed with commands in flight; KILLS=200
	@scripts/bootstrap.sh test
	@NVME_KILLS=$(KILLS) NVME_GUEST_SECONDS=3600 test/nvme/run.sh kills

.PHONY: bench-instructions
bench-instructions: build ## Instructions per command, by engine, in a guest whose clock counts them
	@scripts/bootstrap.sh test
	@test/nvme/run.sh instructions

.PHONY: test-ceph
test-ceph: build ## rados:// on a real Ceph cluster; installs Ceph's packages where they are missing; ARGS='-k copy'
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py ceph -- $(ARGS)

.PHONY: test-differential
test-differential: build ## Pushed queries against read ones, on a Ceph cluster of its own; SEED=1 COMPARISONS=100000
	@scripts/bootstrap.sh test
	@scripts/bootstrap_ceph.sh
	@$(PYTHON) test/ceph/differential/run.py --seed $(SEED) --comparisons $(COMPARISONS) $(ARGS)

.PHONY: test-duckdb
test-duckdb: build ## DuckDB's own storage tests, on files and on a volume; DUCKDB_SOURCE=<source tree>, ARGS=--slow
	@test -d "$(DUCKDB_SOURCE)/test/sql/storage" || { echo "say DUCKDB_SOURCE=<a source tree of DuckDB>" >&2; exit 2; }
	@$(PYTHON) test/sqllogic/runner --source $(DUCKDB_SOURCE) $(ARGS) $(addprefix $(DUCKDB_SOURCE)/test/sql/,$(DUCKDB_TESTS))

.PHONY: test-libraries
test-libraries: wheel ## The wheel with pandas, Polars, PyArrow, Ibis, SQLAlchemy, notebooks and dbt, in an environment of their own
	@scripts/test_libraries.sh $(ARGS)

.PHONY: test-fresh
test-fresh: ## Both commands of the README in a new Debian 12, as root; ARGS='make demo' for others, FRESH_ROOT=DIR keeps it
	@scripts/fresh_root.sh $(if $(ARGS),"$$ARGS")

.PHONY: wheel
wheel: ## The wheel for package indexes, for every CPython from 3.11 on, in dist/; ARCHITECTURE=aarch64
	@scripts/bootstrap.sh build
	@scripts/build_wheel.sh $(ARCHITECTURE)

.PHONY: test-wheel
test-wheel: wheel ## Installs the wheel into empty environments, without compilers: queries, recipes, demo, libraries
	@scripts/bootstrap.sh test
	@$(PYTHON) -m pytest test/wheel $(ARGS)
	@scripts/test_libraries.sh

.PHONY: refused
refused: ## Lines of the extension that another DuckDB's headers refuse; RELEASE=1.5.6
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/count_refused.py $(RELEASE)

.PHONY: static
static: build ## The self-contained extension, by DuckDB's own build; tested in JDBC, C++, Rust and Python (takes long)
	@scripts/bootstrap.sh test
	@scripts/build_static.sh

.PHONY: reference
reference: build ## Write docs/REFERENCE.md from what the extension registers
	@$(PYTHON) scripts/make_reference.py

.PHONY: format
format: ## Format C++ and Python
	@scripts/bootstrap.sh build
	@find src ceph test bench -name '*.[ch]pp' -print0 | xargs -0r .venv/bin/clang-format -i
	@.venv/bin/ruff format --quiet .
	@.venv/bin/ruff check --quiet --fix .

.PHONY: lint
lint: test-style ## The same as test-style

.PHONY: clean
clean: ## Remove builds, and keep DuckDB's source, the static build and .venv
	@rm -rf build/wheel build/core build/host build/asan build/tsan build/odr build/aarch64 build/fuzz build/demo build/bench build/reports
