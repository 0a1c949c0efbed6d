/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binding: threads by hwloc, memory by mbind(2). Floor 2.
 *
 * On a faked topology (synthetic, XML) the nodes are not this machine's: placement is then only
 * decided, and binding does nothing. So it is on a machine with a single node, where it could gain
 * nothing, and where sandboxes like to forbid it.
 */
#include <errno.h>
#include <hwloc.h>
#include <numaif.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/topo/topo_private.h"

/* As many CPUs as Linux can be built for. */
#define AFFINITY_WORDS 128u

/* mbind() takes a mask of nodes in words, and wants one bit more than it has (its manual,
 * "NOTES"). */
#define MASK_WORDS 16u
#define MASK_BITS  (MASK_WORDS * 64u)

static bool may_run_on(const struct topo_node *node, const unsigned long *cpus)
{
	int cpu = -1;

	while ((cpu = hwloc_bitmap_next(node->cpuset, cpu)) >= 0 && cpu < (int)AFFINITY_WORDS * 64)
		if (cpus[cpu / 64] >> cpu % 64 & 1)
			return true;
	return false;
}

/*
 * @node: an index into topo->nodes. A node without CPUs (memory alone) leaves the thread unbound.
 * Return: 0, -EPERM, -EINVAL. Context: the thread to be bound.
 */
int topo_bind_thread(const struct topo *topo, uint32_t node)
{
	assert(node < topo->node_count);
	if (!topo->is_this_system || !topo->nodes[node].cpu_count)
		return 0;
	if (hwloc_set_cpubind(topo->hwloc, topo->nodes[node].cpuset, HWLOC_CPUBIND_THREAD))
		return err_origin(-errno);
	return 0;
}

/*
 * By the CPUs that its main thread may run on: taskset, a cpuset, `zctl launch` and numactl all
 * show there, while a policy of memory alone cannot be asked of another process. CPUs are the
 * kernel's numbers also on a faked topology: placement is decided as if this were that machine.
 */
uint32_t topo_node_of_process(const struct topo *topo, int pid, uint32_t otherwise)
{
	unsigned long cpus[AFFINITY_WORDS] = { 0 };
	uint32_t first = otherwise;
	bool is_found = false;

	assert(otherwise < topo->node_count);
	/* Past the C library, which insists on cpu_set_t. Returns how many bytes the kernel has. */
	if (pid <= 0 || syscall(SYS_sched_getaffinity, pid, sizeof(cpus), cpus) <= 0)
		return otherwise;
	for (uint32_t i = 0; i < topo->node_count; i++) {
		if (!may_run_on(&topo->nodes[i], cpus))
			continue;
		if (i == otherwise)
			return otherwise;
		if (!is_found)
			first = i;
		is_found = true;
	}
	return first;
}

/* @base: page-aligned. Return: 0, -EINVAL, -EPERM, -ERANGE for a node that no mask can name. */
int topo_prefer_node(uint32_t os_index, void *base, uint64_t bytes)
{
	unsigned long mask[MASK_WORDS] = { 0 };

	static_assert(sizeof(mask[0]) == 8, "a word has 64 bits");
	if (os_index >= MASK_BITS - 1)
		return err_origin(-ERANGE);
	mask[os_index / 64] = 1ul << os_index % 64;
	if (mbind(base, bytes, MPOL_PREFERRED, mask, MASK_BITS, 0))
		return err_origin(-errno);
	return 0;
}

/*
 * Fresh pages of [base, base + bytes) come from @node while it has some, and from elsewhere after
 * that: being slower is better than being killed. Also binds a shared mapping's file, for all who
 * map it. Pages that are there already stay.
 * Return: 0, -EINVAL, -EPERM. Context: any thread.
 */
int topo_bind_memory(const struct topo *topo, uint32_t node, void *base, uint64_t bytes)
{
	assert(node < topo->node_count);
	if (!topo->is_this_system || topo->node_count == 1)
		return 0;
	return err_trace(topo_prefer_node(topo->nodes[node].os_index, base, bytes));
}
