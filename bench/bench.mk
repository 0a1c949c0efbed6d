# SPDX-License-Identifier: Apache-2.0
# Benches. A suite is bench/<suite>.c; every other bench/*.c is shared by them. Each prints a table
# name · value · unit · peer · ratio · target and writes build/bench/<suite>.json. A suite whose
# program is not there is left out.

BENCH_SUITES := cpu nvme wire
BENCH_SRC := $(wildcard $(BENCH_SUITES:%=bench/%.c))
BENCH_SHARED_SRC := $(sort $(filter-out $(BENCH_SRC),$(wildcard bench/*.c)))
BENCH_BIN := $(patsubst %.c,$(BUILD)/%,$(BENCH_SRC))

BENCH_A := $(BUILD)/bench_shared.a
$(BENCH_A): $(patsubst %.c,$(BUILD)/%.o,$(BENCH_SHARED_SRC))
	$(Q)rm -f $@; ar rcs $@ $^

$(BENCH_BIN): $(BUILD)/%: $(BUILD)/%.o $(BENCH_A) $(HARNESS_A) $(DAEMON_A) $(call archive,libclient)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS_daemon)

# A suite that is not there needs nothing built; the ones after the first drive a daemon.
bench_needs = $(if $(filter bench/$(1).c,$(BENCH_SRC)),$(BUILD)/bench/$(1) $(2))
bench_run = $(if $(filter bench/$(1).c,$(BENCH_SRC)),$(BUILD)/bench/$(1) build/bench,\
	echo 'bench-$(1): there is no bench/$(1).c')

.PHONY: bench bench-cpu bench-nvme bench-wire
bench-cpu: $(call bench_needs,cpu) ## fused AdamW over the STREAM triad
	$(Q)$(call bench_run,cpu)
bench-nvme: $(call bench_needs,nvme,$(ZINFD) $(ZCTL)) ## a step on NVMe over the rate of fio
	$(Q)$(call bench_run,nvme)
bench-wire: $(call bench_needs,wire,$(ZINFD) $(ZCTL)) ## an empty request over a bare ping-pong
	$(Q)$(call bench_run,wire)

# One after the other even under -j, or they would measure each other.
bench: $(BENCH_BIN) ## all suites; the results are in build/bench/*.json
	$(Q)for suite in $(notdir $(basename $(BENCH_SRC))); do \
		$(MAKE) --no-print-directory bench-$$suite || exit 1; \
	done
