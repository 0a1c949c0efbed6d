/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a mistake within a step is answered at the call that is wrong, with an errno and a sentence
 * that holds names and values; the right call made after it goes on where the wrong one stood.
 * Method: two ranks attached from threads of the test.
 */
#include "tests/system/pair.h"

TestSuite(badstep, .timeout = 120);

static void do_unit(struct zinf *zinf, uint32_t unit, uint64_t elements)
{
	cr_assert_eq(zinf_unshard(zinf, unit), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_grad_acquire(zinf, unit), 0, "%s", zinf_error_text(zinf));
	memset(zinf_grad_data(zinf, unit), 0, elements * sizeof(float));
	cr_assert_eq(zinf_reduce(zinf, unit), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_reshard(zinf, unit), 0, "%s", zinf_error_text(zinf));
}

Test(badstep, a_step_with_gradients_missing_names_the_unit_and_can_be_mended)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct zinf *zinf[2];
	zinf_ticket ticket;
	int other;

	start(NULL);
	make_pair(zinf);
	for (int rank = 0; rank < 2; rank++) {
		cr_assert_eq(zinf_step_begin(zinf[rank], &step), 0);
		do_unit(zinf[rank], 1, 10);
	}
	cr_assert_eq(zinf_step(zinf[0], NULL, 0, &ticket), -ENODATA);
	system_expect_text(zinf_error_text(zinf[0]), "body");
	for (int rank = 0; rank < 2; rank++)
		do_unit(zinf[rank], 0, 1200);
	cr_assert_eq(both(zinf, step_and_wait, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, 0);
	end_pair(zinf);
	stop();
}

Test(badstep, a_step_with_a_unit_still_unsharded_names_it_and_can_be_mended)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct zinf *zinf[2];
	zinf_ticket ticket;
	int other;

	start(NULL);
	make_pair(zinf);
	for (int rank = 0; rank < 2; rank++) {
		cr_assert_eq(zinf_step_begin(zinf[rank], &step), 0);
		do_unit(zinf[rank], 1, 10);
		do_unit(zinf[rank], 0, 1200);
	}
	cr_assert_eq(zinf_unshard(zinf[0], 1), 0);
	cr_assert_eq(zinf_step(zinf[0], NULL, 0, &ticket), -EBUSY);
	system_expect_text(zinf_error_text(zinf[0]), "head");
	cr_assert_eq(zinf_reshard(zinf[0], 1), 0);
	cr_assert_eq(both(zinf, step_and_wait, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, 0);
	end_pair(zinf);
	stop();
}

Test(badstep, step_options_that_differ_are_named_with_both_values)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct zinf *zinf[2];

	start(NULL);
	make_pair(zinf);
	step.lr = 0.25;
	cr_assert_eq(zinf_step_begin(zinf[0], &step), 0);
	step.lr = 0.5;
	cr_assert_eq(zinf_step_begin(zinf[1], &step), -EINVAL);
	system_expect_text(zinf_error_text(zinf[1]), "lr is 0.5 in rank 1, but 0.25 in rank 0");
	step.lr = 0.25;
	step.nesterov = true;
	cr_assert_eq(zinf_step_begin(zinf[1], &step), -EINVAL);
	system_expect_text(zinf_error_text(zinf[1]), "nesterov");
	step.nesterov = false;
	cr_assert_eq(zinf_step_begin(zinf[1], &step), 0);
	end_pair(zinf);
	stop();
}

Test(badstep, calls_at_the_wrong_time_are_refused_one_by_one)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	static char blob[ZINF_BLOB_BYTES + 1];
	struct zinf *zinf[2];
	zinf_ticket ticket;

	start(NULL);
	make_pair(zinf);
	cr_assert_eq(zinf_step(zinf[0], NULL, 0, &ticket), -EINVAL);
	cr_assert_eq(zinf_reshard(zinf[0], 0), -EINVAL);
	cr_assert_eq(zinf_unshard(zinf[0], 2), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "unit 2");
	cr_assert_eq(zinf_param_write_end(zinf[0], 0, 7), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "root 7");
	step.micro_batches = 2;
	cr_assert_eq(zinf_step_begin(zinf[0], &step), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "micro_batches is 2");
	step.micro_batches = 1;
	cr_assert_eq(zinf_step_begin(zinf[0], &step), 0);
	cr_assert_eq(zinf_param_write_begin(zinf[0], 0), -EBUSY);
	do_unit(zinf[0], 0, 1200);
	cr_assert_eq(zinf_reduce(zinf[0], 0), -EALREADY);
	do_unit(zinf[0], 1, 10);
	cr_assert_eq(zinf_step(zinf[0], blob, sizeof(blob), &ticket), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "65537");
	cr_assert_eq(zinf_ping(zinf[0]), 0);
	end_pair(zinf);
	stop();
}
