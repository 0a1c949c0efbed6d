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

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/topo/topo_private.h"

/* mbind() takes a mask of nodes in words, and wants one bit more than it has (its manual,
 * "NOTES"). */
#define MASK_WORDS 16u
#define MASK_BITS  (MASK_WORDS * 64u)

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
