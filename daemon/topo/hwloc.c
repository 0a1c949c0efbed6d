/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The border to hwloc: the topology is taken out of it once, and only cpusets are kept in its form.
 * Floor 2, start-up.
 */
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/topo/topo_private.h"

#define SYNTHETIC "synthetic:"
#define XML       "xml:"
/* PCI: a display controller (base class 03) of NVIDIA, the only GPUs that zinf can use. */
#define GPU_VENDOR 0x10deu
#define GPU_CLASS  0x03u

static int refuse(struct zi_text *text, int error, const char *source, const char *why)
{
	return err_origin(zi_text_error(text, error, "Topology %s: %s",
	                                source ? source : "of this machine", why));
}

/* Tells @hwloc where the topology comes from. */
static int set_source(hwloc_topology_t hwloc, const char *source, struct zi_text *text)
{
	if (!source)
		return 0;
	if (strncmp(source, SYNTHETIC, strlen(SYNTHETIC)) == 0) {
		if (hwloc_topology_set_synthetic(hwloc, source + strlen(SYNTHETIC)))
			return refuse(text, -EINVAL, source,
			              "hwloc does not understand the description (hwloc(7), "
			              "Synthetic topologies)");
		return 0;
	}
	if (strncmp(source, XML, strlen(XML)) == 0) {
		if (access(source + strlen(XML), R_OK))
			return refuse(text, -errno, source, strerror(errno));
		if (hwloc_topology_set_xml(hwloc, source + strlen(XML)))
			return refuse(text, -EINVAL, source,
			              "is no topology in XML (lstopo x.xml)");
		return 0;
	}
	return refuse(text, -EINVAL, source,
	              "unknown kind, allowed are synthetic:DESCRIPTION and xml:PATH");
}

/* Return: 0, or what hwloc lacks. */
static int load(struct topo *topo, const char *source, struct zi_text *text)
{
	hwloc_topology_t hwloc = NULL;
	int r;

	if (hwloc_topology_init(&hwloc))
		return refuse(text, -ENOMEM, source, "no memory");
	topo->hwloc = hwloc;
	r = set_source(hwloc, source, text);
	if (r)
		return err_trace(r);
	/* Disks and GPUs, and the bridges that say where they hang. Fails only by misuse. */
	(void)hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	if (hwloc_topology_load(hwloc))
		return refuse(text, -EINVAL, source, "hwloc cannot load it");
	topo->is_this_system = hwloc_topology_is_thissystem(hwloc);
	return 0;
}

/* What this process may run on: NULL when all, or not known. The calling thread stands for all: at
 * start-up it is the only one, and a union over threads would hide its affinity. */
static hwloc_bitmap_t usable_cpus(const struct topo *topo)
{
	hwloc_bitmap_t usable = NULL;

	if (!topo->is_this_system)
		return NULL;
	usable = hwloc_bitmap_alloc();
	if (usable && hwloc_get_cpubind(topo->hwloc, usable, HWLOC_CPUBIND_THREAD) == 0)
		return usable;
	hwloc_bitmap_free(usable);
	return NULL;
}

static int add_nodes(struct topo *topo, const char *source, struct zi_text *text)
{
	hwloc_bitmap_t usable = usable_cpus(topo);
	hwloc_obj_t object = NULL;
	int r = 0;

	while ((object = hwloc_get_next_obj_by_type(topo->hwloc, HWLOC_OBJ_NUMANODE, object))) {
		struct topo_node *node = &topo->nodes[topo->node_count];
		hwloc_bitmap_t cpuset;

		if (topo->node_count == TOPO_NODES_MAX) {
			r = refuse(text, -E2BIG, source, "more than 64 NUMA nodes");
			break;
		}
		cpuset = hwloc_bitmap_dup(object->cpuset);
		if (!cpuset || (usable && hwloc_bitmap_and(cpuset, cpuset, usable))) {
			hwloc_bitmap_free(cpuset);
			r = refuse(text, -ENOMEM, source, "no memory");
			break;
		}
		*node = (struct topo_node){
			.os_index = object->os_index,
			.cpu_count = (uint32_t)hwloc_bitmap_weight(cpuset),
			.memory_bytes = object->attr->numanode.local_memory,
			.cpuset = cpuset,
		};
		topo->node_count++;
	}
	hwloc_bitmap_free(usable);
	return r;
}

/* Index of the node that an I/O device is local to, -1 when it is as near to all of several. */
static int32_t node_of_io(const struct topo *topo, hwloc_obj_t object)
{
	hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(topo->hwloc, object);
	int32_t index = -1;
	uint32_t local_count = 0;

	for (uint32_t i = 0; ancestor && i < topo->node_count; i++) {
		if (!hwloc_bitmap_isset(ancestor->nodeset, topo->nodes[i].os_index))
			continue;
		local_count++;
		if (index < 0)
			index = (int32_t)i;
	}
	/* A package of several nodes is better than nothing: the first of them. */
	if (local_count == topo->node_count && topo->node_count > 1)
		return -1;
	return index;
}

/* Block devices. One more than there is room for has no locality known: node 0. */
static void add_disks(struct topo *topo)
{
	hwloc_obj_t object = NULL;

	while ((object = hwloc_get_next_osdev(topo->hwloc, object))) {
		struct topo_disk *disk = &topo->disks[topo->disk_count];
		const char *number = hwloc_obj_get_info_by_name(object, "LinuxDeviceID");

		if (object->attr->osdev.type != HWLOC_OBJ_OSDEV_BLOCK || !object->name)
			continue;
		if (topo->disk_count == TOPO_DISKS_MAX)
			return;
		*disk = (struct topo_disk){ .node = node_of_io(topo, object) };
		if (zi_copy_name(disk->name, sizeof(disk->name), object->name))
			continue;
		/* 0:0 is no disk: without a number it is found by its name. */
		if (number && sscanf(number, "%u:%u", &disk->major, &disk->minor) != 2)
			disk->major = disk->minor = 0;
		topo->disk_count++;
	}
}

static void add_gpus(struct topo *topo)
{
	hwloc_obj_t object = NULL;

	while ((object = hwloc_get_next_pcidev(topo->hwloc, object))) {
		const struct hwloc_pcidev_attr_s *pci = &object->attr->pcidev;
		struct topo_gpu *gpu = &topo->gpus[topo->gpu_count];

		if (pci->vendor_id != GPU_VENDOR || pci->class_id >> 8 != GPU_CLASS)
			continue;
		if (topo->gpu_count == TOPO_GPUS_MAX)
			return;
		*gpu = (struct topo_gpu){ .node = node_of_io(topo, object) };
		/* Fits: a domain beyond 16 bits is cut, and found under no address. */
		(void)snprintf(gpu->pci, sizeof(gpu->pci), "%04x:%02x:%02x.%x", pci->domain,
		               pci->bus, pci->dev, pci->func);
		topo->gpu_count++;
	}
}

/*
 * @source: NULL, "synthetic:DESCRIPTION" or "xml:PATH". (With NULL hwloc itself follows
 * HWLOC_SYNTHETIC and HWLOC_XMLFILE; is_this_system says whether it did.) @ret_topo: the caller's.
 * Return: 0; -EINVAL, -ENOENT, -EACCES for a source; -E2BIG; -ENOMEM. @text has the sentence.
 */
int topo_new(const char *source, struct zi_text *text, struct topo **ret_topo)
{
	_cleanup_(topo_freep) struct topo *topo = calloc(1, sizeof(*topo));
	int r;

	if (!topo)
		return refuse(text, -ENOMEM, source, "no memory");
	r = load(topo, source, text);
	if (!r)
		r = add_nodes(topo, source, text);
	if (r)
		return err_trace(r);
	assert(topo->node_count > 0); /* hwloc makes one where the system names none. */
	add_disks(topo);
	add_gpus(topo);
	*ret_topo = zi_steal(topo);
	return 0;
}

/* NULL: nothing to do. Return: NULL. */
struct topo *topo_free(struct topo *topo)
{
	if (!topo)
		return NULL;
	for (uint32_t i = 0; i < topo->node_count; i++)
		hwloc_bitmap_free(topo->nodes[i].cpuset);
	if (topo->hwloc)
		hwloc_topology_destroy(topo->hwloc);
	free(topo);
	return NULL;
}
