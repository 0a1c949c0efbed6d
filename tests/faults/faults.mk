# SPDX-License-Identifier: Apache-2.0
# A disk that fails at every block in turn. Included by tests.mk.

FAULTS_BIN := $(BUILD)/tests/faults/check_faults
$(FAULTS_BIN): $(call objects,tests/faults) $(GUARD) $(HARNESS_A) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ljansson -lsqlite3 -lm

# The same from below the kernel: FUSE and loop devices.
KERNEL_FAULTS_BIN := $(BUILD)/tests/faults/kernel/check_kernel
$(KERNEL_FAULTS_BIN): $(call objects,tests/faults/kernel) $(BUILD)/tests/faults/job.o $(GUARD) $(HARNESS_A) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lfuse3 -ljansson -lm

.PHONY: check-faults
build-tests: $(FAULTS_BIN) $(KERNEL_FAULTS_BIN)

STRIDE ?= 1
check-faults: all $(FAULTS_BIN) $(KERNEL_FAULTS_BIN) ## every fault of a disk at every block of a small job [SEED=n STRIDE=n: only one block in n]
	@ZINF_BUILD=$(BUILD) $(FAULTS_BIN) --seed $(SEED) --stride $(STRIDE)
	@ZINF_BUILD=$(BUILD) $(KERNEL_FAULTS_BIN)
