/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time. Floor 0, any thread. The vDSO answers: no system call. */
#include "common/base/clock.h"

#include <limits.h>
#include <time.h>

#include "common/base/assert.h"

/* Return: nanoseconds since an unspecified start, the same for all processes of the node. */
uint64_t zi_clock_now_ns(void)
{
	struct timespec now;
	int r = clock_gettime(CLOCK_MONOTONIC, &now);

	assert(r == 0);
	(void)r; /* Only asserted: CLOCK_MONOTONIC always exists. */
	return (uint64_t)now.tv_sec * ZI_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Return: the absolute deadline @timeout_ns from now; ZI_DEADLINE_NEVER when that overflows. */
uint64_t zi_clock_deadline_ns(uint64_t timeout_ns)
{
	uint64_t deadline_ns;

	if (__builtin_add_overflow(zi_clock_now_ns(), timeout_ns, &deadline_ns))
		return ZI_DEADLINE_NEVER;
	return deadline_ns;
}

/* Return: what poll() and epoll_wait() take. Rounded up, so that a sleeper never wakes early and
 * spins through the last fraction of a millisecond. */
int zi_clock_poll_ms(uint64_t deadline_ns)
{
	uint64_t now_ns;
	uint64_t left_ms;

	if (deadline_ns == ZI_DEADLINE_NEVER)
		return -1;
	now_ns = zi_clock_now_ns();
	if (deadline_ns <= now_ns)
		return 0;
	left_ms = (deadline_ns - now_ns - 1) / ZI_NS_PER_MS + 1;
	return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}
