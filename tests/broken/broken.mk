# SPDX-License-Identifier: Apache-2.0
# Variants of the sources that are broken on purpose, each of which the tests must notice. What they
# are is in the *.patch here. Included by tests.mk.

BROKEN_DIR := $(BUILD)/broken
WATCH := $(BUILD)/tests/broken/watch.o

# Lost wake-ups are told, as no test would last long enough to see them otherwise.
WATCHED_STRESS := $(BUILD)/tests/stress/coll
$(WATCHED_STRESS): $(WATCH)
$(WATCHED_STRESS): LDFLAGS += -Wl,--wrap=syscall

# Objects of a variant come before the archives, whose files of the same names are then not wanted.
$(BROKEN_DIR)/%.o: $(BROKEN_DIR)/%.c Makefile
	$(call say,CC,$< \(broken\))
	$(Q)$(CC) -w -I$(firstword $(subst /src/,/src ,$<)) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Stress goes with jitter: everything that ranks meet by gives the CPU away at any branch. Not under
# ThreadSanitizer, which finds races whatever comes first.
JITTER_FLAG := $(if $(filter tsan,$(VARIANT)),,-fsanitize-coverage=trace-pc)
JITTERED := $(patsubst %.c,$(BUILD)/%.jitter.o,$(wildcard libclient/coll/node/*.c) \
	common/wire/meet.c common/wire/verdict.c)
JITTER := $(BUILD)/tests/broken/jitter.o $(WATCH)
$(BUILD)/%.jitter.o: %.c Makefile
	$(call say,CC,$< \(jitter\))
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(JITTER_FLAG) -MMD -MP -c -o $@ $<
$(BROKEN_DIR)/%.jitter.o: $(BROKEN_DIR)/%.c Makefile
	$(call say,CC,$< \(broken\, jitter\))
	$(Q)$(CC) -w -I$(firstword $(subst /src/,/src ,$<)) $(ALL_CFLAGS) $(JITTER_FLAG) -MMD -MP -c -o $@ $<

JITTERED_STRESS := $(BUILD)/tests/broken/stress
$(JITTERED_STRESS): $(BUILD)/tests/stress/coll.o $(JITTER) $(JITTERED) $(GUARD) $(DAEMON_A) \
		$(call archive,libclient)
	$(call say,LD,$@)
	$(BROKEN_LINK) -Wl,--wrap=syscall $(LIBS_daemon)

BROKEN_LINK = $(Q)mkdir -p $(@D); $(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) \
	-Wl,--start-group $(filter %.a,$^) -Wl,--end-group

# Of the objects $(2) those that the variant $(1) leaves as they are.
broken_rest = $(filter-out $(patsubst $(BROKEN_DIR)/$(1)/src/%,$(BUILD)/%,$(broken_objects_$(1))),$(2))
# The program of a variant $(1) that is to be run with others that are whole.
broken_program = $(BROKEN_DIR)/$(1)/bin/$(if $(filter $(BROKEN_DIR)/$(1)/src/daemon/worker/net/%,$(broken_objects_$(1))),zinf-net,zinfd)
# Ways that can be gone in this build: across nodes there is none without zinf-net.
broken_ways = $(if $(filter tsan,$(VARIANT)),$(filter tsan,$(1)),$(filter-out tsan $(if $(filter $(NET),$(PROGRAMS)),,system/%),$(1)))

# $(1): the variant; $(2): its ways
define broken_rules
broken_objects_$(1) := $$(patsubst %.c,%.o,$$(shell find $(BROKEN_DIR)/$(1)/src -name '*.c'))
# What it does not change is that of all.
broken_jitter_$(1) := $$(broken_objects_$(1):.o=.jitter.o)
$(BROKEN_DIR)/$(1)/stress: $(BUILD)/tests/stress/coll.o $(JITTER) $$(broken_jitter_$(1)) \
		$$(filter-out $$(patsubst $(BROKEN_DIR)/$(1)/src/%,$(BUILD)/%,$$(broken_jitter_$(1))),$(JITTERED)) \
		$(GUARD) $(DAEMON_A) $(call archive,libclient)
	$$(call say,LD,$$@)
	$$(BROKEN_LINK) -Wl,--wrap=syscall $(LIBS_daemon)
$(BROKEN_DIR)/$(1)/coll: $(call objects,tests/coll) $$(broken_objects_$(1)) $(GUARD) $(HARNESS_A) \
		$(LIBCLIENT_A)
	$$(call say,LD,$$@)
	$$(BROKEN_LINK) -ljansson -lm
$(BROKEN_DIR)/$(1)/bin/zinfd: $(call objects,daemon) $$(broken_objects_$(1)) $(DAEMON_A)
	$$(call say,LD,$$@)
	$$(BROKEN_LINK) $(LIBS_daemon)
	$$(Q)for program in $(BUILD)/bin/*; do [ -e $$(@D)/$$$${program##*/} ] || ln -s $$$$(realpath $$$$program) $$(@D)/; done
# zinfd looks for it beside itself, wherever a symbolic link leads.
$(BROKEN_DIR)/$(1)/bin/zinf-net: $$(call broken_rest,$(1),$(NET_OBJECTS)) $$(broken_objects_$(1)) $(NET_A) $(ZINFD)
	$$(call say,LD,$$@)
	$(Q)mkdir -p $$(@D); $(CXX) $(ALL_LDFLAGS) -o $$@ $$(filter %.o,$$^) $$(filter %.a,$$^) $(LIBS_net)
	$$(Q)ln -f $$$$(realpath $(ZINFD)) $$(@D)/zinfd
$(BROKEN_DIR)/$(1)/unit/worker/test_mail: $$(call broken_rest,$(1),$(MAIL_OBJECTS))
$(patsubst %,$(BROKEN_DIR)/$(1)/unit/worker/test_%,talk talk_link talk_foe): $$(call broken_rest,$(1),$(TALK_OBJECTS))
$(BROKEN_DIR)/$(1)/unit/%: $(BUILD)/tests/unit/%.o $$(broken_objects_$(1)) $(GUARD) $(FAKE_A) \
		$(HARNESS_A) $(DAEMON_A) $(call archive,libclient)
	$$(call say,LD,$$@)
	$$(BROKEN_LINK) -lcriterion $(LIBS_daemon)
$(BROKEN_DIR)/$(1)/kernels/%: $(BUILD)/tests/kernels/%.o $$(broken_objects_$(1)) $(GUARD) $(FAKE_A) \
		$(HARNESS_A) $(DAEMON_A) $(call archive,libclient)
	$$(call say,LD,$$@)
	$$(BROKEN_LINK) -lcriterion $(LIBS_daemon)
$(BROKEN_DIR)/$(1)/made-stress: $(BROKEN_DIR)/$(1)/stress
	$$(Q)touch $$@
$(BROKEN_DIR)/$(1)/made-coll: $(BROKEN_DIR)/$(1)/coll
	$$(Q)touch $$@
$(BROKEN_DIR)/$(1)/made-tsan: $(BROKEN_DIR)/$(1)/stress $(BROKEN_DIR)/$(1)/coll
	$$(Q)touch $$@
$(BROKEN_DIR)/$(1)/made-deaths: $(BROKEN_DIR)/$(1)/bin/zinfd $(DEATHS_BIN)
	$$(Q)touch $$@
$(foreach way,$(filter unit/% kernels/%,$(2)),
$(BROKEN_DIR)/$(1)/made-$(subst /,-,$(way)): $(BROKEN_DIR)/$(1)/$(way)
	$$(Q)touch $$@
)
$(foreach way,$(filter system/%,$(2)),
$(BROKEN_DIR)/$(1)/made-$(subst /,-,$(way)): $$(call broken_program,$(1)) $(SYSTEM_BIN)
	$$(Q)touch $$@
)
broken-programs: $(foreach way,$(call broken_ways,$(2)),$(BROKEN_DIR)/$(1)/made-$(subst /,-,$(way)))
endef

# The copies are there by the time that this goal is made.
ifneq (,$(filter broken-programs,$(MAKECMDGOALS)))
BROKEN_NAMES := $(patsubst $(BROKEN_DIR)/%/ways,%,$(wildcard $(BROKEN_DIR)/*/ways))
$(foreach name,$(BROKEN_NAMES),$(eval $(call broken_rules,$(name),$(file <$(BROKEN_DIR)/$(name)/ways))))
endif

.PHONY: check-broken broken-programs
broken-programs: $(JITTERED_STRESS)

# Of VARIANT=tsan those that race; of the others what wakes, sums and tells wrongly.
check-broken: $(if $(filter tsan,$(VARIANT)),,all $(DEATHS_BIN)) ## break collectives on purpose: the tests must find each defect [SEED=n]
	@tests/broken/apply $(BROKEN_DIR)
	@$(MAKE) --no-print-directory -s -j2 broken-programs
	@tests/broken/check $(BUILD) $(SEED)
