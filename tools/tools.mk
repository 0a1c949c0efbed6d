# SPDX-License-Identifier: Apache-2.0
# Checks of the tree itself: floors, headers, style. Included by the Makefile.

.PHONY: check-floors check-headers check-syntax check-links check-ptx tidy format check-tools

check-floors: ## each file includes only what tools/floors allows
	$(Q)tools/check_floors

# What has passed is checked again when an input of it changes; stamps lie in build/.
HEADERS_OK := $(BUILD)/headers.ok
check-headers: $(HEADERS_OK) ## each header compiles alone
$(HEADERS_OK): $(shell find . \( -name build -o -name .git \) -prune -o -name '*.h' -print) tools/check_headers tools/tidy.allow Makefile
	$(Q)tools/check_headers $(CC) $(CFLAGS_BASE)
	@mkdir -p $(@D); touch $@

# The warnings of another compiler. It makes no code: nothing would run it. The modules are left out in `make check`:
# the same compiler builds them for check-tsan, with warnings as errors.
SYNTAX_PROGRAMS := daemon zctl examples/gpt examples/allreduce
SYNTAX_MODULES ?= $(MODULES) $(SYNTAX_PROGRAMS)
SYNTAX_SOURCES := $(foreach module,$(SYNTAX_MODULES),$(call sources,$(module))) \
	$(wildcard daemon/worker/net/*.c)
SYNTAX_OK := $(sort $(patsubst %.c,$(BUILD)/%.ok,$(SYNTAX_SOURCES))) \
	$(if $(filter $(NET),$(PROGRAMS)),$(GLOO_OBJECTS:.o=.ok))
check-syntax: $(SYNTAX_OK) ## only compile, for the warnings [VARIANT=clang WERROR=1]

# Kernels of a GPU have the bits of the CPU's functions: the oldest architecture, and the newest one.
GPT_PTX := $(patsubst %,$(BUILD)/$(GPT_CU:.cu=)_%.ptx,80 100)
KERN_PTX := $(patsubst %,$(BUILD)/$(KERN_CU:.cu=)_%.ptx,80 100)
PTX := $(GPT_PTX) $(KERN_PTX)
define ptx_rule
$$(BUILD)/$(1:.cu=)_%.ptx: $(1) $(2) Makefile
	$$(call say,NVCC,$$@)
	@mkdir -p $$(@D)
	$$(Q)$$(NVCC) $$(NVCC_FLAGS) -arch=compute_$$* -ptx -o $$@ $$<
endef
$(eval $(call ptx_rule,$(GPT_CU),$(GPT_CU_HEADERS)))
$(eval $(call ptx_rule,$(KERN_CU),$(KERN_CU_HEADERS)))
check-ptx: $(if $(NVCC),$(PTX)) ## PTX of the kernels: no .ftz, no .approx, no fma that the source does not name [NVCC=/path/to/nvcc]
ifneq (,$(NVCC))
	$(Q)tools/check_ptx "$(GPT_CU) $(wildcard examples/gpt/element/*.h)" $(GPT_PTX)
	$(Q)tools/check_ptx "$(wildcard kernels/cuda/*.cu kernels/element/*.h)" $(KERN_PTX)
	@echo "PTX checks: $(words $(PTX)) passed"
else
	@echo "PTX checks: skipped, no nvcc"
endif

check-links: ## links between documents resolve
	$(Q)tools/check_links

tidy: check-links ## banned calls, lengths, undocumented functions, dead files, format
	$(Q)tools/tidy
	$(Q)tools/tidy --format

format: ## format every C file (clang-format 14)
	$(Q)tools/sources c h cc hh cu | xargs -r clang-format -i

TOOLS_OK := $(BUILD)/tools.ok
check-tools: $(TOOLS_OK) ## test the checks above: each finds a violation made on purpose
$(TOOLS_OK): $(wildcard tools/*) tests/unit/tools/run.sh
	$(Q)tests/unit/tools/run.sh
	@mkdir -p $(@D); touch $@
