/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named threads with every signal blocked (signals are the control thread's). The entry returns an
 * errno that zi_thread_join() hands back. Floor 0.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

typedef int (*zi_thread_fn)(void *arg);

struct zi_thread {
	pthread_t handle;
	zi_thread_fn entry;
	void *arg;
	int result;
	bool is_started;
	char name[16];
};

/* @thread stays at its address until joined. @name: at most 15 bytes. */
int zi_thread_start(struct zi_thread *thread, const char *name, zi_thread_fn entry, void *arg);
/* 0 when never started; otherwise the entry's result. */
int zi_thread_join(struct zi_thread *thread);
/* CPUs this process may use (affinity and cgroup quota, at least 1). */
unsigned zi_cpu_allowed_count(void);
