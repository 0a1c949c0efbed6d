/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether completions of a store could be polled for (IOPOLL). Floor 2, start-up only.
 *
 * The kernel takes an IOPOLL ring for any O_DIRECT file, and then burns a core waiting for an
 * interrupt where the device has no poll queues; so the device is asked, through sysfs.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "nvme/nvme.h"

/* "1\n" of the device's queue; a partition's is its disk's. False: there is none to read. */
static bool poll_read(dev_t device, char *answer, size_t capacity)
{
	static const char *const places[] = { "queue", "../queue" };

	for (size_t i = 0; i < ZI_COUNT_OF(places); i++) {
		char path[96];

		(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/io_poll", major(device),
		               minor(device), places[i]); /* Fits. */
		if (!zi_read_text(path, answer, capacity))
			return true;
	}
	return false;
}

/**
 * nvme_store_check_poll() - refuses to poll where it cannot work
 * @store: open
 * @text: why, and what to do
 *
 * Return: 0; -EOPNOTSUPP; an errno of fstat().
 */
int nvme_store_check_poll(const struct nvme_store *store, struct zi_text *text)
{
	struct stat status;
	char answer[16];
	dev_t device;

	if (fstat(store->fd, &status))
		return err_origin(-errno);
	device = store->is_block_device ? status.st_rdev : status.st_dev;
	if (!store->is_direct)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"store '%s' cannot be polled: it is not read and written directly "
			"(O_DIRECT); set iopoll = no",
			store->path));
	if (!poll_read(device, answer, sizeof(answer)) || answer[0] != '1')
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"store '%s' cannot be polled: its device %u:%u has no poll queues (for "
			"NVMe: module parameter nvme.poll_queues=N); set iopoll = no",
			store->path, major(device), minor(device)));
	return 0;
}
