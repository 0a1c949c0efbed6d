# SPDX-License-Identifier: Apache-2.0
# Random collectives against a plain model of them. Included by tests.mk.

COLL_BIN := $(BUILD)/tests/coll/check_coll
$(COLL_BIN): $(call objects,tests/coll) $(GUARD) $(HARNESS_A) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ljansson -lm

DEATHS_BIN := $(BUILD)/tests/coll/deaths/check_deaths
HOSTILE_BIN := $(BUILD)/tests/coll/hostile/check_hostile $(BUILD)/tests/coll/hostile/check_hostile_nodes
$(HOSTILE_BIN): $(BUILD)/tests/coll/hostile/scribble.o
$(DEATHS_BIN) $(HOSTILE_BIN): %: %.o $(filter-out %/check_coll.o,$(call objects,tests/coll)) $(GUARD) $(HARNESS_A) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ljansson -lm

# Sums along another tree: what the comparison must find.
WRONG_COLL := $(BUILD)/tests/coll/check_coll_wrong
$(WRONG_COLL): $(call objects,tests/coll) $(call objects,tests/coll/wrong) $(GUARD) $(HARNESS_A) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,--wrap=kern_combine -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ljansson -lm

# The engine with all its releases taken away: what ThreadSanitizer must report.
BROKEN_COLL := $(BUILD)/tests/coll/check_coll_broken
BROKEN_COLL_OBJECTS := $(patsubst %.c,$(BUILD)/tests/coll/broken/%.o,$(wildcard libclient/coll/node/*.c) common/wire/meet.c)
$(BROKEN_COLL_OBJECTS): $(BUILD)/tests/coll/broken/%.o: %.c Makefile
	$(call say,CC,$< \(broken\))
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -U__ATOMIC_RELEASE -D__ATOMIC_RELEASE=__ATOMIC_RELAXED \
		-Wno-builtin-macro-redefined -MMD -MP -c -o $@ $<
# Before the archive, whose files of the same names are then not wanted.
$(BROKEN_COLL): $(call objects,tests/coll) $(BROKEN_COLL_OBJECTS) $(GUARD) $(HARNESS_A) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ljansson -lm

.PHONY: check-coll check-deaths stress-coll-tsan
build-tests: $(COLL_BIN) $(WRONG_COLL) $(DEATHS_BIN) $(HOSTILE_BIN)

# Of VARIANT=tsan: ranks are threads.
stress-coll-tsan: $(COLL_BIN) $(BROKEN_COLL)
	@for way in '' --verdicts --absences; do \
		echo "== $(COLL_BIN) $$way"; \
		$(TSAN_ENV) $(STRESS_TIMEOUT) $(COLL_BIN) --seed $(SEED) --rounds 10 $$way || exit 1; \
	done
	@echo "== $(BROKEN_COLL) (must be reported)"; \
		$(TSAN_ENV) $(STRESS_TIMEOUT) $(BROKEN_COLL) --seed $(SEED) --rounds 10 >$(BROKEN_COLL).log 2>&1; \
		grep -q 'data race' $(BROKEN_COLL).log || \
		{ cat $(BROKEN_COLL).log; echo "failed: the broken collectives were not reported"; exit 1; }

# Wrong on purpose: check_coll must say so, and make each as small as one call of one rank, or of
# two, where it takes somebody else (a send, the root of a scatter).
COLL_LIES := 1 2 3 4
ROUNDS ?= 200
check-coll: all $(COLL_BIN) $(WRONG_COLL) ## random collectives of 1 to 9 ranks against a plain model [SEED=n ROUNDS=n]
	@ZINF_BUILD=$(BUILD) $(COLL_BIN) --over threads --seed $(SEED) --rounds $(ROUNDS)
	@ZINF_BUILD=$(BUILD) $(COLL_BIN) --over zinfd --seed $(SEED) --rounds $(ROUNDS)
	@if [ -e $(NET) ]; then \
		ZINF_BUILD=$(BUILD) $(COLL_BIN) --over nodes --seed $(SEED) --rounds $(ROUNDS); \
	else echo "check-coll: over nodes: skipped, zinf-net is not built"; fi
	@for past in 0x80000000 0x100000000; do for over in threads zinfd; do \
		ZINF_BUILD=$(BUILD) $(COLL_BIN) --over $$over --seed $(SEED) --rounds $$(($(ROUNDS) / 2)) --past $$past || exit 1; \
	done; done
	@for lie in $(COLL_LIES); do \
		$(COLL_BIN) --lie $$lie --seed $(SEED) --rounds 20 >$(COLL_BIN).log && \
		{ cat $(COLL_BIN).log; echo "failed: lie $$lie was not found"; exit 1; }; \
		grep -q '^  .* ranks=[12] arena=[0-9]* call=[^ ]*$$' $(COLL_BIN).log || \
		{ cat $(COLL_BIN).log; echo "failed: lie $$lie was found, but not made small"; exit 1; }; \
	done; \
	$(WRONG_COLL) --seed $(SEED) --rounds 40 >$(COLL_BIN).log && \
	{ cat $(COLL_BIN).log; echo "failed: another tree was not found"; exit 1; }; \
	grep -q '^  .* ranks=[3-9] arena=[0-9]* \(group=[^ ]* \)*call=[^ ]*$$' $(COLL_BIN).log || \
	{ cat $(COLL_BIN).log; echo "failed: another tree was found, but not made small"; exit 1; }; \
	echo "check-coll: $(words $(COLL_LIES)) lies and another tree were found"

DEATHS ?= 40
check-deaths: all $(DEATHS_BIN) ## kill ranks inside collectives, or let them overwrite shared memory [SEED=n DEATHS=n]
	@ZINF_BUILD=$(BUILD) $(DEATHS_BIN) --seed $(SEED) --rounds $(DEATHS)
	@ZINF_BUILD=$(BUILD) $(firstword $(HOSTILE_BIN)) --seed $(SEED) --rounds $(DEATHS)
	@if [ -e $(NET) ]; then \
		ZINF_BUILD=$(BUILD) $(lastword $(HOSTILE_BIN)) --seed $(SEED) --rounds $(DEATHS); \
	else echo "check-hostile: over nodes: skipped, zinf-net is not built"; fi
