# SPDX-License-Identifier: Apache-2.0
# Real NVMe drives and NUMA nodes, emulated: a guest with a kernel of Debian's. Included by tests.mk.

VM_KERNEL := build/vm/kernel
DRIVE_PAGE_BIN := $(BUILD)/tests/vm/drive_page
$(DRIVE_PAGE_BIN): $(BUILD)/tests/vm/drive_page.o $(call archive,nvme) $(call archive,kernels) $(call archive,common/base)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -luring -lm

NUMA_RANK_BIN := $(BUILD)/tests/vm/numa_rank
$(NUMA_RANK_BIN): $(BUILD)/tests/vm/numa_rank.o $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lm

.PHONY: check-vm
build-tests: $(DRIVE_PAGE_BIN) $(NUMA_RANK_BIN)

# Not part of `make check`: a guest without KVM takes its time.
check-vm: ## zinfd on emulated NVMe drives in QEMU: wear, bits, bad sectors, a drive that disappears; NUMA nodes [VM_CASES=a,b VM_KEEP=DIR]
	@tools/deps build vm
	@$(MAKE) --no-print-directory -s -j2 all $(DRIVE_PAGE_BIN) $(NUMA_RANK_BIN)
	@ZINF_BUILD=$(BUILD) tests/vm/check_vm $(VM_KERNEL)
