/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binding threads to a node. Floor 2. Memory follows: its pages are taken where they are first
 * touched.
 *
 * On a faked topology (synthetic, XML) the nodes are not this machine's: placement is then only
 * decided, and binding does nothing. So it is on a machine with a single node, where it could gain
 * nothing, and where sandboxes like to forbid it.
 */
#include <errno.h>
#include <hwloc.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/topo/topo_private.h"

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
