# SPDX-License-Identifier: Apache-2.0
# Random collectives against a plain model of them. Included by tests.mk.

COLL_BIN := $(BUILD)/tests/coll/check_coll
$(COLL_BIN): $(call objects,tests/coll) $(GUARD) $(HARNESS_A) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ljansson -lm

.PHONY: check-coll
build-tests: $(COLL_BIN)

# Wrong on purpose: check_coll must say so, and make each as small as one call of one rank.
COLL_LIES := 1 2 3 4
ROUNDS ?= 200
check-coll: all $(COLL_BIN) ## random collectives of 1 to 9 ranks against a plain model [SEED=n ROUNDS=n]
	@ZINF_BUILD=$(BUILD) $(COLL_BIN) --over threads --simple --seed $(SEED) --rounds $(ROUNDS)
	@for lie in $(COLL_LIES); do \
		$(COLL_BIN) --simple --lie $$lie --seed $(SEED) --rounds 20 >$(COLL_BIN).log && \
		{ cat $(COLL_BIN).log; echo "failed: lie $$lie was not found"; exit 1; }; \
		grep -q '^  .* ranks=1 arena=[0-9]* call=[^ ]*$$' $(COLL_BIN).log || \
		{ cat $(COLL_BIN).log; echo "failed: lie $$lie was found, but not made small"; exit 1; }; \
	done; echo "check-coll: $(words $(COLL_LIES)) lies were found"
