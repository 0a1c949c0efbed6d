# SPDX-License-Identifier: Apache-2.0
# A folder of stripped programs that runs on any machine with a GPU (run-gpu, docs/GPU.md). Included by tests.mk.

TRIAL_CU := tests/gpu/device/kernels.cu
TRIAL_FATBIN := $(BUILD)/$(TRIAL_CU:.cu=.fatbin)
$(TRIAL_FATBIN): $(TRIAL_CU) Makefile tests/gpu/device/device.mk
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCC_FLAGS) $(NVCC_TARGETS) -fatbin -o $@ $<
TRIAL_IMAGE := $(BUILD)/tests/gpu/device/image$(if $(NVCC),,_stub).o
$(BUILD)/tests/gpu/device/image.o: CFLAGS += -DTRIAL_FATBIN='"$(TRIAL_FATBIN)"'
$(BUILD)/tests/gpu/device/image.o: $(TRIAL_FATBIN)
TRIAL_OBJECTS := $(filter-out %/image.o,$(call objects,tests/gpu/device)) $(TRIAL_IMAGE)

# Programs look for libraries beside them: DT_RPATH also holds for what those libraries need.
GPU_FOLDER := $(BUILD)/gpu-folder
GPU_FOLDER_LINK := -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib' -s
GPU_FOLDER_BIN := $(patsubst %,$(GPU_FOLDER)/bin/%,zinfd zctl zinf-gpu zinf-gpt gpu-trials $(if $(filter $(NET),$(PROGRAMS)),zinf-net))
GPU_FOLDER_SO := $(GPU_FOLDER)/lib/libzinf.so.0

$(GPU_FOLDER)/bin/zinfd: $(call objects,daemon) $(DAEMON_A)
$(GPU_FOLDER)/bin/zinfd: GPU_FOLDER_LIBS := $(LIBS_daemon)
$(GPU_FOLDER)/bin/zctl: $(call objects,zctl) $(BUILD)/nvme/smart.o $(BUILD)/nvme/smart_read.o $(LIBCLIENT_A)
$(GPU_FOLDER)/bin/zctl: GPU_FOLDER_LIBS := $(LIBS_zctl)
$(GPU_FOLDER)/bin/zinf-gpu: $(GPU_OBJECTS) $(call archive,common/gpu) $(call archive,common/base)
$(GPU_FOLDER)/bin/zinf-gpt: $(GPT_PARTS) $(GPT_IMAGE) $(LIBCLIENT_A)
$(GPU_FOLDER)/bin/zinf-gpt: GPU_FOLDER_LIBS := $(LIBS_gpt)
$(GPU_FOLDER)/bin/zinf-net: $(NET_OBJECTS) $(NET_A)
$(GPU_FOLDER)/bin/zinf-net: GPU_FOLDER_LIBS := $(LIBS_net)
$(GPU_FOLDER)/bin/zinf-net: GPU_FOLDER_CC := $(CXX)
$(GPU_FOLDER)/bin/gpu-trials: $(TRIAL_OBJECTS) $(HARNESS_A) $(BUILD)/bench_shared.a $(LIBCLIENT_A)
$(GPU_FOLDER)/bin/gpu-trials: GPU_FOLDER_LIBS := -ljansson -ldl -lm
$(GPU_FOLDER_BIN):
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(or $(GPU_FOLDER_CC),$(CC)) $(ALL_LDFLAGS) $(GPU_FOLDER_LINK) -o $@ $(filter %.o,$^) \
		-Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(GPU_FOLDER_LIBS)

$(GPU_FOLDER_SO): $(LIBZINF_SO)
	@mkdir -p $(@D)
	$(Q)strip --strip-unneeded -o $@ $<

# When it was filled.
GPU_FOLDER_OK := $(BUILD)/gpu-folder.ok
$(GPU_FOLDER_OK): $(GPU_FOLDER_BIN) $(GPU_FOLDER_SO) $(patsubst %,tests/gpu/device/%,run-gpu fill_folder device.mk) $(wildcard docs/*.md)
	$(call say,FILL,$(GPU_FOLDER))
	$(Q)install -m 755 tests/gpu/device/run-gpu $(GPU_FOLDER)/run-gpu
	$(Q)install -m 644 LICENSE $(GPU_FOLDER)/LICENSE
	$(Q)tests/gpu/device/fill_folder $(GPU_FOLDER)
	@touch $@

GPU_FOLDER_TAR := $(GPU_FOLDER).tar.xz
$(GPU_FOLDER_TAR): $(GPU_FOLDER_OK)
	$(Q)tar -C $(BUILD) --owner=0 --group=0 -c gpu-folder | xz -T0 -6 >$@

.PHONY: gpu-folder check-gpu bench-gpu check-gpu-folder
gpu-folder: $(GPU_FOLDER_TAR) ## a folder with all that runs on a GPU of another machine: run-gpu ask|check|bench
	@echo "$(GPU_FOLDER): $$(du -sm $(GPU_FOLDER) | cut -f1) MB; $(GPU_FOLDER_TAR): $$(du -m --apparent-size $(GPU_FOLDER_TAR) | cut -f1) MB"
	@$(if $(NVCC),:,echo "$(GPU_FOLDER): without nvcc there are no kernels: rows that need some are not run")

# Without a GPU there is nothing to fail: the run has said why.
GPU_ARGS ?=
gpu_run = code=0; $(GPU_FOLDER)/run-gpu $(1) $(GPU_ARGS) || code=$$?; [ $$code -eq 77 ] || exit $$code
check-gpu: $(GPU_FOLDER_OK) ## test zinf on the GPU of this machine, skipped without one [GPU_ARGS='--device UUID ...']
	@$(call gpu_run,check)
bench-gpu: $(GPU_FOLDER_OK) ## measure zinf on the GPU of this machine, skipped without one; build/bench/gpu.json [GPU_ARGS=...]
	@mkdir -p build/bench
	@$(call gpu_run,bench --output build/bench)

check-gpu-folder: $(GPU_FOLDER_OK) $(FAKE_CUDA) $(FAKE_CUBLAS) $(FAKE_GPT) ## the folder on the fake driver, and without a driver
	@tests/gpu/device/check_folder $(GPU_FOLDER) $(BUILD)/tests/gpu
