/* SPDX-License-Identifier: Apache-2.0 */
/* See strategy.h. */
#include "common/wire/strategy.h"

static const char *const strategy_names[_ZI_STRATEGY_COUNT] = {
	"ddp", "dp", "ddp", "zero1", "zero2", "zero3",
};

/* @strategy: as it came, checked or not. Return: a constant. */
const char *zi_strategy_name(uint32_t strategy)
{
	return strategy < _ZI_STRATEGY_COUNT ? strategy_names[strategy] : "?";
}

/* Whatever divides a plane divides those before it too: state, then gradients, then parameters. */
bool zi_strategy_divides_state(uint32_t strategy)
{
	return strategy == ZI_STRATEGY_ZERO1 || zi_strategy_divides_grads(strategy);
}

/* As above. */
bool zi_strategy_divides_grads(uint32_t strategy)
{
	return strategy == ZI_STRATEGY_ZERO2 || zi_strategy_divides_params(strategy);
}

/* As above. */
bool zi_strategy_divides_params(uint32_t strategy)
{
	return strategy == ZI_STRATEGY_ZERO3;
}
