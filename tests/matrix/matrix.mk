# SPDX-License-Identifier: Apache-2.0
# Strategies against each other, the reference and PyTorch's DDP. Included by tests.mk.

MATRIX_BATCHES := $(BUILD)/tests/matrix/batches
$(MATRIX_BATCHES): $(BUILD)/tests/matrix/batches.o $(GPT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lm

# The example with gradients that are wrong: what the comparisons must find.
MATRIX_WRONG := $(BUILD)/tests/matrix/zinf-gpt-wrong
$(MATRIX_WRONG): $(GPT_PARTS) $(GPT_IMAGE) $(call objects,tests/matrix/wrong) $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,--wrap=zinf_reduce,--wrap=gpt_loss_backward -o $@ $^ $(LIBS_gpt)

.PHONY: check-matrix
build-tests: $(MATRIX_BATCHES) $(MATRIX_WRONG)

check-matrix: all $(MATRIX_BATCHES) $(MATRIX_WRONG) ## all strategies, tiers and numbers of ranks give the same bits, and the loss curve of torch's DDP [SEED=n FULL=1 PART=k/n]
	@ZINF_BUILD=$(BUILD) tests/matrix/check_matrix --seed $(SEED) $(if $(FULL),--full $(if $(PART),--part $(PART)))

.PHONY: check-gpu-matrix
check-gpu-matrix: all $(FAKE_CUDA) $(FAKE_CUBLAS) $(FAKE_GPT) ## all strategies, tiers, arenas and ranks on fake GPUs give the bits of the CPU [SEED=n; DRAWN=1: pairs; GPU_SECONDS=n; PART=k/n]
	@ZINF_BUILD=$(BUILD) tests/matrix/check_gpu_matrix --seed $(SEED) $(if $(GPU_SECONDS),--seconds $(GPU_SECONDS)) \
		$(if $(DRAWN),,--full $(if $(PART),--part $(PART)))

.PHONY: check-giga
check-giga: all ## 1 G parameters within 4 GiB, all of them on NVMe; needs root, 31 GiB of disk, some minutes
	@ZINF_BUILD=$(BUILD) tests/matrix/check_giga
