/* SPDX-License-Identifier: Apache-2.0 */
/* The drive under a file, and its health page. Floor 2; blocks. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/nvme_ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "nvme/smart.h"

#define SMART_GET_LOG_PAGE 0x02u       /* admin opcode */
#define SMART_LOG_ID       0x02u       /* SMART / Health Information */
#define SMART_ALL          0xffffffffu /* of the controller, not of a namespace */
#define SMART_TIMEOUT_MS   10000u
/* Mapped devices on mapped devices: deeper than anybody stacks them. */
#define SMART_DEPTH_MAX 8u

/* The only device that @path's is made of, into @path (PATH_MAX bytes). */
static int smart_descend(char *path, struct zi_text *text)
{
	char slaves[PATH_MAX];
	char only[NVME_NAME_BYTES] = "";
	const struct dirent *entry;
	DIR *directory;
	uint32_t count = 0;

	if (snprintf(slaves, sizeof(slaves), "%s/slaves", path) >= (int)sizeof(slaves))
		return err_origin(-ENAMETOOLONG);
	directory = opendir(slaves);
	while (directory && (entry = readdir(directory)))
		if (entry->d_name[0] != '.' && !zi_copy_name(only, sizeof(only), entry->d_name))
			count++;
	if (directory)
		(void)closedir(directory); /* Only read. */
	if (count != 1) {
		zi_text_set(text,
		            count ? "not reported by this device: %s lies on %u devices"
		                  : "not reported by this device (%s is not NVMe)",
		            strrchr(path, '/') + 1, count);
		return -ENODEV;
	}
	if (snprintf(path, PATH_MAX, "%s/%s", slaves, only) >= PATH_MAX)
		return err_origin(-ENAMETOOLONG);
	return 0;
}

/* See smart.h. */
int nvme_smart_find(const char *sysfs, uint32_t major, uint32_t minor, struct zi_text *text,
                    char ret_name[NVME_NAME_BYTES])
{
	char link[PATH_MAX], path[PATH_MAX];

	if (snprintf(link, sizeof(link), "%s/dev/block/%u:%u", sysfs, major, minor) >=
	    (int)sizeof(link))
		return err_origin(-ENAMETOOLONG);
	for (uint32_t i = 0; i < SMART_DEPTH_MAX; i++) {
		struct stat status;
		char *name;
		int r;

		if (!realpath(link, path)) {
			zi_text_set(text,
			            "not reported by this device: %u:%u is no block device's "
			            "file system",
			            major, minor);
			return -ENODEV;
		}
		/* A partition lies in the folder of its disk. */
		if (snprintf(link, sizeof(link), "%s/partition", path) < (int)sizeof(link) &&
		    !stat(link, &status))
			*strrchr(path, '/') = '\0';
		name = strrchr(path, '/') + 1;
		if (!strncmp(name, "nvme", 4))
			return err_trace(zi_copy_name(ret_name, NVME_NAME_BYTES, name));
		r = smart_descend(path, text);
		if (r)
			return r;
		memcpy(link, path, sizeof(link));
	}
	return err_origin(zi_text_error(text, -ELOOP, "%u:%u is mapped too deep", major, minor));
}

/* See smart.h. */
int nvme_smart_read(int fd, struct zi_text *text, struct nvme_smart *ret_smart)
{
	_Alignas(4096) uint8_t page[NVME_SMART_BYTES] = { 0 };
	struct nvme_admin_cmd command = {
		.opcode = SMART_GET_LOG_PAGE,
		.nsid = SMART_ALL,
		.addr = (uint64_t)(uintptr_t)page,
		.data_len = sizeof(page),
		/* Doublewords less one, and the identifier. */
		.cdw10 = (sizeof(page) / 4 - 1) << 16 | SMART_LOG_ID,
		.timeout_ms = SMART_TIMEOUT_MS,
	};
	_cleanup_(zi_closep) int device_fd = -1;
	char name[NVME_NAME_BYTES];
	char path[NVME_NAME_BYTES + 8];
	struct stat status;
	dev_t number;
	int r;

	if (fstat(fd, &status))
		return err_origin(-errno);
	number = S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev;
	r = nvme_smart_find("/sys", major(number), minor(number), text, name);
	if (r)
		return r;
	(void)snprintf(path, sizeof(path), "/dev/%s", name); /* Fits. */
	device_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (device_fd < 0) {
		r = -errno;
		return zi_text_error(text, err_origin(r), "%s cannot be opened: %s%s", path,
		                     strerror(-r), r == -EACCES ? " (needs CAP_SYS_ADMIN)" : "");
	}
	r = ioctl(device_fd, NVME_IOCTL_ADMIN_CMD, &command);
	if (r < 0) {
		r = -errno;
		return zi_text_error(text, err_origin(r), "%s does not say: %s%s", path,
		                     strerror(-r),
		                     r == -EACCES || r == -EPERM ? " (needs CAP_SYS_ADMIN)" : "");
	}
	if (r > 0) /* A status of NVMe: it has no such page, say. */
		return zi_text_error(text, err_origin(-ENODEV),
		                     "not reported by this device (%s answers status 0x%x)", path,
		                     (unsigned)r);
	nvme_smart_parse(page, ret_smart);
	return 0;
}
