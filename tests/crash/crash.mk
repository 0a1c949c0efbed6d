# SPDX-License-Identifier: Apache-2.0
# Points at which processes die: linked into the test program itself, and preloaded into the daemon.
# Included by tests.mk.

CRASH_BIN := $(BUILD)/tests/crash/check_crash
CRASH_SO := $(BUILD)/tests/crash/points.so
$(CRASH_SO): $(BUILD)/tests/crash/points.o
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -o $@ $<
$(CRASH_BIN): $(call objects,tests/crash) $(GUARD) $(HARNESS_A) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ljansson -lm

.PHONY: check-crash
build-tests: $(CRASH_BIN) $(CRASH_SO)

POINTS ?= 300
check-crash: all $(CRASH_BIN) $(CRASH_SO) ## kill -9 of ranks and daemon at random points [SEED=n POINTS=n, POINT=i: only that one]
	@ZINF_BUILD=$(BUILD) $(CRASH_BIN) --seed $(SEED) --points $(POINTS) $(if $(POINT),--point $(POINT))

# A zinfd whose jobs commit as those of several nodes do, among the other programs.
VOTES := $(BUILD)/votes
$(eval $(call wrapped_zinfd,votes,job_new,$(BUILD)/tests/crash/votes/wrap.o $(BUILD)/tests/power/votes.o))

.PHONY: check-crash-votes
check-crash-votes: all $(CRASH_BIN) $(CRASH_SO) $(VOTES)/bin/zinfd ## the same with jobs that keep the previous commit [SEED=n POINTS=n, POINT=i: only that one]
	@ZINF_BUILD=$(VOTES) $(CRASH_BIN) --seed $(SEED) --points $(POINTS) $(if $(POINT),--point $(POINT))
