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
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,libcuda.so.1 $(if $(HIDDEN),$(FAKE_CUDA_HIDES)) -o $@ $^ -lm

# A fake cuBLAS, which multiplies as zinf-gpt does on the CPU.
FAKE_CUBLAS := $(BUILD)/tests/gpu/libcublas.so.12
FAKE_CUBLAS_OBJECTS := $(BUILD)/tests/gpu/cublas/cublas.o \
	$(patsubst %,$(BUILD)/examples/gpt/%.o,product product_bf16_avx512 team)
$(FAKE_CUBLAS): $(FAKE_CUBLAS_OBJECTS)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,libcublas.so.12 -o $@ $^ -lopenblas -lm

# zinf-gpt with an image that the fake driver takes, whether there is an nvcc or not.
FAKE_GPT := $(BUILD)/tests/gpu/bin/zinf-gpt
$(FAKE_GPT): $(GPT_PARTS) $(BUILD)/tests/gpu/image/fake_image.o $(LIBCLIENT_A)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_gpt)
build-tests: $(FAKE_GPT)
$(call folder_programs,unit/gpt) $(SYSTEM_BIN) $(SYSTEM_FILE_BIN): | $(FAKE_CUDA) $(FAKE_CUBLAS) $(FAKE_GPT)

# Kernels as C++, their threads as threads of the CPU.
GPT_CU_ON_CPU := $(BUILD)/tests/gpu/threads/layers_cu.o
KERN_CU_ON_CPU := $(BUILD)/tests/gpu/threads/kernels_cu.o
$(GPT_CU_ON_CPU): $(GPT_CU)
$(KERN_CU_ON_CPU): $(KERN_CU)
$(GPT_CU_ON_CPU) $(KERN_CU_ON_CPU): Makefile tests/gpu/gpu.mk
	$(call say,CXX,$(filter %.cu,$^))
	@mkdir -p $(@D)
	$(Q)$(CACHE) $(CXX) $(CXXFLAGS_BASE) $(OPT_$(VARIANT)) -Wno-unknown-pragmas -fno-exceptions \
		-include tests/gpu/threads/fake_nvcc.h -MMD -MP -c -o $@ -x c++ $(firstword $(filter %.cu,$^))
$(patsubst %,$(BUILD)/tests/unit/gpt/%,run test_gpu_kernels): $(GPT_CU_ON_CPU) \
	$(patsubst %,$(BUILD)/tests/gpu/%.o,gpt_kernels threads/fake_threads)

# Tests of the kernels for state in GPU memory: as loops, thread by thread, and on the fake driver.
$(patsubst %,$(BUILD)/tests/kernels/%,run test_element test_cuda_threads test_cuda_launch): \
	$(patsubst %,$(BUILD)/tests/kernels/%.o,cuda_case cuda_case_tiles)
$(patsubst %,$(BUILD)/tests/kernels/%,run test_element): $(BUILD)/tests/gpu/state_kernels.o
$(patsubst %,$(BUILD)/tests/kernels/%,run test_cuda_threads): $(KERN_CU_ON_CPU) $(BUILD)/tests/gpu/threads/fake_threads.o
$(patsubst %,$(BUILD)/tests/kernels/%,run test_cuda_launch): $(KERN_IMAGE) | $(FAKE_CUDA)

# Tests of the driver's table, and programs with threads.
GPU_TESTS := $(call folder_programs,unit/gpu) $(BUILD)/tests/stress/gpu_streams
$(GPU_TESTS): $(call archive,common/gpu) $(FAKE_CUDA) $(FAKE_CUDA_VARIANTS)
# Ranks with a GPU open it by its path.
$(call folder_programs,unit/libclient): | $(FAKE_CUDA)
broken-programs: | $(FAKE_CUDA)
