/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a drive says of its own health: the SMART / Health Information log page of NVMe (NVM Express
 * Base Specification 2.0, 5.16.1.3, log identifier 02h). Floor 2; any thread but a shard's: blocks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

#define NVME_SMART_BYTES 512u
#define NVME_NAME_BYTES  64u

struct nvme_smart {
	uint8_t critical_warning; /* bits: NVME_SMART_SPARE… */
	uint8_t spare_percent;    /* of spare capacity left */
	uint8_t spare_threshold_percent;
	uint8_t used_percent; /* of its rated life; 255: that or more, beyond 100 it goes on */
	int32_t celsius;      /* NVME_SMART_UNKNOWN_CELSIUS: not reported */
	uint64_t read_bytes;  /* of all its life, by thousands of 512; 0: not reported */
	uint64_t write_bytes; /* as above */
	uint64_t media_error_count; /* damage that it found and could not mend */
	uint64_t power_on_hours;
	uint64_t unsafe_shutdown_count;
};
#define NVME_SMART_UNKNOWN_CELSIUS INT32_MIN

/* Of critical_warning. */
#define NVME_SMART_SPARE       (1u << 0)
#define NVME_SMART_TEMPERATURE (1u << 1)
#define NVME_SMART_UNRELIABLE  (1u << 2)
#define NVME_SMART_READ_ONLY   (1u << 3)
#define NVME_SMART_BACKUP      (1u << 4)

/* @page: (NVME_SMART_BYTES,) as the drive gave it, little-endian. What does not fit 64 bits is
 * UINT64_MAX. Pure. */
void nvme_smart_parse(const uint8_t *page, struct nvme_smart *ret_smart);
/* Whether somebody should act: worn to @used_max percent, spare at its threshold, or a critical
 * warning other than temperature; @text says which. Pure. */
bool nvme_smart_is_worn(const struct nvme_smart *smart, uint32_t used_max, struct zi_text *text);
/* The NVMe namespace ("nvme0n1") under the block device @major:@minor: a partition's disk, and what
 * a mapped device alone lies on. @sysfs: "/sys", or a test's. -ENODEV with a sentence: none. */
int nvme_smart_find(const char *sysfs, uint32_t major, uint32_t minor, struct zi_text *text,
                    char ret_name[NVME_NAME_BYTES]);
/* Of the drive under an open file or device. -ENODEV: not reported by this device; -EACCES, -EPERM:
 * needs CAP_SYS_ADMIN; other errnos of the drive. All with a sentence. (smart_read.c) */
int nvme_smart_read(int fd, struct zi_text *text, struct nvme_smart *ret_smart);
