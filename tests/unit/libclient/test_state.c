/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of optimizer state the daemon hears the right range; masters of 16-bit parameters are
 * joined and split; wrong kinds, counts and moments are told by name; an older daemon is told of;
 * an interrupted call goes on; a window that is too short is not believed.
 * Method: the fake daemon keeps the first values that it was given, and gives them back.
 */
#include <math.h>

#include "common/wire/state.h"
#include "tests/fake/fake_job.h"

static const struct fake_daemon_options able = { .features =
	                                                 ZI_FEATURE_STATE | ZI_FEATURE_TRAINING };
static float values[5000];

static struct fake_job attach(const struct fake_daemon_options *daemon, enum zinf_dtype dtype,
                              enum zinf_optimizer optimizer)
{
	struct fake_job job = { .fake = fake_daemon_start(daemon) };
	struct zinf_options options = fake_job_options(job.fake);

	options.param_dtype = options.grad_dtype = dtype;
	options.optimizer = optimizer;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	fake_job_materialize(&job);
	return job;
}

static void refused(struct fake_job *job, int error, const char *word, int got)
{
	cr_assert_eq(got, error, "%d: %s", got, zinf_error_text(job->zinf));
	cr_assert_not_null(strstr(zinf_error_text(job->zinf), word), "'%s'",
	                   zinf_error_text(job->zinf));
}

Test(state, moments_go_through_the_window_once_opened)
{
	struct fake_job job = attach(&able, ZINF_F32, ZINF_ADAMW);

	for (uint32_t i = 0; i < 15; i++)
		values[i] = (float)i / 3;
	cr_assert_eq(zinf_state_write(job.zinf, job.param[0], ZINF_STATE_EXP_AVG, values, 15, 0), 0,
	             "%s", zinf_error_text(job.zinf));
	memset(values, 0, sizeof(values));
	cr_assert_eq(zinf_state_read(job.zinf, job.param[0], ZINF_STATE_EXP_AVG_SQ, values, 15), 0,
	             "%s", zinf_error_text(job.zinf));
	cr_assert_eq(values[14], 14.0f / 3);
	cr_assert_eq(values[15], 0, "no more than was asked for");
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_STATE_OPEN)), 1);
	cr_assert_eq(zinf_update_count_set(job.zinf, 77, 0.9, 0.99), 0);
	cr_assert_eq(zinf_update_count(job.zinf), 77);
	fake_job_leave(&job);
}

Test(state, kept_state_is_a_flag_of_the_same_message)
{
	struct fake_job job = attach(&able, ZINF_F32, ZINF_ADAMW);

	cr_assert_eq(zinf_param_write_begin(job.zinf, 0), 0);
	cr_assert_eq(zinf_param_write_keep(job.zinf, 0, 0), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(fake_daemon_write_flags(job.fake), ZI_PARAM_WRITE_KEEP);
	refused(&job, -EINVAL, "zinf_param_write_begin() first",
	        zinf_param_write_keep(job.zinf, 0, 0));
	cr_assert_eq(zinf_param_write_begin(job.zinf, 0), 0);
	cr_assert_eq(zinf_param_write_end(job.zinf, 0, 0), 0);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(fake_daemon_write_flags(job.fake), 0);
	fake_job_leave(&job);
}

/* The fake's parameters are bytes of 1: 0x0101 each. */
static void expect_master(enum zinf_dtype dtype, float low, float high)
{
	struct fake_job job = attach(&able, dtype, ZINF_ADAMW);

	for (uint32_t i = 0; i < 15; i++)
		values[i] = i % 2 ? low : high;
	cr_assert_eq(zinf_state_write(job.zinf, job.param[0], ZINF_STATE_MASTER, values, 15, 0), 0,
	             "%s", zinf_error_text(job.zinf));
	memset(values, 0, sizeof(values));
	cr_assert_eq(zinf_state_read(job.zinf, job.param[0], ZINF_STATE_MASTER, values, 15), 0,
	             "%s", zinf_error_text(job.zinf));
	for (uint32_t i = 0; i < 15; i++)
		cr_assert_eq(values[i], i % 2 ? low : high, "%u: %g", i, (double)values[i]);
	values[7] = 3;
	refused(&job, -EINVAL, "the master of element 7 of 'a.w' is 3, which does not round to",
	        zinf_state_write(job.zinf, job.param[0], ZINF_STATE_MASTER, values, 15, 0));
	cr_assert_eq(zinf_param_write_begin(job.zinf, 0), 0);
	refused(&job, -EBUSY, "unit 'a' is writable",
	        zinf_state_read(job.zinf, job.param[0], ZINF_STATE_MASTER, values, 15));
	fake_job_leave(&job);
}

Test(state, masters_of_16_bit_parameters_are_joined_and_split)
{
	uint32_t low = 0x01007fff + 2, high = 0x01017ff0; /* Both round to 0x0101. */
	float bounds[2];

	memcpy(&bounds[0], &low, 4);
	memcpy(&bounds[1], &high, 4);
	expect_master(ZINF_BF16, bounds[0], bounds[1]);
	/* f16 0x0101: 257 × 2^-24. */
	expect_master(ZINF_F16, ldexpf(257.4f, -24), ldexpf(256.6f, -24));
}

Test(state, f32_parameters_are_their_own_master)
{
	struct fake_job job = attach(&able, ZINF_F32, ZINF_SGD);

	cr_assert_eq(zinf_state_read(job.zinf, job.param[0], ZINF_STATE_MASTER, values, 15), 0,
	             "%s", zinf_error_text(job.zinf));
	cr_assert_eq(memcmp(values, zinf_param_data(job.zinf, job.param[0]), 60), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_STATE_OPEN)), 0);
	refused(&job, -EINVAL, "fp32 parameters are their own master",
	        zinf_state_write(job.zinf, job.param[0], ZINF_STATE_MASTER, values, 15, 0));
	fake_job_leave(&job);
}

Test(state, every_optimizer_has_its_kinds_and_no_others)
{
	static const struct {
		enum zinf_optimizer optimizer;
		uint32_t kinds;
		const char *words;
	} cases[] = {
		{ ZINF_ADAMW, 1u << ZINF_STATE_EXP_AVG | 1u << ZINF_STATE_EXP_AVG_SQ,
		  "adamw has MASTER, EXP_AVG and EXP_AVG_SQ" },
		{ ZINF_ADAM, 1u << ZINF_STATE_EXP_AVG | 1u << ZINF_STATE_EXP_AVG_SQ,
		  "adam has MASTER, EXP_AVG and EXP_AVG_SQ" },
		{ ZINF_SGD, 1u << ZINF_STATE_MOMENTUM, "sgd has MASTER and MOMENTUM" },
		{ ZINF_ADAGRAD, 1u << ZINF_STATE_SUM, "adagrad has MASTER and SUM" },
		{ ZINF_LION, 1u << ZINF_STATE_EXP_AVG, "lion has MASTER and EXP_AVG" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake_job job = attach(&able, ZINF_F32, cases[i].optimizer);

		for (int kind = ZINF_STATE_EXP_AVG; kind <= ZINF_STATE_SUM + 1; kind++) {
			int r = zinf_state_read(job.zinf, 1, (enum zinf_state_kind)kind, values, 1);

			if (cases[i].kinds >> kind & 1)
				cr_assert_eq(r, 0, "%s", zinf_error_text(job.zinf));
			else
				refused(&job, -EINVAL, cases[i].words, r);
		}
		fake_job_leave(&job);
	}
}

Test(state, what_does_not_fit_is_refused_by_name)
{
	struct fake_job job = attach(&able, ZINF_F32, ZINF_ADAMW);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	refused(&job, -EINVAL, "parameter 3 of 3",
	        zinf_state_read(job.zinf, 3, ZINF_STATE_EXP_AVG, values, 1));
	refused(&job, -EINVAL, "14 values, but parameter 'a.w' has 15 elements",
	        zinf_state_read(job.zinf, 0, ZINF_STATE_EXP_AVG, values, 14));
	refused(&job, -EINVAL, "root 1 of a world of 1",
	        zinf_state_write(job.zinf, 0, ZINF_STATE_EXP_AVG, values, 15, 1));
	refused(&job, -EINVAL, "values is NULL",
	        zinf_state_write(job.zinf, 0, ZINF_STATE_EXP_AVG, NULL, 15, 0));
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	refused(&job, -EBUSY, "a step is under way",
	        zinf_state_write(job.zinf, 0, ZINF_STATE_EXP_AVG, values, 15, 0));
	refused(&job, -EBUSY, "a step is under way", zinf_update_count_set(job.zinf, 1, 0.5, 0.5));
	fake_job_leave(&job);
}

Test(state, an_older_daemon_is_told_of_before_anything_is_sent)
{
	struct fake_job job =
		attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING }, ZINF_F32,
	               ZINF_ADAMW);

	refused(&job, -EOPNOTSUPP, "cannot keep, read or write optimizer state: use a newer one",
	        zinf_state_read(job.zinf, 0, ZINF_STATE_EXP_AVG, values, 15));
	refused(&job, -EOPNOTSUPP, "use a newer one",
	        zinf_state_write(job.zinf, 0, ZINF_STATE_EXP_AVG, values, 15, 0));
	refused(&job, -EOPNOTSUPP, "use a newer one", zinf_update_count_set(job.zinf, 1, 0, 0));
	cr_assert_eq(zinf_param_write_begin(job.zinf, 0), 0);
	refused(&job, -EOPNOTSUPP, "use a newer one", zinf_param_write_keep(job.zinf, 0, 0));
	cr_assert_eq(zinf_param_write_end(job.zinf, 0, 0), 0);
	fake_job_leave(&job);
}

Test(state, a_window_that_is_too_short_ends_the_session)
{
	struct fake_daemon_options lying = able;

	lying.lie = FAKE_LIE_STATE_SHORT;
	struct fake_job job = attach(&lying, ZINF_F32, ZINF_ADAMW);

	refused(&job, -EPROTO, "a window for optimizer state that is not sealed, too short",
	        zinf_state_read(job.zinf, 0, ZINF_STATE_EXP_AVG, values, 15));
	fake_job_leave(&job);
}

static struct zinf *victim;

static void interrupt_victim(void *arg)
{
	(void)arg;
	zinf_interrupt(victim);
}

/* A rank whose zinf_state_read() was interrupted when the daemon held its message of this @type. */
static struct fake_job attach_interrupted(enum zi_message_type type)
{
	struct fake_daemon_options holding = able;

	holding.hold_on = FAKE_ON_MESSAGE(type);
	holding.on_hold = interrupt_victim;
	struct fake_job job = attach(&holding, ZINF_F32, ZINF_ADAMW);

	victim = job.zinf;
	cr_assert_eq(zinf_state_read(job.zinf, 0, ZINF_STATE_EXP_AVG, values, 15), -EINTR);
	return job;
}

Test(state, a_call_is_interrupted_before_the_window_is_there)
{
	struct fake_job job = attach_interrupted(ZI_MESSAGE_STATE_OPEN);

	cr_assert_null(job.zinf->state_base);
	fake_daemon_release(job.fake);
	cr_assert_eq(zinf_state_read(job.zinf, 0, ZINF_STATE_EXP_AVG, values, 15), 0, "%s",
	             zinf_error_text(job.zinf));
	cr_assert_not_null(job.zinf->state_base);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_STATE_OPEN)), 1);
	fake_job_leave(&job);
}

Test(state, an_interrupted_call_is_repeated_and_goes_on)
{
	struct fake_job job = attach_interrupted(ZI_MESSAGE_STATE_READ);

	cr_assert_not_null(job.zinf->state_base);
	refused(&job, -EBUSY, "zinf_state_read() was interrupted",
	        zinf_update_count_set(job.zinf, 1, 0, 0));
	refused(&job, -EBUSY, "zinf_state_read() was interrupted",
	        zinf_state_read(job.zinf, 0, ZINF_STATE_EXP_AVG_SQ, values, 15));
	fake_daemon_release(job.fake);
	cr_assert_eq(zinf_state_read(job.zinf, 0, ZINF_STATE_EXP_AVG, values, 15), 0, "%s",
	             zinf_error_text(job.zinf));
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_STATE_READ)), 1);
	cr_assert_eq(zinf_update_count_set(job.zinf, 1, 0, 0), 0);
	fake_job_leave(&job);
}
