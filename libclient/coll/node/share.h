/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks divide work on memory that all of them reach. Floor 2, private to the engine. */
#pragma once

#include <stdint.h>

#include "common/wire/layout.h"

/* Elements of a share end on lines, so that no two ranks write one line. */
static inline uint64_t zi_node_share(uint64_t element_count, uint32_t width, uint32_t part,
                                     uint32_t part_count)
{
	uint64_t line_elements = ZI_LINE_BYTES / width;
	uint64_t lines = (element_count + line_elements - 1) / line_elements;
	uint64_t end = lines * part / part_count * line_elements;

	return end < element_count ? end : element_count;
}
