/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: bytes reach every target, whatever the lengths and alignments, streaming or not, and
 * nothing beside them is touched.
 * Method: all instruction sets over all alignments of source and targets in a line, lengths around
 * whole lines; the bytes around each target keep their mark.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "kernels/copy.h"
#include "tests/kernels/data.h"

#define BYTES_MAX  1200u
#define AROUND     192u
#define TARGETS    3u
#define MARK       0xa5
#define AREA_BYTES (BYTES_MAX + 2 * AROUND)

struct trial {
	uint64_t bytes, source_offset;
	uint64_t target_offsets[TARGETS];
	uint32_t target_count;
	bool is_streaming;
};

static void check(const struct trial *trial, char *source_area, char *const *areas)
{
	char *source = source_area + AROUND + trial->source_offset;
	void *targets[TARGETS];

	for (uint32_t t = 0; t < TARGETS; t++) {
		memset(areas[t], MARK, AREA_BYTES);
		targets[t] = areas[t] + AROUND + trial->target_offsets[t];
	}
	kern_copy(targets, trial->target_count, source, trial->bytes, trial->is_streaming);
	for (uint32_t t = 0; t < TARGETS; t++) {
		uint64_t bytes = t < trial->target_count ? trial->bytes : 0;
		const char *target = targets[t];

		cr_assert_arr_eq(target, source, bytes, "%llu bytes from +%llu to +%llu",
		                 (unsigned long long)trial->bytes,
		                 (unsigned long long)trial->source_offset,
		                 (unsigned long long)trial->target_offsets[t]);
		for (const char *c = areas[t]; c < areas[t] + AREA_BYTES; c++)
			if (c < target || c >= target + bytes)
				cr_assert_eq((unsigned char)*c, MARK, "beside target %u", t);
	}
}

static void check_all(char *source, char *const *areas)
{
	static const uint64_t lengths[] = { 0, 1, 31, 63, 64, 65, 127, 128, 640, 1111 };

	for (size_t i = 0; i < ZI_COUNT_OF(lengths); i++)
		for (uint64_t offset = 0; offset < 64; offset += 3)
			for (uint32_t kind = 0; kind < 16; kind++) {
				struct trial trial = {
					.bytes = lengths[i],
					.source_offset = kind & 1 ? offset : 5,
					.target_count = kind >> 2,
					.is_streaming = kind & 2,
				};

				/* alike in a line, or the last one otherwise */
				for (uint32_t t = 0; t < TARGETS; t++)
					trial.target_offsets[t] = offset + (t == 1 ? 64 : 0);
				if (kind & 1)
					trial.target_offsets[TARGETS - 1] = (offset + 7) % 64;
				check(&trial, source, areas);
			}
}

Test(copy, bytes_reach_every_target_and_nothing_beside_it)
{
	void *source_area = NULL, *areas_area[TARGETS] = { NULL };
	char *source, *areas[TARGETS];

	cr_assert_eq(posix_memalign(&source_area, 64, AREA_BYTES), 0);
	source = source_area;
	for (uint32_t i = 0; i < AREA_BYTES; i++)
		source[i] = (char)(i * 31 + (i >> 8));
	for (uint32_t t = 0; t < TARGETS; t++) {
		cr_assert_eq(posix_memalign(&areas_area[t], 64, AREA_BYTES), 0);
		areas[t] = areas_area[t];
	}
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++)
		if (kern_isa_force(isa) == 0)
			check_all(source, areas);
	for (uint32_t t = 0; t < TARGETS; t++)
		free(areas[t]);
	free(source);
}

Test(copy, onto_itself_is_nothing)
{
	char data[100], before[100];
	void *target = data;

	for (unsigned i = 0; i < sizeof data; i++)
		data[i] = before[i] = (char)i;
	kern_copy(&target, 1, data, sizeof data, true);
	kern_copy(&target, 1, data, sizeof data, false);
	cr_assert_arr_eq(data, before, sizeof data);
}
