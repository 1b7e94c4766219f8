# The commands people type; what they do is in CMakePresets.json and tools/.
PORT   ?= 8080
HOST   ?= 127.0.0.1
MODEL  ?=
PREFIX ?= /usr/local
SEEDS  ?= 1000
STEPS  ?= 10000
SECONDS ?= 600
MINUTES ?= 30
POINTS ?= 2000
SEED   ?= 1
PEER   ?=
BATCHED_BENCH ?=
LARGE  ?=
ROUNDS ?= 3
JOBS   ?= $(shell nproc)
FOLDERS ?=
CUDA   ?=
FLEET  ?=

RELEASE = build/release
SOURCES = $(shell git ls-files -co --exclude-standard 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'fuzz/*.cpp' 'microbench/*.cpp' 'microbench/*.h')

.PHONY: help build open-webui fleet fleet-batch fleet-dynamo fleet-index fleet-tests test serve console model install deb tarball image simulate pressure speculation figures overhead goldens kill faults storm soak forms form-cost hostile-forms overload fairness latecomer limits bench check fuzz fuzz-coverage format lint test-asan test-tsan clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

build: ## install what is missing and leave the release binary at build/skein (CUDA=1: with the GPU's part, CUDA=0: without; FLEET=1: with PostgreSQL as a store and gRPC)
	@tools/setup.sh build $(fleet)
	@$(cuda)cmake --preset release -DSKEIN_TESTS=OFF $(cuda_option) $(fleet_option) >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release --target skein -j $(JOBS)

test: ## install what is missing, build everything and run every test (CUDA=1: with the GPU's part where there is no GPU, too)
	@tools/setup.sh build test $(fleet)
	@tools/python_env.sh $(if $(fleet),&& tools/python_env.sh fleet)
	@$(cuda)cmake --preset release -DSKEIN_TESTS=ON -DSKEIN_MUTANTS=OFF $(if $(CUDA)$(gpu),$(cuda_option),-DSKEIN_CUDA=OFF) $(fleet_option) >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release -j $(JOBS)
	@tools/get_model.sh >/dev/null || echo "test: the tests that need the default model will be skipped, or fail with SKEIN_REQUIRE=all"
	@ctest --preset release -j $$(($(JOBS) + 1)) $(if $(LEAVE_OUT),-E '$(LEAVE_OUT)') # many tests wait for a server now and then

serve: build ## build, get the default model and serve it on 127.0.0.1:8080 (MODEL=, HOST=, PORT=)
	@model="$(MODEL)"; [ -n "$$model" ] || model=$$(tools/get_model.sh) || exit 1; \
	exec build/skein serve --model "$$model" --host $(HOST) --port $(PORT)

model: ## get the default model and print its path
	@tools/get_model.sh

install: build ## install binary, library, header, systemd unit, manual pages and completions under PREFIX (/usr/local)
	@cmake --build --preset release --target skein_shared -j $(JOBS)
	@cmake --install $(RELEASE) --prefix $(PREFIX)

deb: ## build/dist/skein_<version>_<architecture>.deb (CUDA=1: with the GPU's part, FLEET=1: with PostgreSQL as a store and gRPC)
	@tools/setup.sh build package $(fleet)
	@$(cuda)SKEIN_CUDA=$(if $(cuda),ON,OFF) SKEIN_FLEET=$(if $(fleet),ON,OFF) JOBS=$(JOBS) tools/package.sh deb

tarball: ## the same files as a tarball, with an SPDX list and SHA256SUMS of all that is in build/dist
	@tools/setup.sh build package $(fleet)
	@$(cuda)SKEIN_CUDA=$(if $(cuda),ON,OFF) SKEIN_FLEET=$(if $(fleet),ON,OFF) JOBS=$(JOBS) tools/package.sh tarball

image: ## build/dist/skein-<version>-oci.tar: an OCI archive, made without a daemon (root)
	@tools/setup.sh build package bare $(fleet)
	@$(cuda)SKEIN_CUDA=$(if $(cuda),ON,OFF) SKEIN_FLEET=$(if $(fleet),ON,OFF) JOBS=$(JOBS) tools/package.sh image

simulate: ## prove the control plane: SEEDS=1000 STEPS=10000; the last line is the figure
	@tools/setup.sh build test
	@cmake --preset release -DSKEIN_TESTS=ON >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release --target skein_simulate -j $(JOBS)
	@$(RELEASE)/tests/sim/skein_simulate --seeds $(SEEDS) --steps $(STEPS) --jobs $(JOBS)

pressure: ## 200 requests on 64 KV blocks in every setting, and 1,000 with forms, against the same run alone
	@tools/setup.sh build test
	@cmake --preset release -DSKEIN_TESTS=ON >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release --target skein_pressure -j $(JOBS)
	@tools/get_model.sh >/dev/null
	@$(RELEASE)/tests/engine/skein_pressure --gtest_brief=1

speculation: ## 10,000 requests with guessed tokens of every kind against the same without; the last line is the figure
	@tools/setup.sh build test
	@cmake --preset release -DSKEIN_TESTS=ON >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release --target skein_speculation -j $(JOBS)
	@tools/get_model.sh >/dev/null
	@$(RELEASE)/tests/engine/skein_speculation --gtest_brief=1

figures: build ## measure every figure of README and docs/PERFORMANCE.md anew (PEER=llama-server, BATCHED_BENCH=, LARGE=, ROUNDS=3)
	@tools/get_model.sh >/dev/null
	@tools/figures.py --rounds $(ROUNDS) $(if $(PEER),--peer $(PEER)) $(if $(BATCHED_BENCH),--batched-bench $(BATCHED_BENCH)) $(if $(LARGE),--large $(LARGE))

goldens: # the tiny models of the tests, unpacked
	@cmake -P cmake/goldens.cmake

console: build goldens ## every view of the console in a browser, and its pictures in docs/img with PICTURES=1
	@tools/setup.sh build test
	@tools/python_env.sh
	@tools/get_model.sh >/dev/null
	@SKEIN_TEST_BINARY=build/skein SKEIN_PICTURES=$(PICTURES) python3 -B tests/web/console_test.py

open-webui: build ## Open WebUI as it comes from PyPI, with the settings of docs/RECIPES.md, over its own HTTP and in a browser
	@tools/setup.sh build test
	@tools/python_env.sh open-webui && [ -x build/venv-open-webui/bin/open-webui ]
	@tools/get_model.sh >/dev/null
	@SKEIN_TEST_BINARY=build/skein python3 -B tests/docs/open_webui_test.py

kill: build goldens ## a batch of 500 lines on a server that is killed 20 times
	@python3 tests/server/batch/batch_kill_test.py build/skein --lines 500 --kills 20 --rounds 20

fleet: goldens ## PostgreSQL, three nodes and HAProxy on this machine, and what they do together; the last line is the figure
	@$(MAKE) --no-print-directory build FLEET=1
	@tests/fleet/with_postgres.sh python3 -B tests/fleet/fleet_test.py build/skein --chats 30 --lines 300

fleet-batch: goldens ## a batch of 2,000 lines on three nodes with a kill and a freeze, ROUNDS=3 times; the last line is the figure
	@$(MAKE) --no-print-directory build FLEET=1
	@tests/fleet/with_postgres.sh python3 -B tests/fleet/fleet_batch_test.py build/skein --lines 2000 --seeds $(ROUNDS)

fleet-tests: goldens ## everything that docs/FLEET.md promises, at full size (CASES="store away limits router clients traces deploy sim"); a figure a line
	@$(MAKE) --no-print-directory build FLEET=1
	@tools/setup.sh test fleet && tools/python_env.sh && tools/python_env.sh fleet && tools/python_env.sh router && tools/get_model.sh >/dev/null
	@tests/fleet/full.sh build/skein $(CASES)

fleet-index: build goldens ## NVIDIA Dynamo's index, unchanged, fed by a node's KV events: 1,000 answers against what the node finds; the last line is the figure
	@tools/setup.sh build test
	@tools/dynamo_env.sh
	@python3 -B tests/fleet/kv_index_test.py build/skein

fleet-dynamo: goldens ## three nodes behind NVIDIA Dynamo as it comes from PyPI: its router against round-robin, kills under streams, tenants, nginx before it; a figure a line
	@$(MAKE) --no-print-directory build FLEET=1
	@tools/setup.sh build test fleet
	@tools/dynamo_env.sh
	@tests/fleet/with_postgres.sh python3 -B tests/fleet/fleet_dynamo_test.py build/skein --full $(CASES)

faults: ## fail memory, disk, network and threads at POINTS=2000 calls of a real server; the last line is the figure
	@tools/setup.sh build test
	@cmake --preset release -DSKEIN_TESTS=ON >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release --target skein fault_shim -j $(JOBS)
	@python3 -B tests/faults/faults.py --binary build/skein --points $(POINTS) --seed $(SEED)

limits: build goldens ## probes and a drain under a flood of text work, memory within its budget
	@$(call serve_test,limits)

storm: build goldens ## crowds that leave, clients that do not read, a million pipelined requests, models that take turns, lost power
	@$(call serve_test,storm)
	@$(call serve_test,edge)
	@tools/setup.sh test
	@cmake --preset release -DSKEIN_TESTS=ON >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release --target server_endpoints_test store_child record_writes -j $(JOBS)
	@SKEIN_TEST_FULL=1 $(RELEASE)/tests/server/server_endpoints_test --gtest_filter='ModelSwaps.*'
	@SKEIN_TEST_FULL=1 python3 -B tests/server/store/power_loss_test.py $(RELEASE)/tests/server/store/store_child \
		$(RELEASE)/tests/server/store/librecord_writes.so

soak: build goldens ## MINUTES=30 at four fifths of the capacity: memory, files and errors; the last line is the figure
	@python3 -B tests/apps/soak.py --binary build/skein --minutes $(MINUTES)

forms: build goldens ## 1,000 real schemas of ../shared/vectors at temperature 1.2: every answer that ends must validate (needs python3-jsonschema)
	@$(call serve_test,forms,ValidTest)

form-cost: build ## 32 streams with 32 schemas beside 32 without, and the instructions of requests without a form; fails above 3 % and 0.1 %
	@tools/setup.sh build test
	@cmake --preset release -DSKEIN_TESTS=ON >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release --target skein_form_cost -j $(JOBS)
	@$(RELEASE)/microbench/skein_form_cost "$$(tools/get_model.sh)"
	@python3 -B tests/engine/form_instructions.py build/skein "$$(tools/get_model.sh)"

hostile-forms: build goldens ## eight clients that send hostile schemas: right codes, and what neighbours notice; the last line is the figure
	@tools/get_model.sh >/dev/null
	@$(call serve_test,hostile_forms)

overload: build goldens ## ten times the capacity for a minute
	@$(call serve_test,overload,OverloadTest)

fairness: build goldens ## LOW under a load of HIGH; interactive clients beside a batch of 1,000 lines, and beside one key that floods
	@$(call serve_test,overload,AgingTest BatchFairnessTest KeyFairnessTest)

latecomer: build goldens ## the first token of a 4-token request beside 64 streams of 512 tokens; the last line is the figure
	@$(call serve_test,overload,LatecomerTest)

overhead: ## tokens per second of 32 streams over HTTP beside the engine's own, and CPU per token
	@tools/setup.sh build test
	@cmake --preset release -DSKEIN_TESTS=ON >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release --target skein_overhead -j $(JOBS)
	@$(RELEASE)/microbench/skein_overhead "$$(tools/get_model.sh)"

bench: ## microbenchmarks of the control plane
	@tools/setup.sh build test
	@cmake --preset release -DSKEIN_TESTS=ON >$(call log,configure) || { cat $(call log,configure); exit 1; }
	@cmake --build --preset release --target skein_microbench -j $(JOBS)
	@$(RELEASE)/microbench/skein_microbench --benchmark_counters_tabular=true

check: ## format, layers, sizes, clang-tidy, sanitizers, libFuzzer, planted defects, faults, console, fleet and a bare Debian in a short form (PARTS="format tidy")
	@tools/setup.sh build test lint fuzz bare fleet
	@tools/get_model.sh >/dev/null
	@JOBS=$(JOBS) python3 -B tools/check.py $(PARTS)

fuzz: ## run every fuzz target for SECONDS=600 each
	@tools/setup.sh build fuzz fleet
	@cmake --preset fuzz -DSKEIN_FLEET=ON >/dev/null && cmake --build --preset fuzz -j $(JOBS)
	@tools/fuzz.sh build/fuzz $(SECONDS) $(JOBS)

fuzz-coverage: ## lines that the inputs of each fuzz target reach; the last line is the lowest figure
	@tools/setup.sh build test fuzz fleet
	@cmake --preset coverage -DSKEIN_FLEET=ON >/dev/null && cmake --build --preset coverage -j $(JOBS)
	@tools/fuzz_coverage.sh build/coverage

test-asan: ## the tests under AddressSanitizer and UBSan
	@tools/setup.sh build test fuzz
	@cmake --preset asan >/dev/null && cmake --build --preset asan -j $(JOBS) && ctest --preset asan -j $(JOBS)

test-tsan: ## the threaded tests under ThreadSanitizer
	@tools/setup.sh build test fuzz
	@cmake --preset tsan >/dev/null && cmake --build --preset tsan -j $(JOBS) && ctest --preset tsan -j $(JOBS)

format: ## format every source file
	@tools/setup.sh lint
	@clang-format -i $(SOURCES)

lint: ## formatting, layers, sizes, and clang-tidy with every check over the whole tree (FOLDERS="src/server src/engine": over these); fails on any finding
	@tools/setup.sh build test lint fleet
	@JOBS=$(JOBS) FOLDERS="$(FOLDERS)" python3 -B tools/check.py format layers sizes lint

clean: ## remove the build tree
	@rm -rf build

serve_test = tools/get_model.sh >/dev/null && \
	SKEIN_TEST_FULL=1 SKEIN_TEST_BINARY=build/skein python3 -B tests/apps/serve_$(1)_test.py $(2)
# The GPU's part is built where nvcc is, unless somebody insists: then nvcc is fetched.
# FLEET=1: with what servers that share a store need; 0: without it; else as the tree was configured last.
fleet = $(if $(filter-out 0,$(FLEET)),fleet)
fleet_option = $(if $(FLEET),-DSKEIN_FLEET=$(if $(fleet),ON,OFF))
cuda_option = -DSKEIN_CUDA=$(if $(CUDA),$(if $(filter 0,$(CUDA)),OFF,ON),AUTO)
# `make test` leaves the GPU's part out where none of its tests could run; `make check` compiles it.
gpu = $(wildcard /dev/nvidiactl)
cuda = $(if $(filter-out 0,$(CUDA)),nvcc=$$(tools/cuda_toolkit.sh) && export CUDACXX=$$nvcc && )
log = $(shell mkdir -p build && echo build/$(1).log)
