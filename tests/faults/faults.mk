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

# The driver of a GPU that fails at every call in turn: the fake one (tests/gpu/gpu.mk).
GPU_FAULTS_BIN := $(BUILD)/tests/faults/gpu/check_gpu_faults
$(GPU_FAULTS_BIN): $(call objects,tests/faults/gpu) $(BUILD)/tests/faults/job.o $(GUARD) $(HARNESS_A) $(LIBCLIENT_A) \
	| $(GPU) $(FAKE_CUDA) $(FAKE_CUBLAS) $(FAKE_GPT)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ljansson -lm

.PHONY: check-faults check-gpu-faults
build-tests: $(FAULTS_BIN) $(KERNEL_FAULTS_BIN) $(GPU_FAULTS_BIN)

STRIDE ?= 1
check-faults: all $(FAULTS_BIN) $(KERNEL_FAULTS_BIN) ## every fault of a disk at every block of a small job [SEED=n STRIDE=n: only one block in n]
	@ZINF_BUILD=$(BUILD) $(FAULTS_BIN) --seed $(SEED) --stride $(STRIDE)
	@ZINF_BUILD=$(BUILD) $(KERNEL_FAULTS_BIN)

check-gpu-faults: all $(GPU_FAULTS_BIN) ## every call of a GPU's driver fails, hangs, kills, in rank and worker [SEED=n GPU_SECONDS=n: drawn, for so long]
	@ZINF_BUILD=$(BUILD) $(GPU_FAULTS_BIN) --seed $(SEED) $(if $(GPU_SECONDS),--seconds $(GPU_SECONDS)) $(if $(ONLY),--only $(ONLY))
