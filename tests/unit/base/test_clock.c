/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: deadlines saturate, and never round down to an early wake-up. Method: bounds around now. */
#include <criterion/criterion.h>
#include <limits.h>

#include "common/base/clock.h"

Test(clock, time_does_not_go_back)
{
	uint64_t former_ns = zi_clock_now_ns();

	for (int i = 0; i < 1000; i++) {
		uint64_t now_ns = zi_clock_now_ns();

		cr_assert_geq(now_ns, former_ns);
		former_ns = now_ns;
	}
}

Test(clock, deadline_is_now_plus_timeout_and_saturates)
{
	uint64_t before_ns = zi_clock_now_ns();
	uint64_t deadline_ns = zi_clock_deadline_ns(ZI_NS_PER_S);

	cr_assert_geq(deadline_ns, before_ns + ZI_NS_PER_S);
	cr_assert_leq(deadline_ns, zi_clock_now_ns() + ZI_NS_PER_S);
	cr_assert_eq(zi_clock_deadline_ns(UINT64_MAX - 1), ZI_DEADLINE_NEVER);
	cr_assert_eq(zi_clock_deadline_ns(ZI_DEADLINE_NEVER), ZI_DEADLINE_NEVER);
}

Test(clock, poll_timeout_is_rounded_up_and_clamped)
{
	cr_assert_eq(zi_clock_poll_ms(ZI_DEADLINE_NEVER), -1);
	cr_assert_eq(zi_clock_poll_ms(0), 0);
	cr_assert_eq(zi_clock_poll_ms(zi_clock_now_ns()), 0);
	cr_assert_eq(zi_clock_poll_ms(ZI_DEADLINE_NEVER - 1), INT_MAX);
	/* A second from now, less the time this takes: 1000 ms at most, and never 1001. */
	cr_assert_leq(zi_clock_poll_ms(zi_clock_deadline_ns(ZI_NS_PER_S)), 1000);
	cr_assert_gt(zi_clock_poll_ms(zi_clock_deadline_ns(ZI_NS_PER_S)), 500);
	/* Far less than a millisecond away is still 1 (0 once this machine was slow enough). */
	for (int i = 0; i < 100; i++) {
		uint64_t deadline_ns = zi_clock_deadline_ns(200 * ZI_NS_PER_US);
		int timeout_ms = zi_clock_poll_ms(deadline_ns);

		if (zi_clock_now_ns() < deadline_ns)
			cr_assert_eq(timeout_ms, 1);
	}
}
