# SPDX-License-Identifier: Apache-2.0
# zinf: one non-recursive Makefile. `make help` lists the targets. A folder is a module: its sources
# are compiled into one archive build/<variant>/<folder>.a; what may use what is in tools/floors.

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SUFFIXES:

CC = gcc
VARIANT ?= release
BUILD := build/$(VARIANT)
VERSION := 0.1.0
PREFIX ?= /usr/local
DESTDIR ?=

# ---- flags ------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla \
	-Wwrite-strings -Wpointer-arith -Wconversion -Wno-sign-conversion -Wimplicit-fallthrough \
	-Wformat=2 -Wdate-time
# -ffp-contract=off, -fno-math-errno: docs/ARITHMETIC.md. No -ffast-math, ever.
CFLAGS_BASE := -std=gnu17 -D_GNU_SOURCE -I. -Iinclude -DZINF_VERSION='"$(VERSION)"' $(WARN) \
	-fno-common -fvisibility=hidden -fPIC -pthread -ffp-contract=off -fno-math-errno -g
LDFLAGS_BASE := -pthread
# Test programs say where they are, not what lies in each variable: a third of the size.
DEBUG_TESTS := -g1

# The few files of C++ (daemon/worker/net/gloo*.cc).
CXX_WARN := $(filter-out -Wstrict-prototypes -Wmissing-prototypes -Wconversion -Wno-sign-conversion,$(WARN))
CXXFLAGS_BASE := $(patsubst -std=%,-std=gnu++17,$(filter-out $(WARN),$(CFLAGS_BASE))) $(CXX_WARN)

OPT_release := -O2
OPT_debug := -O0 -DZI_DEBUG
OPT_ndebug := -O3 -DNDEBUG
# Lines that ran are counted, whatever process ran them (make coverage).
OPT_cov := -O0 -DZI_DEBUG -DZI_COVERED --coverage -fprofile-update=atomic
OPT_clang := -O2
OPT_asan := -O1 -g1 -DZI_DEBUG -DZI_SANITIZED -fno-omit-frame-pointer -fsanitize=address,undefined \
	-fno-sanitize-recover=all
# gcc's TSan misses races through inlined fixed-size memcpy: clang, as well as no builtin memcpy. No -g1:
# tests/tsan/net.supp names inlined functions in full.
OPT_tsan := -O1 -DZI_DEBUG -DZI_SANITIZED -fno-omit-frame-pointer -fsanitize=thread -fno-builtin-memcpy
# For libFuzzer (tests/fuzz/); the targets bring its main(). UBSan's checks for null and unaligned pointers
# are half of all edges and nine of ten traced comparisons of 64 bits, and tell nothing about an input. ASan
# finds null pointers; check-asan repeats the kept inputs with all of UBSan.
OPT_fuzz := -O1 -DZI_DEBUG -DZI_SANITIZED -fno-omit-frame-pointer \
	-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-sanitize=null,alignment
CXX = g++
ifeq ($(VARIANT),$(filter $(VARIANT),clang tsan fuzz))
CC = clang
CXX = clang++
endif
# What makes a build faster where it is installed: ccache for the compilers, mold or lld as linker.
# `make CACHE= LINKER=` does without.
CACHE ?= $(shell command -v ccache)
ifneq ($(VARIANT),$(filter $(VARIANT),tsan fuzz))
LINKER ?= $(addprefix -fuse-ld=,$(firstword $(if $(shell command -v mold),mold) $(if $(shell command -v ld.lld),lld)))
endif
CACHE := $(CACHE)
LINKER := $(LINKER)

ifdef WERROR
CFLAGS_BASE += -Werror
CXXFLAGS_BASE += -Werror
endif
CFLAGS ?=
ALL_CFLAGS = $(CFLAGS_BASE) $(OPT_$(VARIANT)) $(CFLAGS)
ALL_LDFLAGS = $(LDFLAGS_BASE) $(LINKER) $(filter -fsanitize% --coverage,$(OPT_$(VARIANT))) $(LDFLAGS)

ifneq ($(V),1)
Q := @
# Silent under make -s, as the recipes themselves are.
ifeq (,$(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS)))))
say = @printf '  %-7s %s\n' $(1) $(2)
endif
endif

# ---- modules ----------------------------------------------------------------------------------
# Bottom up; link order is the reverse. EOL closes each list.
MODULES := common/base common/wire common/gpu kernels nvme libclient daemon/catalog daemon/topo daemon/device \
	daemon/coll daemon/worker daemon/tier daemon/zero daemon/session

# Rooms: folders inside a module, for people; the archive is the module's.
ROOMS_daemon/zero := across across/agree across/bytes across/sums across/talk collectives grad job \
	param place snapshot state step tensor
ROOMS_daemon/session := admin
ROOMS_libclient := coll coll/node deepspeed gpu
ROOMS_zctl := estimate launch

folders = $(1) $(addprefix $(1)/,$(ROOMS_$(1)))
sources = $(filter-out %_stub.c,$(sort $(foreach f,$(call folders,$(1)),$(wildcard $(f)/*.c))))
objects = $(patsubst %.c,$(BUILD)/%.o,$(call sources,$(1)))
archive = $(BUILD)/$(subst /,_,$(1)).a

LIBCLIENT_A := $(call archive,libclient) $(call archive,common/gpu) $(call archive,common/wire) \
	$(call archive,kernels) $(call archive,common/base)
DAEMON_A := $(foreach m,daemon/session daemon/zero daemon/tier daemon/worker daemon/coll \
	daemon/device daemon/topo daemon/catalog nvme kernels common/gpu common/wire common/base,$(call archive,$(m)))

LIBS_daemon := -luring -lhwloc -lnuma -lsqlite3 -ljansson -linih -lm
LIBS_client := -ljansson -lm
LIBS_zctl := -ljansson -luring -lhwloc -lnuma -lm
LIBS_gpt := -lopenblas -ljansson -ldl -lm
LIBS_net := -lgloo

ZINFD := $(BUILD)/bin/zinfd
ZCTL := $(BUILD)/bin/zctl
GPT := $(BUILD)/bin/zinf-gpt
ALLREDUCE := $(BUILD)/bin/zinf-allreduce
NET := $(BUILD)/bin/zinf-net
GPU := $(BUILD)/bin/zinf-gpu
LIBZINF_SO := $(BUILD)/lib/libzinf.so.0
LIBZINF_A := $(BUILD)/lib/libzinf.a
PROGRAMS := $(ZINFD) $(GPU) $(ZCTL) $(GPT) $(ALLREDUCE) $(LIBZINF_SO) $(LIBZINF_A)
# The worker that takes a job across nodes, for it alone links Gloo. It is left out without Gloo, and
# where a sanitizer would have to know what Gloo's threads do.
ifeq ($(VARIANT),$(filter-out tsan fuzz,$(VARIANT)))
PROGRAMS += $(if $(wildcard /usr/include/gloo/context.h),$(NET),net-is-missing)
endif

# The compiler of kernels for GPUs; they are left out without it.
NVCC ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
NVCC := $(NVCC)
PROGRAMS += $(if $(NVCC),,nvcc-is-missing)

.PHONY: all help deps demo check clean install
.DEFAULT_GOAL := all
all: $(PROGRAMS) ## build zinfd, its workers, libzinf, zctl and the examples [VARIANT=release|debug|clang|asan|tsan|ndebug WERROR=1]

help: ## this list
	@awk -F':.*## ' '/^[a-zA-Z0-9_-]+:.*## /{printf "  make %-16s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

# ---- rules ------------------------------------------------------------------------------------
$(BUILD)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CACHE) $(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Instruction sets are chosen per file and dispatched at run time (kernels/isa.c); other machines run
# the reference, and these files are empty there.
# These files are the longest of a build: half of their time goes into debug information of variables
# (-g1 is without it; the code is the same), and with sanitizers they stay at -O1.
SIMD_OPT := $(if $(filter asan tsan fuzz,$(VARIANT)),,-O3 -g1)
ifeq ($(shell uname -m),x86_64)
$(BUILD)/%_avx2.o $(BUILD)/%_avx2.ok: CFLAGS += -mavx2 -mfma -mf16c $(SIMD_OPT)
$(BUILD)/%_avx512.o $(BUILD)/%_avx512.ok: CFLAGS += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl \
	-mprefer-vector-width=512 $(SIMD_OPT)
$(BUILD)/examples/gpt/product_bf16_avx512.o: CFLAGS += -mavx512bf16
endif
# An input hardly chooses what runs in a kernel, but unrolled loops are 40 % of all edges of a fuzz target:
# no coverage there. ASan and UBSan stay.
$(BUILD)/kernels/%.o: CFLAGS += $(if $(filter fuzz,$(VARIANT)),-fno-sanitize=fuzzer-no-link)
# At -O2 gcc 12 leaves loops of unknown length scalar. Same bits: nothing is contracted or reordered.
$(patsubst %,$(BUILD)/examples/gpt/%.o,attention convert embedding gelu layernorm linear loss product): \
	CFLAGS += -O3

# A compiler's warnings without its code (check-syntax).
$(BUILD)/%.ok: %.c Makefile
	$(call say,SYNTAX,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -fsyntax-only -MMD -MP -MF $@.d -MT $@ $<
	@touch $@

define module_rule
$(call archive,$(1)): $(call objects,$(1))
	$$(call say,AR,$$@)
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$^
endef
$(foreach m,$(MODULES),$(eval $(call module_rule,$(m))))

$(ZINFD): $(call objects,daemon) $(DAEMON_A)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_daemon)

$(ZCTL): $(call objects,zctl) $(BUILD)/nvme/smart.o $(BUILD)/nvme/smart_read.o $(LIBCLIENT_A)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_zctl)

# Kernels for GPUs: those of zinf-gpt (examples/gpt/gpu), and those for state in GPU memory (kernels/cuda).
# -fmad=false: as -ffp-contract=off. The newest architecture comes as PTX as well, for GPUs after it.
NVCC_FLAGS := -std=c++17 -I. -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
NVCC_TARGETS := $(foreach arch,80 90 100,-gencode arch=compute_$(arch),code=sm_$(arch)) \
	-gencode arch=compute_100,code=compute_100
GPT_CU := examples/gpt/gpu/layers.cu
GPT_CU_HEADERS := $(wildcard examples/gpt/element/*.h) examples/gpt/bf16.h
GPT_FATBIN := $(BUILD)/$(GPT_CU:.cu=.fatbin)
$(GPT_FATBIN): $(GPT_CU_HEADERS)
KERN_CU := kernels/cuda/kernels.cu
KERN_CU_HEADERS := $(filter-out $(KERN_CU),$(wildcard kernels/cuda/*.cu)) $(wildcard kernels/cuda/*.hh kernels/element/*.h) \
	kernels/cuda.h kernels/optim.h common/base/types.h
KERN_FATBIN := $(BUILD)/$(KERN_CU:.cu=.fatbin)
$(KERN_FATBIN): $(KERN_CU_HEADERS)
$(GPT_FATBIN) $(KERN_FATBIN): $(BUILD)/%.fatbin: %.cu Makefile
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCC_FLAGS) $(NVCC_TARGETS) -fatbin -o $@ $<
# Of who launches the latter: beside the archive, as it is large.
KERN_IMAGE := $(BUILD)/kernels/cuda/image$(if $(NVCC),,_stub).o
$(BUILD)/kernels/cuda/image.o: CFLAGS += -DKERN_FATBIN='"$(KERN_FATBIN)"'
$(BUILD)/kernels/cuda/image.o: $(KERN_FATBIN)
GPT_IMAGE := $(BUILD)/examples/gpt/gpu/image$(if $(NVCC),,_stub).o
$(BUILD)/examples/gpt/gpu/image.o: CFLAGS += -DGPT_FATBIN='"$(GPT_FATBIN)"'
$(BUILD)/examples/gpt/gpu/image.o: $(GPT_FATBIN)
# All but the image.
GPT_PARTS := $(call objects,examples/gpt)
$(GPT): $(GPT_PARTS) $(GPT_IMAGE) $(LIBCLIENT_A)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_gpt)

$(ALLREDUCE): $(call objects,examples/allreduce) $(LIBCLIENT_A)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_client)

GLOO_OBJECTS := $(patsubst %.cc,$(BUILD)/%.o,$(sort $(wildcard daemon/worker/net/*.cc)))
NET_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard daemon/worker/net/*.c))) \
	$(GLOO_OBJECTS)
# A header that libgloo-dev leaves out (daemon/worker/net/gloo).
$(GLOO_OBJECTS): $(BUILD)/%.o: %.cc Makefile
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CACHE) $(CXX) $(CXXFLAGS_BASE) -idirafter daemon/worker/net $(OPT_$(VARIANT)) -MMD -MP -c -o $@ $<
$(GLOO_OBJECTS:.o=.ok): $(BUILD)/%.ok: %.cc Makefile
	$(call say,SYNTAX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXXFLAGS_BASE) -idirafter daemon/worker/net $(OPT_$(VARIANT)) -fsyntax-only -MMD -MP -MF $@.d -MT $@ $<
	@touch $@
NET_A := $(foreach folder,daemon/worker common/wire common/gpu kernels common/base,$(call archive,$(folder)))
$(NET): $(NET_OBJECTS) $(NET_A)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_net)
# The worker of a GPU. It opens the driver at run time: no CUDA is needed to build it.
GPU_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard daemon/worker/gpu/*.c)))
$(GPU): $(GPU_OBJECTS) $(call archive,common/gpu) $(call archive,common/base)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^

.PHONY: nvcc-is-missing
nvcc-is-missing:
	@echo "zinf: nvcc is not found: zinf-gpt has no kernels for GPUs, and --device gpu says so; kernels/cuda has no image (make NVCC=/path/to/nvcc)"

.PHONY: net-is-missing
net-is-missing:
	@echo "zinf: libgloo-dev is not installed: zinf-net is not built, and jobs stay on one node (tools/deps)"

$(LIBZINF_SO): libclient/zinf.map $(LIBCLIENT_A)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,libzinf.so.0 -Wl,--version-script=libclient/zinf.map \
		-o $@ -Wl,--whole-archive $(call archive,libclient) -Wl,--no-whole-archive \
		$(filter-out libclient/zinf.map $(call archive,libclient),$^) $(LIBS_client)

$(LIBZINF_A): $(LIBCLIENT_A)
	$(call say,AR,$@)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)ar rcs $@ $(foreach m,libclient common/gpu common/wire kernels common/base,$(call objects,$(m)))

include tests/tests.mk
-include tools/tools.mk
-include bench/bench.mk
include python/python.mk
include tests/python/hf/hf.mk

# ---- set-up -----------------------------------------------------------------------------------
deps: ## install missing packages (with apt, as root or through sudo; without both print the command)
	@tools/deps build check

# Everything below may be the first command on a fresh machine: install first, then build in a make
# of its own, so that nothing is decided before the packages are there.
demo: ## install missing packages, build, and train a GPT whose optimizer state lies on NVMe
	@tools/deps build
	@$(MAKE) --no-print-directory -s -j2 all
	@tools/demo

# ---- installing -------------------------------------------------------------------------------
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSCONFDIR ?= /etc
# As in the tree, so that links between documents, headers and examples resolve.
DOCDIR ?= $(PREFIX)/share/doc/zinf
install: all ## install under $(DESTDIR)$(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/lib/pkgconfig \
		$(DESTDIR)$(PREFIX)/include/zinf $(DESTDIR)$(UNITDIR) $(DESTDIR)$(PREFIX)/lib/sysusers.d \
		$(DESTDIR)$(PREFIX)/lib/tmpfiles.d $(DESTDIR)$(DOCDIR)/docs \
		$(DESTDIR)$(DOCDIR)/examples/gpt/element $(DESTDIR)$(DOCDIR)/examples/gpt/gpu $(DESTDIR)$(DOCDIR)/examples/allreduce \
		$(DESTDIR)$(DOCDIR)/examples/torch
	install -m 755 $(ZINFD) $(GPU) $(DESTDIR)$(PREFIX)/sbin/
	install -m 755 $(ZCTL) $(GPT) $(ALLREDUCE) $(DESTDIR)$(PREFIX)/bin/
	[ ! -e $(NET) ] || install -m 755 $(NET) $(DESTDIR)$(PREFIX)/sbin/
	install -m 755 $(LIBZINF_SO) $(DESTDIR)$(PREFIX)/lib/libzinf.so.$(VERSION)
	ln -sf libzinf.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libzinf.so.0
	ln -sf libzinf.so.0 $(DESTDIR)$(PREFIX)/lib/libzinf.so
	install -m 644 $(LIBZINF_A) $(DESTDIR)$(PREFIX)/lib/libzinf.a
	install -m 644 $(wildcard include/zinf/*.h) $(DESTDIR)$(PREFIX)/include/zinf/
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' libclient/zinf.pc.in \
		> $(DESTDIR)$(PREFIX)/lib/pkgconfig/zinf.pc
	for unit in zinfd.service zinfd.socket; do \
		sed -e 's|@PREFIX@|$(PREFIX)|' systemd/$$unit > $(DESTDIR)$(UNITDIR)/$$unit; done
	install -m 644 systemd/zinf.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/zinf.conf
	install -m 644 systemd/zinf.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/zinf.conf
	install -d $(DESTDIR)$(SYSCONFDIR)/zinf
	[ -e $(DESTDIR)$(SYSCONFDIR)/zinf/zinfd.conf ] || \
		install -m 644 systemd/zinfd.conf $(DESTDIR)$(SYSCONFDIR)/zinf/zinfd.conf
	install -m 644 systemd/zinfd.conf README.md LICENSE $(DESTDIR)$(DOCDIR)/
	install -m 644 $(wildcard docs/*.md) $(DESTDIR)$(DOCDIR)/docs/
	install -m 644 $(wildcard examples/gpt/*.*) $(DESTDIR)$(DOCDIR)/examples/gpt/
	install -m 644 $(wildcard examples/gpt/element/*) $(DESTDIR)$(DOCDIR)/examples/gpt/element/
	install -m 644 $(wildcard examples/gpt/gpu/*) $(DESTDIR)$(DOCDIR)/examples/gpt/gpu/
	install -m 644 $(wildcard examples/allreduce/*) $(DESTDIR)$(DOCDIR)/examples/allreduce/
	install -m 644 $(wildcard examples/torch/*) $(DESTDIR)$(DOCDIR)/examples/torch/
	ln -sfn ../../../include $(DESTDIR)$(DOCDIR)/include

-include $(shell [ -d $(BUILD) ] && find $(BUILD) -name '*.d')

clean: ## remove everything that was built
	rm -rf build
