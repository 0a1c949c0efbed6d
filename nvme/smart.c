/* SPDX-License-Identifier: Apache-2.0 */
/* The health page of a drive: what its bytes mean. Floor 2; pure. */
#include "nvme/smart.h"

#include <stdio.h>

#include "common/base/cleanup.h"

/* A unit of the page: a thousand times 512 bytes. */
#define SMART_UNIT_BYTES 512000u

/* 16 bytes, little-endian. */
static uint64_t smart_wide(const uint8_t *bytes)
{
	uint64_t value = 0;

	for (uint32_t i = 8; i < 16; i++)
		if (bytes[i])
			return UINT64_MAX;
	for (uint32_t i = 8; i > 0; i--)
		value = value << 8 | bytes[i - 1];
	return value;
}

static uint64_t smart_units(const uint8_t *bytes)
{
	uint64_t result;

	return __builtin_mul_overflow(smart_wide(bytes), SMART_UNIT_BYTES, &result) ? UINT64_MAX
	                                                                            : result;
}

/* See smart.h. Offsets: figure 207 of the specification. */
void nvme_smart_parse(const uint8_t *page, struct nvme_smart *ret_smart)
{
	uint32_t kelvin = (uint32_t)page[1] | (uint32_t)page[2] << 8;

	*ret_smart = (struct nvme_smart){
		.critical_warning = page[0],
		.celsius = kelvin ? (int32_t)kelvin - 273 : NVME_SMART_UNKNOWN_CELSIUS,
		.spare_percent = page[3],
		.spare_threshold_percent = page[4],
		.used_percent = page[5],
		.read_bytes = smart_units(page + 32),
		.write_bytes = smart_units(page + 48),
		.power_on_hours = smart_wide(page + 128),
		.unsafe_shutdown_count = smart_wide(page + 144),
		.media_error_count = smart_wide(page + 160),
	};
}

/* See smart.h. */
bool nvme_smart_is_worn(const struct nvme_smart *smart, uint32_t used_max, struct zi_text *text)
{
	const struct {
		bool is_so;
		const char *words;
	} signs[] = {
		{ smart->critical_warning & NVME_SMART_UNRELIABLE, "it calls itself unreliable" },
		{ smart->critical_warning & NVME_SMART_READ_ONLY, "it has gone read-only" },
		{ smart->critical_warning & NVME_SMART_BACKUP, "its backup of memory failed" },
		{ smart->critical_warning & NVME_SMART_SPARE ||
		          smart->spare_percent < smart->spare_threshold_percent,
		  "its spare is below the threshold" },
		{ smart->used_percent >= used_max, "its rated life is nearly over" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(signs); i++) {
		if (!signs[i].is_so)
			continue;
		zi_text_set(text, "%s: %u %% of its life used, %u %% spare left (threshold %u %%)",
		            signs[i].words, smart->used_percent, smart->spare_percent,
		            smart->spare_threshold_percent);
		return true;
	}
	return false;
}
