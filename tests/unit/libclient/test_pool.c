/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with parameters on NVMe, or in a pool by the daemon's word, a parameter keeps its address
 * while what lies behind it comes and goes; nothing is mapped where nothing is unsharded, and the
 * daemon hears of a reshard only when that is so; no false place is believed, and a daemon that
 * cannot do it is told so by name. Method: the fake daemon, whose pool holds two units and puts
 * each unshard elsewhere.
 */
#include <unistd.h>

#include "tests/fake/fake_job.h"

static struct fake_job pool_attach(const struct fake_daemon_options *daemon)
{
	struct fake_daemon_options able = *daemon;
	struct zinf_options options;
	struct fake_job job;

	able.features = UINT64_MAX;
	job.fake = fake_daemon_start(&able);
	options = fake_job_options(job.fake);
	if (!able.has_pool)
		options.offload_optimizer = options.offload_param = ZINF_OFFLOAD_NVME;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	return job;
}

static const struct fake_daemon_options honest = { 0 };

static void check_address_stays(const struct fake_daemon_options *daemon)
{
	struct fake_job job = pool_attach(daemon);
	const char *data[3];

	fake_job_materialize(&job);
	for (int i = 0; i < 3; i++) {
		data[i] = zinf_param_data(job.zinf, job.param[i]);
		cr_assert_not_null(data[i]);
		cr_assert_not(is_mapped(data[i]), "nothing is unsharded");
	}
	for (char use = 1; use <= 6; use++) {
		int unit = use % 2, param = unit ? 2 : 0;

		cr_assert_eq(zinf_unshard(job.zinf, job.unit[unit]), 0, "%s",
		             zinf_error_text(job.zinf));
		cr_assert_eq(zinf_param_data(job.zinf, job.param[param]), data[param]);
		cr_assert_eq(data[param][0], use, "the bytes of this unshard");
		cr_assert_not(is_mapped(data[2 - param]), "the other unit");
		cr_assert_eq(zinf_reshard(job.zinf, job.unit[unit]), 0);
		cr_assert_not(is_mapped(data[param]));
	}
	fake_job_leave(&job);
}

Test(pool, address_stays_and_what_is_behind_it_comes_and_goes)
{
	check_address_stays(&honest);
}

/* Nodes divide parameters (zero3): the daemon says so, whatever is offloaded. */
Test(pool, a_pool_is_the_daemons_word)
{
	struct fake_daemon_options options = { .has_pool = true, .lie = FAKE_LIE_POOL_SMALL };
	struct fake_job job;

	check_address_stays(&(struct fake_daemon_options){ .has_pool = true });
	job = pool_attach(&options);
	fake_job_add(&job);
	cr_assert_eq(zinf_materialize(job.zinf), -EPROTO);
	fake_job_leave(&job);
}

Test(pool, both_units_are_there_at_once_and_uses_nest)
{
	struct fake_job job = pool_attach(&honest);
	const char *a, *b;

	fake_job_materialize(&job);
	a = zinf_param_data(job.zinf, job.param[0]);
	b = zinf_param_data(job.zinf, job.param[2]);
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[1]), 0);
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(*a, 1);
	cr_assert_eq(*b, 2);
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(*a, 1, "one use is left");
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	cr_assert_not(is_mapped(a));
	cr_assert_eq(*b, 2);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_UNSHARD)), 2);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_RESHARD)), 1);
	fake_job_leave(&job);
}

Test(pool, daemon_hears_of_a_reshard_when_nothing_is_mapped_any_more)
{
	struct fake_job job = pool_attach(&honest);
	const char *data;

	fake_job_materialize(&job);
	data = zinf_param_data(job.zinf, job.param[2]);
	fake_daemon_watch(job.fake, data);
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[1]), 0);
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert(fake_daemon_saw_readable(job.fake), "it sees what is mapped");
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[1]), 0);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_not(fake_daemon_saw_readable(job.fake));
	fake_job_leave(&job);
}

Test(pool, writing_and_using_a_unit_exclude_each_other)
{
	struct fake_job job = pool_attach(&honest);
	char *data;

	fake_job_materialize(&job);
	data = (char *)zinf_param_data(job.zinf, job.param[2]);
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[1]), 0);
	cr_assert_eq(zinf_param_write_begin(job.zinf, job.unit[1]), -EBUSY);
	expect_text(job.zinf, "zinf_reshard() it first");
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[1]), 0);
	cr_assert_eq(zinf_param_write_begin(job.zinf, job.unit[1]), 0);
	cr_assert_eq(zinf_param_data(job.zinf, job.param[2]), data);
	data[0] = 77;
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[1]), -EBUSY);
	expect_text(job.zinf, "open for writing");
	cr_assert_eq(zinf_param_write_end(job.zinf, job.unit[1], 0), 0);
	cr_assert_not(is_mapped(data));
	fake_job_leave(&job);
}

Test(pool, failed_unshard_maps_nothing_and_may_come_again)
{
	struct fake_job job =
		pool_attach(&(struct fake_daemon_options){ .fail_on = FAKE_ON_OP(ZI_OP_UNSHARD),
	                                                   .fail_error = -EBADMSG,
	                                                   .fail_text = "damaged at 4096" });

	fake_job_materialize(&job);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(zinf_unshard(job.zinf, job.unit[0]), -EBADMSG);
		expect_text(job.zinf, "damaged at 4096");
		cr_assert_not(is_mapped(zinf_param_data(job.zinf, job.param[0])));
	}
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), -EINVAL);
	fake_job_leave(&job);
}

Test(pool, false_places_end_the_session)
{
	const enum fake_lie lies[] = { FAKE_LIE_POOL_OUTSIDE, FAKE_LIE_POOL_MISALIGNED };

	for (size_t i = 0; i < 2; i++) {
		struct fake_job job = pool_attach(&(struct fake_daemon_options){ .lie = lies[i] });

		fake_job_materialize(&job);
		cr_assert_eq(zinf_unshard(job.zinf, job.unit[1]), -EPROTO);
		expect_text(job.zinf, "a unit outside the pool");
		cr_assert_eq(zinf_ping(job.zinf), -EPROTO);
		fake_job_leave(&job);
	}
}

Test(pool, false_pools_end_the_session)
{
	const enum fake_lie lies[] = { FAKE_LIE_POOL_SMALL, FAKE_LIE_PARAM_MORE,
		                       FAKE_LIE_PARAM_SHORT_FILE };

	for (size_t i = 0; i < 3; i++) {
		struct fake_job job = pool_attach(&(struct fake_daemon_options){ .lie = lies[i] });

		fake_job_add(&job);
		cr_assert_eq(zinf_materialize(job.zinf), -EPROTO, "lie %zu", i);
		cr_assert_null(zinf_param_data(job.zinf, 0));
		fake_job_leave(&job);
	}
}

Test(pool, daemon_without_it_is_refused_by_name)
{
	struct fake_daemon *fake = fake_daemon_start(
		&(struct fake_daemon_options){ .features = ZI_FEATURE_NVME_STATE });
	struct zinf_options options = fake_job_options(fake);
	struct zinf *zinf;

	options.offload_optimizer = options.offload_param = ZINF_OFFLOAD_NVME;
	cr_assert_eq(zinf_attach(&options, &zinf), -EOPNOTSUPP);
	expect_attach_text("zinfd 9.9.9");
	expect_attach_text("does not keep parameters on NVMe");
	fake_daemon_stop(fake);
}
