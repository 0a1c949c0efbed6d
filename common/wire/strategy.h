/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategies: their numbers, their names, and which planes each of them divides among ranks.
 * How much that makes a rank own is owner.h's business. Floor 1, pure, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Which planes a rank owns a share of only; docs/PROTOCOL.md has the table. */
enum zi_strategy {
	ZI_STRATEGY_DEFAULT = 0, /* ddp */
	ZI_STRATEGY_DP = 1,      /* replicas are threads of one process */
	ZI_STRATEGY_DDP = 2,     /* none */
	ZI_STRATEGY_ZERO1 = 3,   /* optimizer state */
	ZI_STRATEGY_ZERO2 = 4,   /* and gradients */
	ZI_STRATEGY_ZERO3 = 5,   /* and parameters */
	_ZI_STRATEGY_COUNT,
};

/* "zero1"; "ddp" of the default; "?" of none. */
const char *zi_strategy_name(uint32_t strategy);

/* Of what is no strategy: nothing. */
bool zi_strategy_divides_state(uint32_t strategy);
bool zi_strategy_divides_grads(uint32_t strategy);
bool zi_strategy_divides_params(uint32_t strategy);
