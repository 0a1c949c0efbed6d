/* SPDX-License-Identifier: Apache-2.0 */
/* Orders and answers of suite `coll`; see coll_order.h. The peer for Open MPI, which is compiled by
 * mpicc, has this file as well: it uses libc alone. */
#include "bench/coll_order.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const char *const names[] = {
	"barrier", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "step",
};

const char *coll_operation_name(enum coll_operation operation)
{
	return names[operation];
}

bool coll_order_parse(const char *text, struct coll_order *ret_order)
{
	struct coll_order order = { 0 };
	unsigned variant;
	char name[32];

	if (sscanf(text, "%31s %" SCNu64 " %" SCNu32 " %u", name, &order.bytes, &order.iterations,
	           &variant) != 4 ||
	    variant >= _COLL_VARIANT_COUNT)
		return false;
	order.variant = (enum coll_variant)variant;
	for (int i = 0; i <= COLL_STEP; i++)
		if (!strcmp(name, names[i])) {
			order.operation = (enum coll_operation)i;
			*ret_order = order;
			return true;
		}
	return false;
}

void coll_order_print(const struct coll_order *order, char text[static COLL_PACKET_BYTES])
{
	(void)snprintf(text, COLL_PACKET_BYTES, "%s %" PRIu64 " %" PRIu32 " %d",
	               names[order->operation], order->bytes, order->iterations,
	               (int)order->variant);
}

/* ---- for ranks ---- */

static void say(int socket_fd, const char *text)
{
	if (send(socket_fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		exit(1); /* nobody is left to work for */
}

int coll_rank_connect(unsigned rank, const char *words)
{
	const char *path = getenv("COLL_SOCKET");
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char text[COLL_PACKET_BYTES];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 || !path)
		return -1;
	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
		(void)close(fd);
		return -1;
	}
	(void)snprintf(text, sizeof text, "%u %s", rank, words);
	say(fd, text);
	return fd;
}

uint32_t coll_rank_number(const char *name)
{
	const char *text = getenv(name);

	return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

bool coll_rank_serve(unsigned rank, const char *words, coll_obey_fn obey, void *arg)
{
	int fd = coll_rank_connect(rank, words);
	struct coll_order order;
	int r = 0;

	if (fd < 0 || words[0] == 's')
		return false;
	while (!r && coll_rank_next(fd, &order))
		r = obey(arg, fd, &order);
	return !r;
}

bool coll_rank_next(int socket_fd, struct coll_order *ret_order)
{
	char text[COLL_PACKET_BYTES];
	ssize_t bytes = recv(socket_fd, text, sizeof text - 1, 0);

	if (bytes <= 0)
		return false;
	text[bytes] = '\0';
	return coll_order_parse(text, ret_order);
}

void coll_rank_answer(int socket_fd, uint64_t started_ns, uint64_t ended_ns)
{
	char text[COLL_PACKET_BYTES];

	(void)snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64, started_ns, ended_ns);
	say(socket_fd, text);
}

void coll_rank_refuse(int socket_fd, const char *reason)
{
	char text[COLL_PACKET_BYTES];

	(void)snprintf(text, sizeof text, "cannot %s", reason);
	say(socket_fd, text);
}

uint64_t coll_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void coll_rank_pin(unsigned rank)
{
	cpu_set_t all, one;
	unsigned wanted;

	if (sched_getaffinity(0, sizeof all, &all))
		return;
	wanted = rank % (unsigned)CPU_COUNT(&all);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && wanted-- == 0) {
			CPU_SET(cpu, &one);
			break;
		}
	(void)sched_setaffinity(0, sizeof one, &one);
}

void *coll_rank_memory(uint64_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	(void)madvise(memory, bytes, MADV_HUGEPAGE); /* small pages are slower, not wrong */
	memset(memory, 0, bytes);
	return memory;
}
