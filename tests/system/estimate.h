/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of estimates share: a daemon, and what a job holds there beside what was said. */
#pragma once

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/cleanup.h"
#include "tests/harness/ranks.h"
#include "tests/system/folder.h"
#include "tests/system/system.h"

static struct harness harness;
static char words[1 << 16];
static struct folder folder;

static inline void start_with(const char *cpu_capacity)
{
	folder_make(&folder, "estimate");
	system_start(&harness, &(struct harness_options){ .nvme_size = "192M",
	                                                  .cpu_capacity = cpu_capacity });
}

static inline void start(void)
{
	start_with("256M");
}

static inline void stop(void)
{
	cr_assert_eq(harness_stop(&harness), 0);
	folder_remove(&folder);
}

/* Of the answer to `jobs`; the caller's. */
static inline json_t *ask_job(void)
{
	json_t *jobs = harness_admin(&harness, "jobs");
	json_t *job = json_incref(json_array_get(jobs, 0));

	json_decref(jobs);
	return job;
}

static inline void compare(const char *what, uint64_t estimated, uint64_t measured)
{
	uint64_t apart = estimated > measured ? estimated - measured : measured - estimated;

	cr_expect_leq(apart * 50, measured, "%s: %llu estimated, %llu held", what,
	              (unsigned long long)estimated, (unsigned long long)measured);
}

static inline uint64_t bytes_of(const json_t *object, const char *plane, const char *tier)
{
	const json_t *held = json_object_get(object, "held");

	return (uint64_t)json_integer_value(json_object_get(json_object_get(held, plane), tier));
}

static inline void compare_planes(const json_t *estimate, const json_t *job)
{
	static const char *const planes[] = { "param", "grad",    "reduced_grad",
		                              "state", "staging", "collectives" };
	static const char *const tiers[] = { "cpu_bytes", "nvme_bytes" };

	for (size_t t = 0; t < ZI_COUNT_OF(tiers); t++) {
		uint64_t estimated = 0, measured = 0;

		for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
			char what[64];

			(void)snprintf(what, sizeof(what), "%s of %s", tiers[t], planes[i]);
			compare(what, bytes_of(estimate, planes[i], tiers[t]),
			        bytes_of(job, planes[i], tiers[t]));
			estimated += bytes_of(estimate, planes[i], tiers[t]);
			measured += bytes_of(job, planes[i], tiers[t]);
		}
		compare(tiers[t], estimated, measured);
	}
	compare("reserved",
	        (uint64_t)json_integer_value(json_object_get(estimate, "reserved_nvme_bytes")),
	        (uint64_t)json_integer_value(json_object_get(job, "reserved_nvme_bytes")));
}

/* Copies into which ranks wrote first values, as long as their processes live. */
static inline uint64_t copy_bytes(const json_t *job)
{
	uint64_t bytes = 0;
	size_t index;
	json_t *rank;

	json_array_foreach(json_object_get(job, "ranks"), index, rank) bytes +=
		(uint64_t)json_integer_value(json_object_get(rank, "write_buffer_bytes"));
	return bytes;
}
