/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: rows of a batch are scattered as torch's chunk() does, every row to one replica; what
 * cannot be attached is refused with its reason. Method: torch's figures by hand; all small
 * batches; no daemon is there.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "zinf/zinf.h"

Test(replica, rows_are_scattered_as_torch_does)
{
	const struct {
		uint64_t rows;
		uint32_t count, replica;
		uint64_t first, length;
	} cases[] = {
		{ 8, 4, 0, 0, 2 },
		{ 8, 4, 3, 6, 2 },
		{ 10, 4, 2, 6, 3 }, /* 3 3 3 1 */
		{ 10, 4, 3, 9, 1 },
		{ 5, 4, 1, 2, 2 }, /* 2 2 1: one replica has none */
		{ 5, 4, 2, 4, 1 },
		{ 5, 4, 3, 5, 0 },
		{ 1, 8, 0, 0, 1 },
		{ 1, 8, 7, 1, 0 },
		{ 0, 3, 1, 0, 0 },
		{ UINT64_MAX, 2, 1, 1ull << 63, (1ull << 63) - 1 },
		{ UINT64_MAX, 64, 63, 63 * (1ull << 58), (1ull << 58) - 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t first, length;

		zinf_scatter(cases[i].rows, cases[i].count, cases[i].replica, &first, &length);
		cr_expect_eq(first, cases[i].first, "case %zu: %llu", i, (unsigned long long)first);
		cr_expect_eq(length, cases[i].length, "case %zu: %llu", i,
		             (unsigned long long)length);
	}
}

Test(replica, each_row_has_one_replica)
{
	for (uint64_t rows = 0; rows < 200; rows++)
		for (uint32_t count = 1; count <= 64; count++) {
			uint64_t next = 0;

			for (uint32_t replica = 0; replica < count; replica++) {
				uint64_t first, length;

				zinf_scatter(rows, count, replica, &first, &length);
				cr_assert_eq(first, next, "%llu rows over %u",
				             (unsigned long long)rows, count);
				next += length;
			}
			cr_assert_eq(next, rows);
		}
}

static void expect_refused(const struct zinf_options *options, uint32_t count, int error,
                           const char *says)
{
	struct zinf_replicas *replicas = NULL;

	cr_assert_eq(zinf_replicas_attach(options, count, &replicas), error, "%s",
	             zinf_attach_error());
	cr_assert_null(replicas);
	cr_assert(strstr(zinf_attach_error(), says), "%s", zinf_attach_error());
}

Test(replica, what_cannot_be_is_refused)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct {
		struct zinf_options options;
		uint64_t later;
	} later = { .options = ZINF_OPTIONS_INIT };

	options.socket_path = "/nonexistent/zinf";
	options.job = "none";
	expect_refused(&options, 0, -EINVAL, "0 replicas: 1 to 64 are allowed");
	expect_refused(&options, 65, -EINVAL, "65 replicas: 1 to 64");
	expect_refused(&options, 2, -ENOENT, "/nonexistent/zinf");
	later.options.socket_path = "/nonexistent/zinf";
	later.options.bytes = sizeof(later);
	expect_refused(&later.options, 2, -ENOENT, "/nonexistent/zinf");
	later.later = 1;
	expect_refused(&later.options, 2, -EINVAL, "fields of a later libzinf");
	options.bytes = 8;
	expect_refused(&options, 2, -EINVAL, "begin with ZINF_OPTIONS_INIT");
	zinf_replicas_detach(NULL);
}
