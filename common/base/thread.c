/* SPDX-License-Identifier: Apache-2.0 */
/* Named threads. Floor 0. The struct belongs to the thread that starts and joins it. */
#include "common/base/thread.h"

#include <sched.h>
#include <signal.h>
#include <string.h>

#include "common/base/cgroup.h"
#include "common/base/err.h"
#include "common/base/text.h"

/* sched_getaffinity() wants a mask at least as large as the kernel's: 8192 is the most that Linux
 * can be configured for on x86-64, and one mask of 1 KiB fits the stack. */
#define THREAD_CPUS_MAX 8192u

static void *thread_main(void *arg)
{
	struct zi_thread *thread = arg;

	(void)pthread_setname_np(pthread_self(), thread->name); /* Only a name; its length fits. */
	thread->result = thread->entry(thread->arg);
	return NULL;
}

/*
 * @thread: zeroed, or joined before. Every signal is blocked in the new thread from its first
 * instruction on: it inherits the mask, which the caller has back afterwards.
 * Return: 0, -EAGAIN (too many threads), -ENAMETOOLONG.
 */
int zi_thread_start(struct zi_thread *thread, const char *name, zi_thread_fn entry, void *arg)
{
	sigset_t all;
	sigset_t saved;
	int r;

	assert(!thread->is_started);
	assert(entry);
	r = zi_copy_name(thread->name, sizeof(thread->name), name);
	if (r)
		return err_trace(r);
	thread->entry = entry;
	thread->arg = arg;
	thread->result = 0;
	(void)sigfillset(&all);                           /* Cannot fail. */
	(void)pthread_sigmask(SIG_SETMASK, &all, &saved); /* Nor this, with these arguments. */
	r = pthread_create(&thread->handle, NULL, thread_main, thread);
	(void)pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (r)
		return err_origin(-r);
	thread->is_started = true;
	return 0;
}

/* Waits for the end of the thread; twice is fine. Return: what the entry returned. */
int zi_thread_join(struct zi_thread *thread)
{
	int r;

	if (!thread->is_started)
		return 0;
	r = pthread_join(thread->handle, NULL);
	assert(r == 0);
	(void)r; /* Fails only for a thread joined before, or for oneself. */
	thread->is_started = false;
	return err_trace(thread->result);
}

static unsigned affinity_count(void)
{
	unsigned long mask[THREAD_CPUS_MAX / (8 * sizeof(unsigned long))] = { 0 };
	unsigned count = 0;

	if (sched_getaffinity(0, sizeof(mask), (cpu_set_t *)mask))
		return 1;
	for (size_t i = 0; i < sizeof(mask) / sizeof(mask[0]); i++)
		count += (unsigned)__builtin_popcountl(mask[i]);
	return count;
}

/* Reads /proc and /sys: for starting up and for rare decisions, not for the data path. Any thread.
 * Return: at least 1. */
unsigned zi_cpu_allowed_count(void)
{
	unsigned count = affinity_count();
	unsigned quota_count = zi_cgroup_cpu_count("/proc/self/cgroup", "/sys/fs/cgroup");

	if (quota_count && quota_count < count)
		count = quota_count;
	return count ? count : 1;
}
