/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the node is made of and how far apart: NUMA nodes, CPUs, disks, GPUs (hwloc, libnuma), and
 * where buffers, rings and pool threads therefore go. Floor 2. Immutable after topo_new().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"

#define TOPO_NODES_MAX 64u
#define TOPO_DISKS_MAX 64u
#define TOPO_GPUS_MAX  64u

struct topo_node {
	uint32_t os_index;     /* of the NUMA node */
	uint32_t cpu_count;    /* usable by this process */
	uint64_t memory_bytes; /* as the kernel claims it; never a capacity (docs) */
	void *cpuset;          /* hwloc bitmap */
};

struct topo_disk {
	char name[32]; /* "nvme0n1", "vda" */
	int32_t node;  /* index into nodes, -1: no locality known */
	uint32_t major, minor;
};

/* GPUs of NVIDIA, the only ones that zinf can use. */
struct topo_gpu {
	char pci[16]; /* "0000:3b:00.0" */
	int32_t node; /* index into nodes, -1: no locality known */
};

struct topo {
	void *hwloc;
	bool is_this_system; /* false for synthetic and XML: binding is a no-op */
	uint32_t node_count;
	struct topo_node nodes[TOPO_NODES_MAX];
	uint32_t disk_count;
	struct topo_disk disks[TOPO_DISKS_MAX];
	uint32_t gpu_count;
	struct topo_gpu gpus[TOPO_GPUS_MAX];
};

/* @source: NULL this machine; "synthetic:DESCRIPTION"; "xml:PATH". */
int topo_new(const char *source, struct zi_text *text, struct topo **ret_topo);
struct topo *topo_free(struct topo *topo);
ZI_DEFINE_CLEANUP(struct topo *, topo_free)
/* Node that memory and threads serving @path (a store) belong to: its disk's node, else 0. */
uint32_t topo_node_of_path(const struct topo *topo, const char *path);
uint32_t topo_node_of_device(const struct topo *topo, uint32_t major, uint32_t minor);
/* Index into gpus of the one with that PCI address, as its driver writes it. -1: none. */
int32_t topo_find_gpu(const struct topo *topo, const char *pci);
/* Node of a GPU. @os_index: NUMA node that its driver names, negative: none. @pci: its address, as
 * the driver writes it. -1: not known. */
int32_t topo_node_of_gpu(const struct topo *topo, int32_t os_index, const char *pci);
/* Node on whose CPUs alone the process may run. Of one that may run on several: @otherwise where
 * that is one of them, else the first. @otherwise, too, when it is not known. */
uint32_t topo_node_of_process(const struct topo *topo, int pid, uint32_t otherwise);
/* Binds the calling thread to the CPUs of a node. 0 when not this system. */
int topo_bind_thread(const struct topo *topo, uint32_t node);
/* Prefers a node for fresh pages of a mapping (MPOL_PREFERRED; before first touch). */
int topo_bind_memory(const struct topo *topo, uint32_t node, void *base, uint64_t bytes);
/* Pool threads of a node: its usable CPUs, at least 1, at most @limit (0: no limit). */
uint32_t topo_pool_threads(const struct topo *topo, uint32_t node, uint32_t limit);
/* Bytes this process may use at all: the smallest of cgroup limits (v1, v2) and /proc/meminfo. */
uint64_t topo_memory_limit_bytes(void);
/* Free pages of the default huge page size, in bytes. */
uint64_t topo_huge_free_bytes(void);
