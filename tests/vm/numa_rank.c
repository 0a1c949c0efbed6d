/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a machine with several NUMA nodes, which `zctl launch` has bound to one of them: asks
 * the kernel where the pages of its arena lie, then makes calls that go by nodes. Prints a line;
 * exits with 0 when all pages are on the node of its CPU and all results are right.
 * Usage: zctl launch … numa_rank (with as many ranks as there may be)
 */
#include <errno.h>
#include <numaif.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "zinf/zinf.h"

#define COUNT       (1u << 20) /* floats: 4 MiB */
#define PAGE_BYTES  4096u
#define PAGE_COUNT  (COUNT * sizeof(float) / PAGE_BYTES)
#define ARENA_BYTES (COUNT * sizeof(float))

#define TRY(call)                                                                           \
	do {                                                                                \
		if (call) {                                                                 \
			printf("%s\n", zinf ? zinf_error_text(zinf) : zinf_attach_error()); \
			return 1;                                                           \
		}                                                                           \
	} while (0)

/* Of the pages at @memory, how many lie on @node; they are touched here. */
static uint32_t count_on(void *memory, int node)
{
	static void *pages[PAGE_COUNT];
	static int where[PAGE_COUNT];
	uint32_t count = 0;

	for (uint32_t i = 0; i < PAGE_COUNT; i++) {
		pages[i] = (char *)memory + (size_t)i * PAGE_BYTES;
		(void)*(volatile char *)pages[i];
	}
	if (syscall(SYS_move_pages, 0, PAGE_COUNT, pages, NULL, where, 0)) {
		printf("move_pages: %s\n", strerror(errno));
		return 0;
	}
	for (uint32_t i = 0; i < PAGE_COUNT; i++)
		count += where[i] == node;
	return count;
}

static int call(struct zinf *zinf, float *data)
{
	uint32_t world = (uint32_t)zinf_world_size(zinf), rank = (uint32_t)zinf_rank(zinf);
	uint32_t part = COUNT / world;

	for (uint32_t i = 0; i < COUNT; i++)
		data[i] = (float)(rank + i % 1000);
	TRY(zinf_coll_all_reduce(zinf, data, data, COUNT, ZINF_F32, ZINF_SUM, NULL));
	for (uint32_t i = 0; i < COUNT; i++)
		if (data[i] != (float)(world * (world - 1) / 2 + world * (i % 1000))) {
			printf("element %u of the sum is %g\n", i, (double)data[i]);
			return 1;
		}
	for (uint32_t i = 0; i < part; i++)
		data[rank * part + i] = (float)(rank * 7 + i % 1000);
	TRY(zinf_coll_all_gather(zinf, data + rank * part, data, part, ZINF_F32, NULL));
	for (uint32_t i = 0; i < part * world; i++)
		if (data[i] != (float)(i / part * 7 + i % part % 1000)) {
			printf("element %u of what was gathered is %g\n", i, (double)data[i]);
			return 1;
		}
	return 0;
}

int main(void)
{
	struct zinf_options options = ZINF_OPTIONS_INIT; /* rank and job: the launcher's */
	struct zinf *zinf = NULL;
	unsigned cpu, node;
	uint32_t near;
	float *data;
	int code;

	TRY(zinf_attach(&options, &zinf));
	TRY(zinf_coll_open(zinf, ARENA_BYTES));
	TRY(zinf_coll_alloc(zinf, ARENA_BYTES, (void **)&data));
	if (getcpu(&cpu, &node))
		return 1;
	near = count_on(data, (int)node);
	code = call(zinf, data);
	printf("rank %d on CPU %u: %u of %u pages on node %u\n", (int)zinf_rank(zinf), cpu, near,
	       (unsigned)PAGE_COUNT, node);
	zinf_detach(zinf);
	return code || near != PAGE_COUNT;
}
