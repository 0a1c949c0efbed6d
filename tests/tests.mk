# SPDX-License-Identifier: Apache-2.0
# Tests. The tests/unit/<module>/test_<x>.c of a folder are one Criterion program, run suite by suite
# (tools/run_tests); so are tests/system/*.c, which drive a real zinfd. tests/stress/*.c are plain
# mains (a Criterion binary does not start under TSan).

TEST_UNIT := $(sort $(wildcard tests/unit/*/test_*.c tests/kernels/test_*.c))
TEST_SYSTEM := $(sort $(wildcard tests/system/test_*.c))
TEST_STRESS := $(sort $(wildcard tests/stress/*.c))
HARNESS_SRC := $(sort $(wildcard tests/harness/*.c))
FAKE_SRC := $(sort $(wildcard tests/fake/*.c))

HARNESS_A := $(BUILD)/tests_harness.a
FAKE_A := $(BUILD)/tests_fake.a
$(HARNESS_A): $(patsubst %.c,$(BUILD)/%.o,$(HARNESS_SRC))
	$(Q)rm -f $@; ar rcs $@ $^
$(FAKE_A): $(patsubst %.c,$(BUILD)/%.o,$(FAKE_SRC))
	$(Q)rm -f $@; ar rcs $@ $^

# Linked into every test program: what it leaves behind is removed, and told (tests/guard/guard.h);
# leaks are looked for in tests, not in what runs them.
GUARD := $(patsubst %,$(BUILD)/tests/guard/%.o,guard leaks limits criterion)

# A folder of tests is one program: build/<variant>/tests/unit/zero/run. Each of its files can also
# be made a program of its own, for whoever works on it: make build/release/tests/unit/zero/test_step.
test_bin = $(patsubst %.c,$(BUILD)/%,$(1))
UNIT_FOLDERS := $(patsubst %/,%,$(sort $(dir $(TEST_UNIT))))
UNIT_FILE_BIN := $(call test_bin,$(TEST_UNIT))
SYSTEM_FILE_BIN := $(call test_bin,$(TEST_SYSTEM))
# These double functions that the others of their folder take as they are.
UNIT_ALONE := $(patsubst %,$(BUILD)/tests/unit/worker/test_%,mail mail_foe blame gloo links talk talk_foe talk_link) \
	$(patsubst %,$(BUILD)/tests/unit/%,zero/test_flush nvme/test_faulty_rules tier/test_flush daemon/test_wear)
# Nodes without networks: the workers of all of them are doubles.
UNIT_NODES_RUN := $(BUILD)/tests/unit/zero/run_nodes
UNIT_NODES := $(filter $(patsubst %,$(BUILD)/tests/unit/zero/test_%,across% shards%),$(UNIT_FILE_BIN))
UNIT_RUN := $(patsubst %,$(BUILD)/%/run,$(UNIT_FOLDERS)) $(UNIT_NODES_RUN)
UNIT_BIN := $(UNIT_RUN) $(UNIT_ALONE)
SYSTEM_BIN := $(BUILD)/tests/system/run
STRESS_BIN := $(call test_bin,$(TEST_STRESS))
POWER_BIN := $(BUILD)/tests/power/power
# All programs of the folder $(1).
folder_programs = $(filter $(BUILD)/tests/$(1)/%,$(UNIT_RUN) $(UNIT_FILE_BIN))

# Half of a build is tests. Test files are not optimized, as they drive what is; what computes for them is.
ifneq (,$(filter release asan,$(VARIANT)))
$(BUILD)/tests/%.o: CFLAGS += -O0
$(patsubst %,$(BUILD)/tests/%/%.o,harness fake gpu kernels power fuzz stress coll): CFLAGS += -O1
endif
# Criterion's asserts, shorter (tests/harness/asserts.h).
$(patsubst %,$(BUILD)/tests/%/%.o,unit system kernels nodes): CFLAGS += -include tests/harness/asserts.h
# Criterion's macros declare what -Wmissing-prototypes and -Wshadow dislike.
$(BUILD)/tests/%.o: CFLAGS += $(DEBUG_TESTS) -Wno-missing-prototypes -Wno-conversion -Wno-shadow -Wno-undef

$(UNIT_NODES_RUN): $(addsuffix .o,$(UNIT_NODES))
define folder_run
$(BUILD)/$(1)/run: $(addsuffix .o,$(filter-out $(UNIT_ALONE) $(UNIT_NODES),$(filter $(BUILD)/$(1)/%,$(UNIT_FILE_BIN))))
endef
$(foreach folder,$(UNIT_FOLDERS),$(eval $(call folder_run,$(folder))))
$(UNIT_FILE_BIN): $(BUILD)/%: $(BUILD)/%.o
$(UNIT_RUN) $(UNIT_FILE_BIN): $(GUARD) $(FAKE_A) $(HARNESS_A) $(DAEMON_A) $(call archive,libclient)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcriterion $(LIBS_daemon)

# Tests of the example take all of it but main().
GPT_A := $(BUILD)/examples_gpt.a
GPT_BIN := $(call folder_programs,unit/gpt)
$(GPT_A): $(filter-out %/main.o,$(GPT_PARTS)) $(GPT_IMAGE)
	$(Q)rm -f $@; ar rcs $@ $^
$(GPT_BIN): $(GPT_A)
$(GPT_BIN): LIBS_daemon += -lopenblas

# zctl without its main().
ZCTL_PARTS_A := $(BUILD)/zctl_parts.a
$(ZCTL_PARTS_A): $(filter-out $(BUILD)/zctl/main.o,$(call objects,zctl))
	$(Q)rm -f $@; ar rcs $@ $^
$(call folder_programs,unit/zctl): $(ZCTL_PARTS_A)

# The daemon's own folder, without its main().
DAEMON_PARTS_A := $(BUILD)/daemon_parts.a
$(DAEMON_PARTS_A): $(filter-out $(BUILD)/daemon/main.o,$(call objects,daemon))
	$(Q)rm -f $@; ar rcs $@ $^
$(call folder_programs,unit/daemon): $(DAEMON_PARTS_A)

# What the benches share; of that a test replaces what it doubles.
$(call folder_programs,unit/bench): $(BUILD)/bench_shared.a

# The mail of zinf-net, over lanes that are doubles of Gloo's.
MAIL_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard daemon/worker/net/mail*.c)))
$(patsubst %,$(BUILD)/tests/unit/worker/%,test_mail test_mail_foe): $(MAIL_OBJECTS)

# Who is blamed, without what connects nodes.
$(BUILD)/tests/unit/worker/test_blame: $(patsubst %,$(BUILD)/daemon/worker/net/%.o,blame end)

# What talks of zinf-net, likewise.
TALK_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard daemon/worker/net/talk*.c)))
$(patsubst %,$(BUILD)/tests/unit/worker/%,test_talk test_talk_link test_talk_foe): $(TALK_OBJECTS)

# How nodes connect, before Gloo has the connections.
$(BUILD)/tests/unit/worker/test_links: $(BUILD)/daemon/worker/net/links.o

# Gloo itself; without it there is no zinf-net either, as is said then.
GLOO_BIN := $(BUILD)/tests/unit/worker/test_gloo
$(GLOO_BIN): $(GLOO_OBJECTS)
$(GLOO_BIN): LIBS_daemon += -lgloo -lstdc++
UNIT_BIN := $(if $(wildcard /usr/include/gloo/context.h),$(UNIT_BIN),$(filter-out $(GLOO_BIN),$(UNIT_BIN)))

# A zinfd with one function wrapped by a test's own, among the other programs.
# $(1): folder below $(BUILD); $(2): the function; $(3): objects with its wrapper.
define wrapped_zinfd
$$(BUILD)/$(1)/bin/zinfd: $$(call objects,daemon) $(3) $$(DAEMON_A)
	$$(call say,LD,$$@)
	@mkdir -p $$(@D)
	@ln -sf ../../bin/zctl ../../bin/zinf-net ../../bin/zinf-gpu $$(@D)
	@ln -sfn ../tests $$(BUILD)/$(1)/tests
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -Wl,--wrap=$(2) -o $$@ $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group $$(LIBS_daemon)
build-tests: $$(BUILD)/$(1)/bin/zinfd
endef

include tests/gpu/gpu.mk

# zinf-gpu itself, on the fake driver (tests/gpu/gpu.mk); and the part of it that calls the driver.
$(call folder_programs,unit/worker) $(call folder_programs,unit/daemon): | $(GPU) $(FAKE_CUDA)
$(patsubst %,$(BUILD)/tests/unit/worker/%,run test_gpu_chunks): $(BUILD)/daemon/worker/gpu/chunks.o
include tests/fuzz/fuzz.mk
include tests/nodes/nodes.mk

# SQLite and the NVMe archive: test_badstore spoils stores and catalogs by their formats.
LIBS_system := -ljansson -lsqlite3 -luring -lm
$(SYSTEM_BIN): $(addsuffix .o,$(SYSTEM_FILE_BIN))
$(SYSTEM_FILE_BIN): $(BUILD)/%: $(BUILD)/%.o
$(SYSTEM_BIN) $(SYSTEM_FILE_BIN): | $(GPU) $(FAKE_CUDA)
$(SYSTEM_BIN) $(SYSTEM_FILE_BIN): $(GUARD) $(HARNESS_A) $(call archive,nvme) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcriterion $(LIBS_system)

$(STRESS_BIN): $(BUILD)/%: $(BUILD)/%.o $(GUARD) $(DAEMON_A) $(call archive,libclient)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS_daemon)

$(POWER_BIN): $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/power/*.c))) $(GUARD) $(DAEMON_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS_daemon)

# The ring with its release taken away: what a sanitizer that is worth its time must report.
BROKEN_RING := $(BUILD)/tests/stress/ring_spsc_broken
$(BROKEN_RING).o: tests/stress/ring_spsc.c Makefile
	$(call say,CC,$< \(broken\))
	@mkdir -p $(@D)
	$(Q)$(CACHE) $(CC) $(ALL_CFLAGS) -DBROKEN_RING -MMD -MP -c -o $@ $<
$(BROKEN_RING): $(BROKEN_RING).o $(call archive,common/wire) $(call archive,common/base)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^
.PRECIOUS: $(BUILD)/%.o

# ---- targets ----------------------------------------------------------------------------------
.PHONY: check test coverage build-tests build-sanitizers build-stress check-tests stress-tsan check-unit check-system \
	check-ndebug check-element check-asan check-tsan check-valgrind check-bits check-power check-install check-systemd

build-tests: $(UNIT_BIN) $(SYSTEM_BIN) $(STRESS_BIN) $(FUZZ_BIN) $(POWER_BIN) $(NODES_BIN) ## build all test programs, run none

# What `make check` runs before the tests, one part more at a time than there are CPUs, as most parts wait now and then: the
# long ones first. Of each suite that draws its cases one seed and as many as take seconds; `make check-drawn` has more
# of them, .ci/run with a new seed each time.
CHECK_JOBS := $(shell echo $$(($$(nproc) + 1)))
CHECK_PARTS := model nodes faults gpu-faults gpu-matrix power python syntax tidy matrix install tools headers floors ptx coll \
	bench deaths bits crash crash-votes crash-nodes gpu-folder fuzz
part_syntax = WERROR=1 VARIANT=clang SYNTAX_MODULES='$(SYNTAX_PROGRAMS)' check-syntax
part_tidy = tidy
part_python = check-python T=
part_install = check-install
part_tools = check-tools
part_headers = check-headers
part_floors = check-floors
part_ptx = check-ptx
part_bits = check-bits CASES=8
part_gpu-folder = check-gpu-folder
part_matrix = check-matrix
part_model = check-model MODEL=brief
part_coll = check-coll ROUNDS=10
part_deaths = check-deaths DEATHS=5
part_nodes = check-nodes
part_bench = check-bench
part_fuzz = check-fuzz
part_power = check-power POWER_STATES=60 POWER_DAMAGES=60
part_crash = check-crash POINTS=10
part_crash-votes = check-crash-votes POINTS=5
part_crash-nodes = check-crash-nodes POINTS=2
part_faults = check-faults STRIDE=40
part_gpu-faults = check-gpu-faults GPU_SECONDS=10
part_gpu-matrix = check-gpu-matrix DRAWN=1 GPU_SECONDS=12
# Of check-drawn.
DRAWN_PARTS := bits matrix coll deaths power crash crash-votes crash-nodes faults gpu-faults gpu-matrix element
drawn_bits = check-bits CASES=24
drawn_matrix = check-matrix
drawn_coll = check-coll ROUNDS=20
drawn_deaths = check-deaths DEATHS=10
drawn_power = check-power
drawn_crash = check-crash POINTS=25
drawn_crash-votes = check-crash-votes POINTS=10
drawn_crash-nodes = check-crash-nodes POINTS=4
drawn_faults = check-faults STRIDE=20
drawn_gpu-faults = check-gpu-faults GPU_SECONDS=50
drawn_gpu-matrix = check-gpu-matrix DRAWN=1
drawn_element = check-element

.PHONY: check-drawn check-slow $(CHECK_PARTS:%=part-%) $(DRAWN_PARTS:%=drawn-%)
$(CHECK_PARTS:%=part-%): part-%:
	@$(MAKE) --no-print-directory -s $(part_$*)
$(DRAWN_PARTS:%=drawn-%): drawn-%:
	@$(MAKE) --no-print-directory -s $(drawn_$*)

check: ## install what is missing, build with warnings as errors, run the tests and checks of ten minutes
	@tools/deps build check
	@$(MAKE) --no-print-directory -s -j2 WERROR=1 all build-tests
	@$(MAKE) --no-print-directory -s -j$(CHECK_JOBS) -Orecurse $(CHECK_PARTS:%=part-%)
	@$(MAKE) --no-print-directory -s check-tests

check-drawn: all build-tests ## more random cases than `make check` runs [SEED=n]
	@echo "check-drawn: SEED=$(SEED)"
	@$(MAKE) --no-print-directory -s -j$(CHECK_JOBS) -Orecurse SEED=$(SEED) $(DRAWN_PARTS:%=drawn-%)

# The list is tests/slow; all models; of tests that draw (tests/harness/draw.h) all draws.
check-slow: all build-tests ## the tests that `make check` leaves out: tests/slow, and the long random suites
	@SLOW=only ZINF_BUILD=$(BUILD) tools/run_tests $(filter-out $(UNIT_NODES_RUN),$(UNIT_BIN)) $(SYSTEM_BIN) $(NODES_BIN)
	@$(MAKE) --no-print-directory -s check-model
	@SLOW=1 ZINF_TEST_DRAWS=all ZINF_BUILD=$(BUILD) tools/run_tests $(UNIT_NODES_RUN)

check-tests: all build-tests ## run the unit and system tests of $(VARIANT)
	@ZINF_BUILD=$(BUILD) tools/run_tests $(UNIT_BIN) $(SYSTEM_BIN)

# Each file a program of its own: one link of one object.
T ?=
test: all $(patsubst %.c,$(BUILD)/%,$(wildcard $(T))) ## run only the tests of these files [T='tests/unit/zero/test_step.c tests/system/test_far*.c']
	@ZINF_BUILD=$(BUILD) TEST_VERBOSE=1 tools/run_tests $(filter-out all,$^)

check-unit: $(UNIT_BIN) ## run only the unit tests
	@ZINF_BUILD=$(BUILD) tools/run_tests $(UNIT_BIN)

check-system: all $(SYSTEM_BIN) ## the tests that drive a real zinfd
	@ZINF_BUILD=$(BUILD) tools/run_tests $(SYSTEM_BIN)

SEED ?= 1
CASES ?= 24
check-bits: all ## bit equality of zinf and --reference over random models [SEED=n CASES=n]
	@ZINF_BUILD=$(BUILD) tests/bits/check_bits --seed $(SEED) --cases $(CASES)

# A suite of `make check`, with more draws.
ELEMENTS ?= 100000000
check-element: $(BUILD)/tests/kernels/run ## element functions that CPU and GPU share, over 10^8 drawn elements [SEED=n ELEMENTS=n]
	@echo "check-element: $(ELEMENTS) elements, SEED=$(SEED)"
	@ZINF_ELEMENTS=$(ELEMENTS) ZINF_SEED=$(SEED) TEST_TIMEOUT=1200 ZINF_BUILD=$(BUILD) tools/run_tests $<@element

# States are drawn; with POWER_STATES=0 they are all corners of all moments instead. That the test
# can fail is shown by disks that lie, each of which must be caught: among the corners, of which no
# chance keeps away the few that show it.
POWER_STATES ?= 200
POWER_LIES := drops-store-flush flushes-store-late drops-log-flush drops-names-flush
POWER_DAMAGES ?= 200
# In memory where there is some: no disk is asked for anything here.
check-power: export TMPDIR := $(shell test -w /dev/shm && echo /dev/shm || echo /var/tmp)
check-power: $(POWER_BIN) ## power cuts at any moment, damaged disks [SEED=n POWER_STATES=n POWER_DAMAGES=n]
	@for durability in power process mixed; do \
		$(POWER_BIN) --seed $(SEED) --states $(POWER_STATES) --durability $$durability || exit 1; \
	done
	@$(POWER_BIN) --seed $(SEED) --states $(POWER_STATES) --durability power --votes 1
	@$(POWER_BIN) --seed $(SEED) --states $(POWER_STATES) --durability mixed --votes 1
	@$(POWER_BIN) --seed $(SEED) --damages $(POWER_DAMAGES)
	@for lie in $(POWER_LIES); do \
		$(POWER_BIN) --seed $(SEED) --states 0 --lie $$lie || exit 1; \
	done

check-ndebug: ## no assert has a side effect: unit and system tests at -O3 -DNDEBUG
	@$(MAKE) --no-print-directory -s -j2 VARIANT=ndebug check-tests

# Of programs that are killed nothing is counted. COVER=check-unit: of a part.
COVER ?= check-tests check-coll check-fuzz
coverage: ## lines that tests run, by folder [COVER='check-unit ...']
	@$(MAKE) --no-print-directory -s -j2 VARIANT=cov all build-tests
	@find build/cov -name '*.gcda' -delete
	@$(MAKE) --no-print-directory -s VARIANT=cov $(COVER)
	@tools/coverage build/cov

# Criterion reports a leak-only test as passed unless the process aborts.
# hwloc's PCI plugin, where it is installed, loses what libpciaccess allocated and is unloaded before
# the leaks are counted, so that no suppression could name it.
ASAN_ENV := ASAN_OPTIONS=abort_on_error=1:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
	HWLOC_PLUGINS_BLACKLIST=hwloc_pci.so
# What runs beside each other, as most of it keeps one CPU busy: the longest first.
ASAN_PARTS := power deaths coll fuzz
asan_power = check-power POWER_STATES=60 POWER_DAMAGES=60
asan_deaths = check-deaths DEATHS=10
asan_coll = check-coll ROUNDS=40
asan_fuzz = check-fuzz
.PHONY: $(ASAN_PARTS:%=asan-%)
$(ASAN_PARTS:%=asan-%): asan-%:
	@$(MAKE) --no-print-directory -s $(asan_$*)

# .ci/run starts it beside tests that mostly wait.
build-sanitizers: ## build what check-asan and check-tsan run
	@$(MAKE) --no-print-directory -s -j2 VARIANT=asan all build-tests
	@$(MAKE) --no-print-directory -s -j2 WERROR=1 VARIANT=tsan build-stress

build-stress: $(STRESS_BIN) $(BROKEN_RING)

check-asan: ## unit and system tests under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory -s -j2 VARIANT=asan all build-tests
	@$(ASAN_ENV) $(MAKE) --no-print-directory -s -j$(CHECK_JOBS) -Orecurse VARIANT=asan $(ASAN_PARTS:%=asan-%)
	@$(ASAN_ENV) $(MAKE) --no-print-directory -s VARIANT=asan check-tests

check-tsan: ## the stress programs under ThreadSanitizer, and broken ones that it must catch
	@$(MAKE) --no-print-directory -s -j2 WERROR=1 VARIANT=tsan stress-tsan
	@$(MAKE) --no-print-directory -s -j2 WERROR=1 VARIANT=tsan stress-coll-tsan
	@$(MAKE) --no-print-directory -s -j2 WERROR=1 VARIANT=tsan stress-net-tsan
	@$(MAKE) --no-print-directory -s VARIANT=tsan check-broken

# Of VARIANT=tsan. Each program ends by itself with 0; a report ends it with 66.
TSAN_ENV := TSAN_OPTIONS=halt_on_error=1:exitcode=66
STRESS_TIMEOUT := timeout -k 10 600
stress-tsan: $(STRESS_BIN) $(BROKEN_RING)
	@for program in $(STRESS_BIN); do \
		echo "== $$program"; \
		$(TSAN_ENV) $(STRESS_TIMEOUT) $$program || { echo "failed: $$program"; exit 1; }; \
	done
	@echo "== $(BROKEN_RING) (must be reported)"; code=0; \
		$(TSAN_ENV) $(STRESS_TIMEOUT) $(BROKEN_RING) >$(BROKEN_RING).log 2>&1 || code=$$?; \
		[ $$code -eq 66 ] && grep -q 'data race' $(BROKEN_RING).log || \
		{ cat $(BROKEN_RING).log; echo "failed: the broken ring ended with $$code, not 66"; exit 1; }
	@echo "$(words $(STRESS_BIN)) stress programs passed, the broken ring was caught"

check-valgrind: all ## daemon start, work, stop under valgrind: no leak, no error
	@ZINF_BUILD=$(BUILD) tests/system/valgrind.sh

check-install: all ## make install into an empty DESTDIR, then build a program with pkg-config
	@tests/system/install.sh

check-systemd: all ## the installed service under a real systemd (root, debootstrap, systemd-nspawn)
	@tests/system/systemd.sh

include tests/model/model.mk
include tests/coll/coll.mk
include tests/tsan/net.mk
include tests/broken/broken.mk
include tests/matrix/matrix.mk
include tests/crash/crash.mk
include tests/far/far.mk
include tests/faults/faults.mk
include tests/vm/vm.mk
include tests/gpu/device/device.mk
