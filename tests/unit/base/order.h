/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the order of uses share: drawn numbers, and orders as words. */
#pragma once

#include <criterion/criterion.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/order.h"

static uint64_t state = 1;

static inline uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

/* Units are letters. */
static inline void use_all(struct zi_order *order, const char *units, bool is_leading,
                           uint32_t *place)
{
	for (const char *unit = units; *unit; unit++)
		zi_order_use(order, (uint32_t)(*unit - 'a'), is_leading, place);
}

static inline void expect_order(const struct zi_order *order, const char *units)
{
	cr_assert_eq(order->count, strlen(units));
	for (uint32_t i = 0; i < order->count; i++)
		cr_assert_eq(order->units[i], (uint32_t)(units[i] - 'a'), "use %u", i);
}
