/* SPDX-License-Identifier: Apache-2.0 */
/* Bare round trips between two processes (pingpong.h). */
#include "bench/pingpong.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/report.h"
#include "common/base/clock.h"
#include "common/base/fd.h"

/* Each word on a cache line of its own. */
struct shared {
	_Alignas(128) uint32_t ping;
	_Alignas(128) uint32_t pong;
};

struct table {
	enum pingpong_kind kind;
	struct shared *shared;
	int ping_fd, pong_fd;
};

static void futex_wait(uint32_t *word, uint32_t value)
{
	(void)syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0); /* looked at again */
}

static void send_word(const struct table *table, uint32_t *word, int fd, uint32_t value)
{
	uint64_t one = 1;

	if (table->kind == PINGPONG_EVENTFD) {
		if (write(fd, &one, sizeof one) != sizeof one)
			abort();
		return;
	}
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	if (table->kind == PINGPONG_FUTEX)
		(void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL,
		              0); /* none waiting: fine */
}

static void await_word(const struct table *table, uint32_t *word, int fd, uint32_t value)
{
	uint64_t count;

	if (table->kind == PINGPONG_EVENTFD) {
		if (read(fd, &count, sizeof count) != sizeof count)
			abort();
		return;
	}
	for (;;) {
		uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);

		if (seen == value)
			return;
		if (table->kind == PINGPONG_FUTEX)
			futex_wait(word, seen);
		else
			__builtin_ia32_pause();
	}
}

int pingpong_pin(int pid_or_tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(pid_or_tid, sizeof set, &set) ? -errno : 0;
}

static void partner(const struct table *table, uint32_t rounds, int cpu)
{
	if (pingpong_pin(0, cpu))
		_exit(1);
	for (uint32_t i = 1; i <= rounds; i++) {
		await_word(table, &table->shared->ping, table->ping_fd, i);
		send_word(table, &table->shared->pong, table->pong_fd, i);
	}
	_exit(0);
}

static int64_t measure(const struct table *table, uint32_t rounds)
{
	double *times = calloc(rounds, sizeof *times);
	int64_t median_ns;

	if (!times)
		return -ENOMEM;
	for (uint32_t i = 1; i <= rounds; i++) {
		uint64_t start_ns = zi_clock_now_ns();

		send_word(table, &table->shared->ping, table->ping_fd, i);
		await_word(table, &table->shared->pong, table->pong_fd, i);
		times[i - 1] = (double)(zi_clock_now_ns() - start_ns);
	}
	median_ns = (int64_t)bench_median(times, rounds);
	free(times);
	return median_ns;
}

int64_t pingpong_run(enum pingpong_kind kind, uint32_t rounds, int cpu_here, int cpu_there)
{
	struct table table = { .kind = kind, .ping_fd = -1, .pong_fd = -1 };
	cpu_set_t before;
	int64_t result;
	int status = 0;
	pid_t pid;

	table.shared = mmap(NULL, sizeof *table.shared, PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (table.shared == MAP_FAILED)
		return -errno;
	table.ping_fd = eventfd(0, EFD_CLOEXEC);
	table.pong_fd = eventfd(0, EFD_CLOEXEC);
	if (sched_getaffinity(0, sizeof before, &before))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		partner(&table, rounds, cpu_there);
	result = pingpong_pin(0, cpu_here);
	if (!result)
		result = measure(&table, rounds);
	(void)waitpid(pid, &status, 0);
	if (status)
		result = -EIO;
	(void)sched_setaffinity(0, sizeof before, &before);
	(void)munmap(table.shared, sizeof *table.shared);
	(void)zi_close(table.ping_fd);
	(void)zi_close(table.pong_fd);
	return result;
}
