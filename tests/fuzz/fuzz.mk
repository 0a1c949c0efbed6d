# SPDX-License-Identifier: Apache-2.0
# Fuzzing. Each tests/fuzz/fuzz_NAME.c is a target over what tests/fuzz/ shares. `make fuzz` links
# them with libFuzzer (VARIANT=fuzz: clang, ASan, UBSan); every other variant links them with
# replay.c, and `make check` repeats the inputs that are kept.

FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_TARGETS := $(patsubst tests/fuzz/fuzz_%.c,%,$(FUZZ_SRC))
FUZZ_BIN := $(patsubst %.c,$(BUILD)/%,$(FUZZ_SRC))
FUZZ_PARTS_A := $(BUILD)/tests_fuzz.a
FUZZ_MAIN_fuzz := -fsanitize=fuzzer
FUZZ_MAIN := $(if $(filter fuzz,$(VARIANT)),,$(BUILD)/tests/fuzz/replay.o)

$(FUZZ_PARTS_A): $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(FUZZ_SRC) tests/fuzz/replay.c,$(wildcard tests/fuzz/*.c)))
	$(Q)rm -f $@; ar rcs $@ $^

# The client's target is its own daemon: it stands where libclient connects.
$(BUILD)/tests/fuzz/fuzz_client: LDFLAGS += -Wl,--wrap=zi_control_connect

# The house commits, reads, writes and flushes in the loop's thread, and knows what a turn finds.
HOUSE_BIN := $(patsubst %,$(BUILD)/tests/fuzz/fuzz_%,rings socket tensors load)
HOUSE_DOUBLES := catalog_submit nvme_engine_submit nvme_engine_cancel tier_flusher_new tier_flusher_free \
	tier_flusher_ask zi_loop_post zi_message_send epoll_wait fallocate
$(HOUSE_BIN): LDFLAGS += $(HOUSE_DOUBLES:%=-Wl,--wrap=%)

# What zctl reads is zctl's.
$(BUILD)/tests/fuzz/fuzz_model: $(ZCTL_PARTS_A)

# zinf-net's, of which it doubles the lanes.
$(BUILD)/tests/fuzz/fuzz_talk: $(filter %/talk_link.o %/talk_pull.o,$(TALK_OBJECTS))
net_object = $(BUILD)/daemon/worker/net/$(1).o
$(BUILD)/tests/fuzz/fuzz_mail: $(MAIL_OBJECTS)
$(BUILD)/tests/fuzz/fuzz_mail: LDFLAGS += -Wl,--wrap=zi_thread_start
$(BUILD)/tests/fuzz/fuzz_calls: $(patsubst %.c,$(BUILD)/%.o,$(wildcard daemon/worker/net/follow*.c)) \
	$(call net_object,check)
$(BUILD)/tests/fuzz/fuzz_links: $(call net_object,links)
$(BUILD)/tests/fuzz/fuzz_orders: $(foreach part,worker_requests worker_ops way rights check,$(call net_object,$(part)))

# The chunk ring beside its model.
$(BUILD)/tests/fuzz/fuzz_gpu_ring: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/harness/ring_model*.c))

# zinf-gpu's, of which it doubles the driver.
$(BUILD)/tests/fuzz/fuzz_gpu_orders: $(patsubst %,$(BUILD)/daemon/worker/gpu/%.o,orders chunks)

# zinf-net is the target's.
$(BUILD)/tests/fuzz/fuzz_answers: LDFLAGS += -Wl,--wrap=spawn_worker,--wrap=spawn_reap

$(FUZZ_BIN): $(BUILD)/%: $(BUILD)/%.o $(FUZZ_MAIN) $(FUZZ_PARTS_A) $(DAEMON_PARTS_A) $(DAEMON_A) $(call archive,libclient)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $(FUZZ_MAIN_$(VARIANT)) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS_daemon)

# What makes the kept inputs of a target that only a sound file leads to.
FUZZ_SEEDS_BIN := $(BUILD)/tests/fuzz/seeds/catalog_file
$(FUZZ_SEEDS_BIN): $(BUILD)/%: $(BUILD)/%.o $(FUZZ_PARTS_A) $(DAEMON_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS_daemon)
build-tests: $(FUZZ_SEEDS_BIN)

.PHONY: fuzz fuzz-run fuzz-repeat fuzz-minimize fuzz-seeds fuzz-pack check-fuzz build-fuzz
FUZZ_SECONDS ?= 60
FUZZ_TARGET ?=
FUZZ_LOOSE = $(patsubst tests/fuzz/corpus/%/,%,$(wildcard tests/fuzz/corpus/*/))
build-fuzz: $(FUZZ_BIN)

fuzz: ## fuzz every surface, ASan and UBSan on [FUZZ_SECONDS=n for each, FUZZ_TARGET=name]
	@tools/deps build check
	@$(MAKE) --no-print-directory -s -j2 VARIANT=fuzz build-fuzz
	@tests/fuzz/run.sh build/fuzz $(FUZZ_SECONDS) $(if $(FUZZ_TARGET),$(FUZZ_TARGET),$(FUZZ_TARGETS))

fuzz-repeat: ## run one input again: TARGET=name FILE=path
	@$(MAKE) --no-print-directory -s -j2 VARIANT=fuzz build-fuzz
	@tests/fuzz/run.sh build/fuzz repeat $(TARGET) $(FILE)

fuzz-minimize: ## remove corpus inputs that reach no code of their own
	@$(MAKE) --no-print-directory -s -j2 VARIANT=fuzz build-fuzz
	@tests/fuzz/run.sh build/fuzz minimize $(if $(FUZZ_TARGET),$(FUZZ_TARGET),$(FUZZ_TARGETS))

fuzz-seeds: $(FUZZ_SEEDS_BIN) ## make the corpus of the catalog file again, after a change of its tables
	@tests/fuzz/run.sh $(BUILD) unpack catalog_file
	@$(FUZZ_SEEDS_BIN) $(BUILD)/kept/catalog_file
	@tests/fuzz/run.sh $(BUILD) pack catalog_file

fuzz-pack: ## put the inputs of the folders tests/fuzz/corpus/TARGET/ into the archives TARGET.tar
	@tests/fuzz/run.sh $(BUILD) unpack $(FUZZ_LOOSE)
	@tests/fuzz/run.sh $(BUILD) pack $(FUZZ_LOOSE)

check-fuzz: $(FUZZ_BIN) $(FUZZ_SEEDS_BIN) ## run every input of the corpora
	@tests/fuzz/run.sh $(BUILD) unpack catalog_file
	@$(FUZZ_SEEDS_BIN) --check $(BUILD)/kept/catalog_file
	@printf '%s\n' $(FUZZ_TARGETS) | xargs -n 1 -P 2 tests/fuzz/run.sh $(BUILD) replay
	@echo "check-fuzz: the kept inputs of $(words $(FUZZ_TARGETS)) targets were repeated"
