# SPDX-License-Identifier: Apache-2.0
# zinf-net under ThreadSanitizer, in jobs over two daemons: collectives, messages, ranks, workers and
# daemons that are killed; and what daemons say to each other, which tests say. Gloo is not instrumented, but its locks and its reads and writes of
# sockets go through the C library, where the sanitizer sees them: so what Gloo's thread hands to
# ours is judged; what it cannot see is in net.supp. What zinf-net and ranks share is other processes'
# memory to it: that is for stress-coll-tsan and the models. Included by tests.mk.

# As ZINF_BUILD has it: the daemon and the tests are of VARIANT=release, since no Criterion program
# starts under the sanitizer.
NET_TSAN := $(BUILD)/net
NET_BROKEN := $(BUILD)/net_broken
NET_TSAN_TESTS := far far_group far_send far_refuse far_tell
# PROGRAM@SUITE
NET_TSAN_RUNS := $(NET_TSAN_TESTS:%=build/release/tests/system/run@%) \
	build/release/tests/unit/worker/run@talk_net build/release/tests/unit/worker/run@talk_end
NET_TSAN_BINS := $(sort $(foreach run,$(NET_TSAN_RUNS),$(firstword $(subst @, ,$(run)))))

$(NET_TSAN)/options.o $(NET_BROKEN)/options.o: %/options.o: tests/tsan/net_options.c tests/tsan/net.mk
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -DTSAN_NET_LOG='"$(abspath $*)/report"' \
		-DTSAN_NET_SUPP='"$(abspath tests/tsan/net.supp)"' -c -o $@ $<

# All its releases taken away: what must be reported.
NET_BROKEN_OBJECTS := $(patsubst %.c,$(NET_BROKEN)/%.o,$(sort $(wildcard daemon/worker/net/*.c)))
$(NET_BROKEN_OBJECTS): $(NET_BROKEN)/%.o: %.c Makefile
	$(call say,CC,$< \(broken\))
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -U__ATOMIC_RELEASE -D__ATOMIC_RELEASE=__ATOMIC_RELAXED \
		-Wno-builtin-macro-redefined -MMD -MP -c -o $@ $<

$(NET_TSAN)/bin/zinf-net: $(NET_OBJECTS) $(NET_TSAN)/options.o $(NET_A)
$(NET_BROKEN)/bin/zinf-net: $(NET_BROKEN_OBJECTS) $(GLOO_OBJECTS) \
	$(NET_BROKEN)/options.o $(NET_A)
$(NET_TSAN)/bin/zinf-net $(NET_BROKEN)/bin/zinf-net:
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_net)

.PHONY: stress-net-tsan
ifneq ($(wildcard /usr/include/gloo/context.h),)
# Of VARIANT=tsan.
stress-net-tsan: $(NET_TSAN)/bin/zinf-net $(NET_BROKEN)/bin/zinf-net
	@$(MAKE) --no-print-directory -s VARIANT=release build/release/bin/zinfd $(NET_TSAN_BINS)
	@cp build/release/bin/zinfd $(NET_TSAN)/bin/; cp build/release/bin/zinfd $(NET_BROKEN)/bin/
	@rm -f $(NET_TSAN)/report.* $(NET_BROKEN)/report.*
	@for run in $(NET_TSAN_RUNS); do \
		ZINF_BUILD=$(NET_TSAN) tools/run_tests $$run >$(NET_TSAN)/log && ! ls $(NET_TSAN)/report.* >/dev/null 2>&1 || \
		{ cat $(NET_TSAN)/log $(NET_TSAN)/report.* /dev/null 2>/dev/null; echo "failed: $$run"; exit 1; }; \
	done
	@ZINF_BUILD=$(NET_BROKEN) $(STRESS_TIMEOUT) build/release/tests/system/run --filter 'far_refuse/*' \
			>$(NET_BROKEN)/log 2>&1; \
		grep -q 'data race' $(NET_BROKEN)/report.* || \
		{ cat $(NET_BROKEN)/log; echo "failed: zinf-net without releases was not reported"; exit 1; }
else
stress-net-tsan:
	@echo "stress-net-tsan: skipped, zinf-net is not built (libgloo-dev)"
endif
