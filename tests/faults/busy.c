/* SPDX-License-Identifier: Apache-2.0 */
/* Busy loops beside a sweep (faults.h). They die with this process. */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faults/faults.h"

#define LOOPS_MAX 16u

static pid_t loops[LOOPS_MAX];
static uint32_t loop_count;

static uint32_t cpu_count(void)
{
	cpu_set_t set;
	int count = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);

	return count < (int)LOOPS_MAX ? (uint32_t)count : LOOPS_MAX;
}

/* See faults.h. */
bool faults_busy_start(void)
{
	uint32_t count = cpu_count();
	pid_t parent = getpid();

	for (loop_count = 0; loop_count < count; loop_count++) {
		pid_t pid = fork();

		if (pid < 0)
			return faults_says(false, "fork", "failed");
		if (!pid) {
			volatile uint64_t turn = 0;

			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (getppid() == parent)
				for (uint32_t i = 0; i < 1000000; i++)
					turn += i;
			_exit(0);
		}
		loops[loop_count] = pid;
	}
	faults_busy_set(false);
	return true;
}

/* See faults.h. */
void faults_busy_set(bool is_busy)
{
	for (uint32_t i = 0; i < loop_count; i++)
		(void)kill(loops[i], is_busy ? SIGCONT : SIGSTOP); /* It is our own child. */
}

/* See faults.h. */
void faults_busy_stop(void)
{
	for (uint32_t i = 0; i < loop_count; i++) {
		(void)kill(loops[i], SIGKILL);
		(void)waitpid(loops[i], NULL, 0);
	}
	loop_count = 0;
}
