# SPDX-License-Identifier: Apache-2.0
# Benches. A suite is bench/<suite>.c; every other bench/*.c is shared by them. Each prints a table
# name · value · unit · peer · ratio · target and writes build/bench/<suite>.json. A suite whose
# program is not there is left out.

BENCH_SUITES := coll cpu nvme step torch wire
BENCH_SRC := $(wildcard $(BENCH_SUITES:%=bench/%.c))
BENCH_SHARED_SRC := $(sort $(filter-out $(BENCH_SRC),$(wildcard bench/*.c)))
BENCH_BIN := $(patsubst %.c,$(BUILD)/%,$(BENCH_SRC))

BENCH_A := $(BUILD)/bench_shared.a
$(BENCH_A): $(patsubst %.c,$(BUILD)/%.o,$(BENCH_SHARED_SRC))
	$(Q)rm -f $@; ar rcs $@ $^

$(BENCH_BIN): $(BUILD)/%: $(BUILD)/%.o $(BENCH_A) $(HARNESS_A) $(DAEMON_A) $(call archive,libclient)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS_daemon)

# The peer of suite coll for Open MPI, where its compiler is: the rule is there either way, for who
# asks what the Makefile would build (tools/tidy).
BENCH_MPICC := $(shell command -v mpicc 2>/dev/null)
BENCH_COLL_MPI := $(if $(BENCH_MPICC),$(BUILD)/bench/coll-mpi)
$(BUILD)/bench/coll-mpi: bench/peers/coll_mpi.c bench/coll_order.c bench/coll_order.h
	$(call say,MPICC,$@)
	@mkdir -p $(@D)
	$(Q)OMPI_CC=$(CC) $(or $(BENCH_MPICC),mpicc) -std=gnu17 -D_GNU_SOURCE -I. $(WARN) -O2 -o $@ \
		$(filter %.c,$^)

# A suite that is not there needs nothing built; the ones after the first drive a daemon.
bench_needs = $(if $(filter bench/$(1).c,$(BENCH_SRC)),$(BUILD)/bench/$(1) $(2))
bench_run = $(if $(filter bench/$(1).c,$(BENCH_SRC)),$(BUILD)/bench/$(1) build/bench,\
	echo 'bench-$(1): there is no bench/$(1).c')

# The peers of the day, once for all clones (bench/python.c looks there). torch from PyPI brings CUDA's
# libraries: 6 GB, of which nothing is used. Without it Debian's torch is the peer.
BENCH_ENV := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/zinf/bench-env
.PHONY: bench-env
bench-env: $(BENCH_ENV)/requirements.txt ## install today's peers (torch, deepspeed) for bench-step, -coll and -nvme; 6 GB
$(BENCH_ENV)/requirements.txt: bench/requirements.txt
	$(Q)python3 -m venv $(@D)
	$(Q)$(@D)/bin/pip install -q -r $<
	$(Q)cp $< $@

# `make bench-coll PARTS="two quick"` runs parts.
PARTS ?=
.PHONY: bench bench-coll bench-cpu bench-nvme bench-step bench-torch bench-wire
bench-coll: all $(call bench_needs,coll,$(ZINFD) $(ZCTL) $(BENCH_COLL_MPI)) ## time of collectives, compared with Open MPI, Gloo and the memory
	$(Q)$(call bench_run,coll) $(PARTS)
bench-cpu: $(call bench_needs,cpu) ## speed of AdamW, compared with the STREAM triad
	$(Q)$(call bench_run,cpu)
bench-nvme: $(call bench_needs,nvme,$(ZINFD) $(ZCTL)) ## speed of a step on NVMe, compared with fio and DeepSpeed
	$(Q)$(call bench_run,nvme)
bench-step: $(call bench_needs,step,$(ZINFD) $(ZCTL) $(GPT)) ## time of a step in memory, compared with Gloo and torch; zinf-gpt, compared with its bound
	$(Q)$(call bench_run,step) $(PARTS)
bench-torch: all hf-env $(call bench_needs,torch,$(ZINFD)) ## speed and memory of PyTorch models, compared with DDP, FSDP2 and DeepSpeed; PARTS=gpt2 is short
	$(Q)BENCH_PYTHON=$${BENCH_PYTHON:-$(HF_ENV)/bin/python3} $(call bench_run,torch) $(PARTS)
bench-wire: $(call bench_needs,wire,$(ZINFD) $(ZCTL)) ## time of an empty request, compared with a ping-pong; a step while clients flood the daemon
	$(Q)$(call bench_run,wire) $(PARTS)

# What the suite calls is right, and it has rows: no time is looked at.
.PHONY: check-bench
check-bench: all $(call bench_needs,coll,$(ZINFD) $(ZCTL)) $(call bench_needs,step,$(GPT)) ## test the suites coll and step with small sizes
	$(Q)d=$$(mktemp -d); $(BUILD)/bench/coll $$d quick alone >$$d/log 2>&1 && \
		grep -q '"name": "all_reduce 8 B, 2 ranks.*"value": [0-9]' $$d/coll.json || \
		{ cat $$d/log; rm -rf $$d; echo 'check-bench: suite coll failed'; exit 1; }; \
		rm -rf $$d; echo 'check-bench: suite coll runs with 2 and with 4 ranks'
	$(Q)d=$$(mktemp -d); $(BUILD)/bench/step $$d quick update >$$d/log 2>&1 && \
		grep -q '"name": "reduce + AdamW, 4 ranks, bf16.*"value": [0-9]' $$d/step.json || \
		{ cat $$d/log; rm -rf $$d; echo 'check-bench: suite step failed'; exit 1; }; \
		rm -rf $$d; echo 'check-bench: suite step runs with 2 and with 4 ranks'

# One after the other even under -j, or they would measure each other.
bench: $(BENCH_BIN) ## all suites; the results are in build/bench/*.json
	$(Q)for suite in $(notdir $(basename $(BENCH_SRC))); do \
		$(MAKE) --no-print-directory bench-$$suite || exit 1; \
	done
