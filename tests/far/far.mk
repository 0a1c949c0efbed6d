# SPDX-License-Identifier: Apache-2.0
# Training over nodes under blows, and starts that are refused. Included by tests.mk.

FAR_BIN := $(BUILD)/tests/far/check_crash_nodes
$(FAR_BIN): $(call objects,tests/far) $(BUILD)/tests/crash/kind.o $(GUARD) $(HARNESS_A) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ljansson -lm

.PHONY: check-crash-nodes
build-tests: $(FAR_BIN)

check-crash-nodes: all $(FAR_BIN) ## kill and stop ranks, workers, daemons and nodes of one job [SEED=n POINTS=n, POINT=i alone]
	@ZINF_BUILD=$(BUILD) $(FAR_BIN) --seed $(SEED) --points $(POINTS) $(if $(POINT),--point $(POINT))
