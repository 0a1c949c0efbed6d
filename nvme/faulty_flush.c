/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushes that fail, stall or are not made (faulty.c). Floor 2, the threads of the stores: any
 * number of them at once.
 *
 * A stalled flush holds up the thread that makes it, as fdatasync() does on a disk that does not
 * answer. One that fails flushes nothing; like the kernel's, its error is told once, unless the
 * rule says more.
 */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "common/base/err.h"
#include "common/base/types.h"
#include "nvme/faulty_private.h"
#include "nvme/store.h"

/* The first rule that fires decides; the others count all the same. */
static struct nvme_faulty_rule decide(struct faulty *faulty)
{
	struct nvme_faulty_rule fired = { .kind = NVME_FAULTY_NONE };

	(void)pthread_mutex_lock(&faulty->flush_lock); /* Fails only by misuse, here and below. */
	for (uint32_t i = 0; i < faulty->spec.rule_count; i++) {
		struct nvme_faulty_rule *rule = &faulty->spec.rules[i];
		uint64_t random = rule->is_flush ? nvme_faulty_draw(&faulty->flush_random) : 0;

		if (nvme_faulty_rule_fires_at_flush(rule, random) && !fired.kind)
			fired = *rule;
	}
	(void)pthread_mutex_unlock(&faulty->flush_lock);
	return fired;
}

static void sleep_ms(uint64_t ms)
{
	struct timespec left = { .tv_sec = (time_t)(ms / 1000),
		                 .tv_nsec = (long)(ms % 1000) * 1000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		continue;
}

/* Return: 0; the errno of a rule or of fdatasync(). Any thread; blocks. */
int nvme_faulty_flush(struct nvme_backend *backend, struct nvme_store *store)
{
	struct faulty *faulty = nvme_faulty_of(backend);
	struct nvme_faulty_rule rule = { .kind = NVME_FAULTY_NONE };
	int r;

	if (nvme_faulty_is_meant(faulty, store))
		rule = decide(faulty);
	if (rule.kind == NVME_FAULTY_ERROR)
		return err_origin(-rule.error);
	if (rule.kind == NVME_FAULTY_LOST)
		return 0;
	if (rule.kind == NVME_FAULTY_STALL)
		sleep_ms(faulty->spec.stall_ms);
	if (rule.kind == NVME_FAULTY_KILL)
		(void)raise(SIGKILL);
	r = nvme_store_flush_file(store);
	if (rule.kind == NVME_FAULTY_KILL_DONE)
		(void)raise(SIGKILL);
	return err_trace(r);
}
