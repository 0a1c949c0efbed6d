# SPDX-License-Identifier: Apache-2.0
# Models of protocols, and variants of them that must be found wrong. Included by tests.mk.

.PHONY: check-model

MODEL ?= quick
check-model: ## spin searches the protocols of tests/model to the end [MODEL=full: larger sizes, minutes]
	@tests/model/check $(filter full,$(MODEL)) $(BUILD)/model
