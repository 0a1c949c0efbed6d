/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the fake daemon's that makes collectives; its peers never come. */
#pragma once

#include "tests/fake/fake_job.h"

#define ARENA (2u << 20)

static inline struct fake_job attach(const struct fake_daemon_options *daemon, int32_t rank,
                                     int32_t world)
{
	struct fake_daemon_options able = *daemon;
	struct fake_job job;
	struct zinf_options options;

	if (!able.features)
		able.features = UINT64_MAX;
	job = (struct fake_job){ .fake = fake_daemon_start(&able) };
	options = fake_job_options(job.fake);
	options.rank = rank;
	options.world_size = world;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	return job;
}

static inline struct fake_job begin(const struct fake_daemon_options *daemon, int32_t rank,
                                    int32_t world)
{
	struct fake_job job = attach(daemon, rank, world);

	cr_assert_eq(zinf_coll_open(job.zinf, ARENA), 0, "%s", zinf_error_text(job.zinf));
	return job;
}

static const struct fake_daemon_options honest = { 0 };

/* A call whose peers never come. */
static inline int all_reduce(struct zinf *zinf, zinf_group group, uint32_t timeout_ms)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	float data[4] = { 0 };

	options.group = group;
	options.timeout_ms = timeout_ms;
	return zinf_coll_all_reduce(zinf, data, data, 4, ZINF_F32, ZINF_SUM, &options);
}
