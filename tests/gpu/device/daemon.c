/* SPDX-License-Identifier: Apache-2.0 */
/* The private zinfd of a run; see daemon.h. */
#include "tests/gpu/device/daemon.h"

#include <limits.h>
#include <stdio.h>

#include "tests/gpu/device/trial.h"
#include "tests/harness/harness.h"

int daemon_start(const struct trial *trial, const char *cpu_capacity, const char *store_size,
                 struct harness *ret_harness)
{
	/* Kept for a restart. A fake GPU has 1 GiB. */
	static char section[PATH_MAX + 100];

	(void)snprintf(section, sizeof(section), "[gpu]\nenable = yes\nreserve = %s\n%s%s%s",
	               trial->is_fake ? "64M" : "1G", trial->options.driver ? "driver = " : "",
	               trial->options.driver ? trial->options.driver : "",
	               trial->options.driver ? "\n" : "");
	return harness_start(ret_harness, &(struct harness_options){ .cpu_capacity = cpu_capacity,
	                                                             .nvme_size = store_size,
	                                                             .nvme_extra = "direct = try\n",
	                                                             .extra = section });
}
