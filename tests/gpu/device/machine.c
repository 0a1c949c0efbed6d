/* SPDX-License-Identifier: Apache-2.0 */
/* The machine of a run; see machine.h. */
#include "tests/gpu/device/machine.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "common/base/text.h"
#include "common/gpu/device.h"
#include "common/gpu/driver.h"

#define UNKNOWN "unknown"

/* Transfers per second and lane to generations: PCI Express Base Specification. */
static const struct {
	double rate; /* GT/s, as sysfs says it */
	const char *generation;
} generations[] = {
	{ 2.5, "1.0" }, { 5, "2.0" }, { 8, "3.0" }, { 16, "4.0" }, { 32, "5.0" }, { 64, "6.0" },
};

/* @capacity: of @ret_text, which gets "unknown" where the file is not there. */
static void read_link_file(const char *pci, const char *name, char *ret_text, size_t capacity)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", pci, name);
	if (zi_read_text(path, ret_text, capacity))
		(void)snprintf(ret_text, capacity, UNKNOWN);
}

/* "5.0 x16" of the present link, or of the widest one. */
static void describe_link(const char *pci, const char *kind, char *ret_text, size_t capacity)
{
	char name[40], speed[64], width[32];
	const char *generation = speed;

	(void)snprintf(name, sizeof(name), "%s_link_speed", kind);
	read_link_file(pci, name, speed, sizeof(speed));
	(void)snprintf(name, sizeof(name), "%s_link_width", kind);
	read_link_file(pci, name, width, sizeof(width));
	for (size_t i = 0; i < ZI_COUNT_OF(generations); i++)
		if (strtod(speed, NULL) == generations[i].rate)
			generation = generations[i].generation;
	(void)snprintf(ret_text, capacity, "%.20s x%.12s", generation, width);
}

static void read_link(const char *pci, char *ret_text, size_t capacity)
{
	char present[48], widest[48];

	describe_link(pci, "current", present, sizeof(present));
	describe_link(pci, "max", widest, sizeof(widest));
	if (!strcmp(present, widest))
		(void)snprintf(ret_text, capacity, "PCIe %.40s", present);
	else
		(void)snprintf(ret_text, capacity, "PCIe %.20s (can %.20s)", present, widest);
}

/* The version of NVIDIA's kernel module, which is that of the driver. */
static void read_driver(const struct zi_gpu_driver *driver, char *ret_text, size_t capacity)
{
	char version[48];

	if (zi_read_text("/sys/module/nvidia/version", version, sizeof(version)))
		(void)snprintf(version, sizeof(version), UNKNOWN);
	(void)snprintf(ret_text, capacity, "driver %s (CUDA %d.%d)", version,
	               driver->version / 1000, driver->version % 1000 / 10);
}

void machine_read(const struct zi_gpu_driver *driver, const struct zi_gpu_device *device,
                  struct machine *ret_machine)
{
	struct machine machine;
	struct utsname name;
	time_t now = time(NULL);
	struct tm day;

	(void)snprintf(machine.device, sizeof(machine.device),
	               "%.80s (%s, compute capability %u.%u)", device->name,
	               zi_format_bytes(device->bytes).chars, device->capability / 10,
	               device->capability % 10);
	read_driver(driver, machine.driver, sizeof(machine.driver));
	read_link(device->pci, machine.link, sizeof(machine.link));
	if (uname(&name))
		(void)snprintf(machine.kernel, sizeof(machine.kernel), UNKNOWN);
	else
		(void)snprintf(machine.kernel, sizeof(machine.kernel), "%.10s %.64s", name.sysname,
		               name.release);
	if (!gmtime_r(&now, &day) || !strftime(machine.date, sizeof(machine.date), "%F", &day))
		(void)snprintf(machine.date, sizeof(machine.date), UNKNOWN);
	*ret_machine = machine;
}
