/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about the topology. Floor 2, any thread: it does not change after topo_new().
 *
 * A path leads to a disk through the device number of its file system and through /sys, which knows
 * partitions and what stacked devices stand on. File systems without a device of their own (tmpfs,
 * overlay, btrfs, network) lead nowhere: node 0.
 */
#include "daemon/topo/topo.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/text.h"
#include "daemon/topo/topo_private.h"

#define DISK_NAME_BYTES sizeof(((struct topo_disk *)NULL)->name)
/* LVM on LUKS on RAID is three: a bound, not a limit anyone meets. */
#define STACK_DEPTH_MAX 8

static DIR *directory_close(DIR *directory)
{
	(void)closedir(directory); /* Fails only by misuse. */
	return NULL;
}
ZI_DEFINE_CLEANUP(DIR *, directory_close)

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Appends "/@part" to @path, which holds PATH_MAX. False: it does not fit, and is as it was. */
static bool path_push(char *path, const char *part)
{
	size_t used_bytes = strlen(path);

	if (snprintf(path + used_bytes, PATH_MAX - used_bytes, "/%s", part) <
	    (int)(PATH_MAX - used_bytes))
		return true;
	path[used_bytes] = '\0';
	return false;
}

static bool path_has(const char *folder, const char *part)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s", folder); /* Fits: it is one. */
	return path_push(path, part) && access(path, F_OK) == 0;
}

/* Replaces @path, the folder of a stacked device in /sys, by that of the first device below it.
 * False: there is none. The order is made certain by taking the least name. */
static bool path_descend(char *path)
{
	_cleanup_(directory_closep) DIR *directory = NULL;
	char below[NAME_MAX + 1] = "";
	char slaves[PATH_MAX];
	char resolved[PATH_MAX];

	(void)snprintf(slaves, sizeof(slaves), "%s", path); /* Fits: PATH_MAX both. */
	if (!path_push(slaves, "slaves"))
		return false;
	directory = opendir(slaves);
	if (!directory)
		return false;
	for (struct dirent *entry; (entry = readdir(directory));)
		if (entry->d_name[0] != '.' && (!below[0] || strcmp(entry->d_name, below) < 0))
			(void)snprintf(below, sizeof(below), "%s", entry->d_name);
	if (!below[0] || !path_push(slaves, below) || !realpath(slaves, resolved))
		return false;
	(void)snprintf(path, PATH_MAX, "%s", resolved); /* Fits: PATH_MAX both. */
	return true;
}

/* See topo_private.h. */
int topo_disk_of_device(const char *sys_path, uint32_t major, uint32_t minor, char *ret_name)
{
	char link[PATH_MAX];
	char path[PATH_MAX];

	if (snprintf(link, sizeof(link), "%s/dev/block/%u:%u", sys_path, major, minor) >=
	    (int)sizeof(link))
		return err_origin(-ENAMETOOLONG);
	if (!realpath(link, path))
		return err_origin(-ENODEV);
	for (int depth = 0; depth < STACK_DEPTH_MAX; depth++) {
		/* A partition's folder lies in its disk's. */
		if (path_has(path, "partition"))
			*strrchr(path, '/') = '\0';
		if (!path_descend(path))
			break;
	}
	if (zi_copy_name(ret_name, DISK_NAME_BYTES, base_name(path)))
		return err_origin(-ENODEV);
	return 0;
}

/* The disk's node, if it is known. */
static bool node_of_disk(const struct topo_disk *disk, uint32_t *ret_node)
{
	if (disk->node < 0)
		return false;
	*ret_node = (uint32_t)disk->node;
	return true;
}

/*
 * @major, @minor: of a block device, whole, partition or stacked.
 * Return: index of the node on which its disk hangs, 0 when that is not known.
 */
uint32_t topo_node_of_device(const struct topo *topo, uint32_t major, uint32_t minor)
{
	char name[DISK_NAME_BYTES];
	uint32_t node = 0;

	for (uint32_t i = 0; i < topo->disk_count; i++) {
		const struct topo_disk *disk = &topo->disks[i];

		if (disk->major == major && disk->minor == minor && node_of_disk(disk, &node))
			return node;
	}
	if (topo_disk_of_device("/sys", major, minor, name))
		return 0;
	for (uint32_t i = 0; i < topo->disk_count; i++)
		if (strcmp(topo->disks[i].name, name) == 0 && node_of_disk(&topo->disks[i], &node))
			return node;
	return 0;
}

/* Cuts the last part off @path, which holds PATH_MAX. False: it had none above it. */
static bool path_go_up(char *path)
{
	char *slash = strrchr(path, '/');

	if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
		return false;
	if (slash)
		slash[slash == path] = '\0'; /* "/a" becomes "/". */
	else
		(void)snprintf(path, PATH_MAX, "."); /* "a", below the working directory. */
	return true;
}

/*
 * @path: a file, a folder or a block device. Where it does not exist yet, the nearest folder above
 * that does: the store will be made there.
 * Return: index of a node.
 */
uint32_t topo_node_of_path(const struct topo *topo, const char *path)
{
	char existing[PATH_MAX];
	struct stat status;
	dev_t device;

	if (zi_copy_name(existing, sizeof(existing), path))
		return 0;
	while (stat(existing, &status)) {
		if (errno != ENOENT || !path_go_up(existing))
			return 0;
	}
	device = S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev;
	return topo_node_of_device(topo, major(device), minor(device));
}

/* A PCI address: domain, bus, device, function. False: @text is none. */
static bool read_pci(const char *text, uint32_t ret_numbers[4])
{
	char rest;

	return sscanf(text, "%x:%x:%x.%x%c", &ret_numbers[0], &ret_numbers[1], &ret_numbers[2],
	              &ret_numbers[3], &rest) == 4;
}

/* @pci: "00000000:3B:00.0": the width of the domain and the letters' case do not matter. */
int32_t topo_find_gpu(const struct topo *topo, const char *pci)
{
	uint32_t wanted[4], found[4];

	if (!read_pci(pci, wanted))
		return -1;
	for (uint32_t i = 0; i < topo->gpu_count; i++)
		if (read_pci(topo->gpus[i].pci, found) && !memcmp(found, wanted, sizeof(found)))
			return (int32_t)i;
	return -1;
}

/*
 * @os_index: of the NUMA node that the driver names; negative: it names none.
 * Return: index of a node; -1: not known.
 */
int32_t topo_node_of_gpu(const struct topo *topo, int32_t os_index, const char *pci)
{
	int32_t gpu = topo_find_gpu(topo, pci);

	for (uint32_t i = 0; os_index >= 0 && i < topo->node_count; i++)
		if (topo->nodes[i].os_index == (uint32_t)os_index)
			return (int32_t)i;
	return gpu < 0 ? -1 : topo->gpus[gpu].node;
}

/* @limit: 0 for none. Return: how many pool threads @node gets, at least 1. */
uint32_t topo_pool_threads(const struct topo *topo, uint32_t node, uint32_t limit)
{
	uint32_t count;

	assert(node < topo->node_count);
	count = topo->nodes[node].cpu_count;
	if (limit && count > limit)
		count = limit;
	return count ? count : 1;
}
