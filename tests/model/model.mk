# SPDX-License-Identifier: Apache-2.0
# Models of protocols, and variants of them that must be found wrong. Included by tests.mk.

.PHONY: check-model

MODEL ?= quick
# The answer is the same until a model changes.
MODEL_OK := $(BUILD)/model/$(MODEL).ok
check-model: $(MODEL_OK) ## check the protocols of tests/model completely, with spin [MODEL=brief: less; full: larger sizes, minutes]
$(MODEL_OK): $(wildcard tests/model/*)
	@mkdir -p $(@D)
	@tests/model/check $(filter brief full,$(MODEL)) $(BUILD)/model
	@! command -v spin >/dev/null || touch $@
