# SPDX-License-Identifier: Apache-2.0
# The fake CUDA driver (fake_gpu.h), a library that tests open by its path.

FAKE_CUDA_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/gpu/*.c)))
FAKE_CUDA := $(BUILD)/tests/gpu/libcuda.so.1
# The same without some symbols: as libraries were before CUDA 12.0, before 11.3, and with holes.
FAKE_CUDA_VARIANTS := $(patsubst %,$(BUILD)/tests/gpu/libcuda-%.so,one-finder no-finder holes)
$(BUILD)/tests/gpu/libcuda-one-finder.so: HIDDEN := cuGetProcAddress_v2
$(BUILD)/tests/gpu/libcuda-no-finder.so: HIDDEN := cuGetProcAddress_v2 cuGetProcAddress
$(BUILD)/tests/gpu/libcuda-holes.so: HIDDEN := cuGetProcAddress_v2 cuGetProcAddress cuMemHostRegister_v2 cuStreamGetCtx

FAKE_CUDA_HIDES = -Wl,--version-script=$@.map
$(FAKE_CUDA) $(FAKE_CUDA_VARIANTS): $(FAKE_CUDA_OBJECTS) $(call archive,common/base)
	$(call say,LD,$@)
	@printf '{ local: $(HIDDEN:%=%;) };\n' >$@.map
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,libcuda.so.1 $(if $(HIDDEN),$(FAKE_CUDA_HIDES)) -o $@ $^

# Tests of the driver's table, and programs with threads.
GPU_TESTS := $(call folder_programs,unit/gpu) $(BUILD)/tests/stress/gpu_streams
$(GPU_TESTS): $(call archive,common/gpu) $(FAKE_CUDA) $(FAKE_CUDA_VARIANTS)
# Ranks with a GPU open it by its path.
$(call folder_programs,unit/libclient): | $(FAKE_CUDA)
broken-programs: | $(FAKE_CUDA)
