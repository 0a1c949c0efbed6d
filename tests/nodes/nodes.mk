# SPDX-License-Identifier: Apache-2.0
# Several nodes on one machine, each in a network namespace of its own. Included by tests/tests.mk.

NODES_BIN := $(BUILD)/tests/nodes/test_nodes

$(NODES_BIN): $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/nodes/*.c))) $(GUARD) \
		$(HARNESS_A) $(DAEMON_A) $(call archive,libclient)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcriterion $(LIBS_daemon)

.PHONY: check-nodes
check-nodes: all $(NODES_BIN) ## nodes in network namespaces that are cut off, slow or dead (needs root, iproute2)
	@ZINF_BUILD=$(BUILD) tools/run_tests $(NODES_BIN)
