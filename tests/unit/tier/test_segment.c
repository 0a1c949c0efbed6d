/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a segment is paid for before it exists, is zero, lives as long as its last reference,
 * prefers its tier's node and gives a descriptor that cannot write. Staging hands its slots out and
 * takes them back.
 * Method: segments around the limits; what the kernel says about descriptors.
 */
#include <errno.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "daemon/tier/segment.h"
#include "daemon/tier/staging.h"
#include "daemon/topo/topo.h"
#include "tests/unit/tier/fixture.h"

Test(segment, is_charged_whole_pages_and_is_zero)
{
	struct fixture fixture;
	struct tier_segment *segment = NULL;

	fixture_init(&fixture, 10 * MIB);
	cr_assert_eq(tier_segment_new(&fixture.tier, &fixture.job, "a", 5000, TIER_PAGES_HUGE, NULL,
	                              &segment),
	             0);
	cr_assert_eq(segment->region.bytes, 8192);
	cr_assert_eq(fixture.tier.used_bytes, 8192);
	for (uint32_t i = 0; i < 8192; i++)
		cr_assert_eq(((char *)segment->region.base)[i], 0);
	segment = tier_segment_unref(segment);
	cr_assert_null(segment);
	cr_assert_eq(fixture.tier.used_bytes, 0);
	fixture_deinit(&fixture);
}

Test(segment, refusals_are_errors_with_figures)
{
	struct fixture fixture;
	struct tier_segment *segment = NULL;

	fixture_init(&fixture, MIB);
	cr_assert_eq(tier_segment_new(&fixture.tier, &fixture.job, "a", 2 * MIB, TIER_PAGES_HUGE,
	                              &fixture.text, &segment),
	             -ENOSPC);
	says(&fixture, "2 MiB asked for");
	fixture.uid.limit_bytes[TIER_CPU] = 4096;
	cr_assert_eq(tier_segment_new(&fixture.tier, &fixture.job, "a", 8192, TIER_PAGES_HUGE,
	                              &fixture.text, &segment),
	             -EDQUOT);
	says(&fixture, "uid 1000");
	cr_assert_null(segment);
	cr_assert_eq(fixture.tier.used_bytes, 0);
	fixture_deinit(&fixture);
}

Test(segment, that_the_kernel_refuses_returns_its_charge)
{
	struct fixture fixture;
	struct tier_segment *segment = NULL;
	struct rlimit none, all;
	int r;

	fixture_init(&fixture, MIB);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &all), 0);
	none = (struct rlimit){ 0, all.rlim_max };
	/* No descriptor is left for the memfd. */
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	r = tier_segment_new(&fixture.tier, &fixture.job, "a", 8192, TIER_PAGES_HUGE, &fixture.text,
	                     &segment);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &all), 0);
	cr_assert_eq(r, -EMFILE);
	says(&fixture, "the kernel refused 8 KiB");
	cr_assert_eq(fixture.tier.used_bytes, 0);
	fixture_deinit(&fixture);
}

Test(segment, stays_until_the_last_reference)
{
	struct fixture fixture;
	struct tier_segment *segment = NULL;

	fixture_init(&fixture, MIB);
	cr_assert_eq(tier_segment_new(&fixture.tier, &fixture.job, "a", 4096, TIER_PAGES_HUGE, NULL,
	                              &segment),
	             0);
	cr_assert_eq(tier_segment_ref(segment), segment);
	(void)tier_segment_unref(segment);
	cr_assert_eq(fixture.tier.used_bytes, 4096);
	(void)tier_segment_unref(segment);
	cr_assert_eq(fixture.tier.used_bytes, 0);
	cr_assert_null(tier_segment_unref(NULL));
	fixture_deinit(&fixture);
}

/* @tier_stops: the daemon does. Return: bytes that a descriptor handed on still holds. */
static uint64_t bytes_after_the_last_reference(bool tier_stops)
{
	struct fixture fixture;
	struct tier_segment *segment = NULL;
	struct stat status;
	int fd;

	fixture_init(&fixture, MIB);
	cr_assert_eq(tier_segment_new(&fixture.tier, &fixture.job, "a", 8192, TIER_PAGES_HUGE, NULL,
	                              &segment),
	             0);
	fd = fcntl(segment->region.fd, F_DUPFD_CLOEXEC, 0);
	(void)tier_segment_ref(segment);
	(void)tier_segment_unref(segment);
	cr_assert_eq(fstat(fd, &status), 0);
	cr_assert_eq(status.st_blocks * 512, 8192, "there is a reference yet");
	fixture.tier.is_stopping = tier_stops;
	(void)tier_segment_unref(segment);
	cr_assert_eq(fixture.tier.used_bytes, 0);
	cr_assert_eq(fstat(fd, &status), 0);
	(void)zi_close(fd);
	fixture_deinit(&fixture);
	return (uint64_t)status.st_blocks * 512;
}

Test(segment, has_no_pages_after_the_last_reference_whoever_has_a_descriptor)
{
	cr_assert_eq(bytes_after_the_last_reference(false), 0);
	cr_assert_eq(bytes_after_the_last_reference(true), 8192);
}

Test(segment, readonly_descriptor_cannot_be_mapped_for_writing)
{
	struct fixture fixture;
	struct tier_segment *segment = NULL;
	int fd = -1;

	fixture_init(&fixture, MIB);
	cr_assert_eq(tier_segment_new(&fixture.tier, &fixture.job, "a", 4096, TIER_PAGES_HUGE, NULL,
	                              &segment),
	             0);
	cr_assert_eq(tier_segment_readonly_fd(segment, &fd), 0);
	cr_assert_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	cr_assert_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	(void)zi_close(fd);
	(void)tier_segment_unref(segment);
	fixture_deinit(&fixture);
}

Test(segment, of_a_huge_tier_is_rounded_to_huge_pages_only_when_asked)
{
	struct fixture fixture;
	struct tier_segment *segment = NULL;

	fixture_init(&fixture, 8 * MIB);
	fixture.tier.wants_huge = true;
	cr_assert_eq(tier_segment_charged_bytes(&fixture.tier, 5000, TIER_PAGES_HUGE), 2 * MIB);
	cr_assert_eq(tier_segment_charged_bytes(&fixture.tier, 5000, TIER_PAGES_SMALL), 8192);
	cr_assert_eq(tier_segment_charge(&fixture.tier, &fixture.job, "a", 5000, TIER_PAGES_HUGE,
	                                 NULL, &segment),
	             0);
	cr_assert_eq(fixture.tier.used_bytes, 2 * MIB, "paid for before it is there");
	cr_assert_eq(tier_segment_build(segment, &fixture.text), 0);
	cr_assert_eq(segment->region.bytes, 2 * MIB);
	(void)tier_segment_unref(segment);
	fixture_deinit(&fixture);
}

Test(segment, that_was_never_built_ends_well)
{
	struct fixture fixture;
	struct tier_segment *segment = NULL;

	fixture_init(&fixture, MIB);
	cr_assert_eq(tier_segment_charge(&fixture.tier, &fixture.job, "a", 1, TIER_PAGES_SMALL,
	                                 NULL, &segment),
	             0);
	(void)tier_segment_unref(segment);
	cr_assert_eq(fixture.tier.used_bytes, 0);
	fixture_deinit(&fixture);
}

Test(staging, hands_out_each_slot_once_and_takes_it_back)
{
	struct fixture fixture;
	struct tier_staging *staging = NULL;
	char *slots[3];

	fixture_init(&fixture, MIB);
	cr_assert_eq(tier_staging_new(&fixture.tier, &fixture.job, NULL, 8192, 3, NULL, &staging),
	             0);
	cr_assert_eq(fixture.tier.used_bytes, 3 * 8192);
	for (uint32_t i = 0; i < 3; i++) {
		slots[i] = tier_staging_take(staging);
		cr_assert_not_null(slots[i]);
		memset(slots[i], (int)i + 1, 8192);
	}
	cr_assert_null(tier_staging_take(staging), "all are out");
	for (uint32_t i = 0; i < 3; i++)
		cr_assert(slots[i][0] == (char)(i + 1) && slots[i][8191] == (char)(i + 1));
	tier_staging_give(staging, slots[1]);
	cr_assert_eq(tier_staging_take(staging), slots[1]);
	for (uint32_t i = 0; i < 3; i++)
		tier_staging_give(staging, slots[i]);
	staging = tier_staging_free(staging);
	cr_assert_eq(fixture.tier.used_bytes, 0);
	cr_assert_null(tier_staging_free(NULL));
	fixture_deinit(&fixture);
}

Test(staging, that_does_not_fit_is_refused)
{
	struct fixture fixture;
	struct tier_staging *staging = NULL;

	fixture_init(&fixture, MIB);
	cr_assert_eq(tier_staging_new(&fixture.tier, &fixture.job, NULL, MIB, 2, &fixture.text,
	                              &staging),
	             -ENOSPC);
	cr_assert_eq(tier_staging_new(&fixture.tier, &fixture.job, NULL, UINT64_MAX - 4095, 2, NULL,
	                              &staging),
	             -EOVERFLOW);
	cr_assert_null(staging);
	fixture_deinit(&fixture);
}

Test(segment, prefers_the_node_of_its_tier)
{
	/* Two nodes, since with one there is nothing to prefer; both are what this machine has. */
	struct topo topo = { .is_this_system = true, .node_count = 2 };
	struct tier_segment *segment = NULL;
	struct fixture fixture;
	unsigned long mask[16] = { 0 };
	int mode = -1;

	fixture_init(&fixture, 16 * MIB);
	fixture.tier.topo = &topo;
	cr_assert_eq(tier_segment_new(&fixture.tier, &fixture.job, "near", MIB, TIER_PAGES_SMALL,
	                              &fixture.text, &segment),
	             0);
	if (get_mempolicy(&mode, mask, 1024, segment->region.base, MPOL_F_ADDR))
		cr_skip_test("get_mempolicy() is refused here: %s", strerror(errno));
	cr_expect_eq(mode, MPOL_PREFERRED);
	cr_expect_eq(mask[0], 1, "node 0");
	segment = tier_segment_unref(segment);
	fixture_deinit(&fixture);
}

Test(segment, in_parts_is_paid_for_and_prefers_the_node_part_by_part)
{
	/* The second tier has no topology: what is bound by mistake would show. */
	struct topo topo = { .is_this_system = true, .node_count = 2 };
	struct tier_segment *segment = NULL;
	struct fixture fixture;
	struct tier other;
	const struct tier_part parts[] = { { &fixture.tier, 2 * MIB },
		                           { &other, MIB },
		                           { &fixture.tier, MIB } };
	unsigned long mask[16] = { 0 };
	int modes[3] = { -1, -1, -1 };

	fixture_init(&fixture, 16 * MIB);
	tier_init_cpu(&other, 1, MIB, NULL, false);
	fixture.tier.topo = &topo;
	cr_assert_eq(tier_segment_charge_parts(parts, 3, &fixture.job, "parts", TIER_PAGES_SMALL,
	                                       &fixture.text, &segment),
	             0);
	cr_expect_eq(segment->bytes, 4 * MIB);
	cr_expect_eq(fixture.tier.used_bytes, 3 * MIB);
	cr_expect_eq(other.used_bytes, MIB);
	cr_expect_eq(tier_segment_bytes_on(segment, &fixture.tier), 3 * MIB);
	cr_expect_eq(tier_segment_bytes_on(segment, &other), MIB);
	cr_expect_eq(fixture.uid.used_bytes[TIER_CPU], 4 * MIB);
	cr_assert_eq(tier_segment_build(segment, &fixture.text), 0);
	cr_expect_eq(segment->region.bytes, 4 * MIB);
	for (uint64_t i = 0; i < 3; i++)
		if (get_mempolicy(&modes[i], mask, 1024,
		                  (char *)segment->region.base + (uint64_t[]){ 0, 2, 3 }[i] * MIB,
		                  MPOL_F_ADDR))
			cr_skip_test("get_mempolicy() is refused here: %s", strerror(errno));
	cr_expect_eq(modes[0], MPOL_PREFERRED);
	cr_expect_eq(modes[1], MPOL_DEFAULT);
	cr_expect_eq(modes[2], MPOL_PREFERRED);
	segment = tier_segment_unref(segment);
	cr_expect_eq(other.used_bytes, 0);
	tier_deinit(&other);
	fixture_deinit(&fixture);
}

/* Not what one of the parts lacks, beside the ones before it. */
Test(segment, of_parts_is_refused_with_the_figures_of_all_of_them)
{
	struct tier_segment *segment = NULL;
	struct fixture fixture;
	struct tier other;
	const struct tier_part parts[] = { { &fixture.tier, MIB },
		                           { &other, MIB },
		                           { &fixture.tier, 2 * MIB } };

	fixture_init(&fixture, 2 * MIB);
	tier_init_cpu(&other, 1, MIB, NULL, false);
	cr_expect_eq(tier_segment_charge_parts(parts, 3, &fixture.job, "parts", TIER_PAGES_SMALL,
	                                       &fixture.text, &segment),
	             -ENOSPC);
	says(&fixture, "3 MiB asked for on cpu:0, 2 MiB free of 2 MiB");
	fixture.uid.limit_bytes[TIER_CPU] = MIB;
	cr_expect_eq(tier_segment_charge_parts(parts, 2, &fixture.job, "parts", TIER_PAGES_SMALL,
	                                       &fixture.text, &segment),
	             -EDQUOT);
	says(&fixture, "2 MiB asked for on several tiers, uid 1000 holds 0 B of the 1 MiB");
	fixture.uid.limit_bytes[TIER_CPU] = 2 * MIB;
	cr_expect_eq(tier_segment_charge_parts(&parts[1], 1, &fixture.job, "parts",
	                                       TIER_PAGES_SMALL, &fixture.text, &segment),
	             0);
	cr_expect_eq(other.used_bytes, MIB);
	segment = tier_segment_unref(segment);
	cr_expect_eq(fixture.tier.used_bytes + other.used_bytes, 0);
	tier_deinit(&other);
	fixture_deinit(&fixture);
}

Test(segment, of_parts_is_all_or_nothing)
{
	struct tier_segment *segment = NULL;
	struct fixture fixture;
	struct tier other;
	const struct tier_part parts[] = { { &fixture.tier, MIB }, { &other, 2 * MIB } };

	fixture_init(&fixture, 16 * MIB);
	tier_init_cpu(&other, 1, MIB, NULL, false);
	cr_expect_eq(tier_segment_charge_parts(parts, 2, &fixture.job, "parts", TIER_PAGES_SMALL,
	                                       &fixture.text, &segment),
	             -ENOSPC);
	says(&fixture, "2 MiB asked for on cpu:1, 1 MiB free");
	cr_expect_null(segment);
	cr_expect_eq(fixture.tier.used_bytes, 0);
	tier_deinit(&other);
	fixture_deinit(&fixture);
}
