/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a step can only be made in order, what is missing is told by name, results and errors reach
 * the call they belong to. Method: the fake daemon counts what it was asked and answers as told. */
#include "tests/fake/fake_job.h"

static const struct fake_daemon_options honest = { 0 };

static uint32_t op_count(struct fake_job *job, enum zi_opcode opcode)
{
	cr_assert_eq(zinf_ping(job->zinf), 0, "all before it was taken");
	return fake_daemon_count(job->fake, FAKE_ON_OP(opcode));
}

Test(step, whole_step_commits_with_blob_options_and_statistics)
{
	struct fake_job job = fake_job_attach(&honest);
	struct zinf_step_stats stats = { .bytes = sizeof(stats) };
	zinf_ticket ticket = 0;
	uint64_t blob_bytes;
	bool is_done = false;

	fake_job_materialize(&job);
	fake_job_backward(&job);
	cr_assert_eq(fake_daemon_step_options(job.fake)->lr, 1e-3);
	cr_assert_eq(fake_daemon_step_options(job.fake)->unscale, 1.0);
	cr_assert_eq(zinf_step(job.zinf, "blob", 4, &ticket), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_neq(ticket, 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, &stats), 0);
	cr_assert_eq(stats.step, 1);
	cr_assert_eq(stats.norm, 2.5);
	cr_assert_eq(zinf_committed_step(job.zinf), 1);
	cr_assert_eq(memcmp(fake_daemon_blob(job.fake, &blob_bytes), "blob", 4), 0);
	cr_assert_eq(blob_bytes, 4);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), -EINVAL, "once");
	cr_assert_eq(zinf_test(job.zinf, ticket, &is_done), -EINVAL);
	fake_job_leave(&job);
}

Test(step, options_travel_bit_by_bit)
{
	struct fake_job job = fake_job_attach_with(&honest, ZINF_REDUCE_PER_MICRO_BATCH);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	const struct zi_step_options *seen = fake_daemon_step_options(job.fake);

	fake_job_materialize(&job);
	step.lr = 0.1;
	step.beta1 = 0.2;
	step.beta2 = 0.3;
	step.eps = 0.4;
	step.weight_decay = 0.5;
	step.max_norm = 0.6;
	step.unscale = 0.7;
	step.micro_batches = 8;
	step.nesterov = step.skip_nonfinite = true;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(seen->lr, 0.1);
	cr_assert_eq(seen->beta1, 0.2);
	cr_assert_eq(seen->beta2, 0.3);
	cr_assert_eq(seen->eps, 0.4);
	cr_assert_eq(seen->weight_decay, 0.5);
	cr_assert_eq(seen->max_norm, 0.6);
	cr_assert_eq(seen->unscale, 0.7);
	cr_assert_eq(seen->micro_batches, 8);
	cr_assert_eq(seen->flags, ZI_STEP_NESTEROV | ZI_STEP_SKIP_NONFINITE);
	fake_job_leave(&job);
}

Test(step, statistics_of_an_earlier_header_are_filled_as_far_as_they_go)
{
	struct fake_job job = fake_job_attach(&honest);
	struct zinf_step_stats stats = { .bytes = offsetof(struct zinf_step_stats, committed_step),
		                         .committed_step = 77 };
	zinf_ticket ticket = 0;

	fake_job_materialize(&job);
	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, &stats), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(stats.norm, 2.5);
	cr_assert_eq(stats.committed_step, 77, "not touched");
	fake_job_leave(&job);
}

Test(step, promise_of_an_early_update_is_kept_without_asking_the_daemon)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_EARLY });
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;

	fake_job_materialize(&job);
	step.update_early = true;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(fake_daemon_step_options(job.fake)->flags, ZI_STEP_UPDATE_EARLY);
	cr_assert_eq(zinf_unshard(job.zinf, 1), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_grad_acquire(job.zinf, i), 0);
		cr_assert_eq(zinf_reduce(job.zinf, i), 0);
	}
	cr_assert_eq(zinf_unshard(job.zinf, 1), 0, "a use that nests in one that is not over");
	cr_assert_eq(zinf_reshard(job.zinf, 1), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 1), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_unshard(job.zinf, i), -EBUSY);
		expect_text(job.zinf, "update_early promised");
	}
	cr_assert_eq(op_count(&job, ZI_OP_UNSHARD), 1);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 1), 0, "the next forward");
	fake_job_leave(&job);
}

Test(step, early_update_is_not_asked_of_a_daemon_that_does_not_know_it)
{
	struct fake_job job = fake_job_attach(&honest);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	fake_job_materialize(&job);
	step.update_early = true;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(fake_daemon_step_options(job.fake)->flags, 0);
	fake_job_leave(&job);
}

Test(step, wrong_options_never_reach_the_daemon)
{
	struct fake_job job = fake_job_attach(&honest);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL, "before materialize");
	fake_job_materialize(&job);
	step.lr = -1;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	expect_text(job.zinf, "lr is -1");
	step = (struct zinf_step_options)ZINF_STEP_OPTIONS_INIT;
	step.bytes = 4;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	step = (struct zinf_step_options)ZINF_STEP_OPTIONS_INIT;
	step.reserved[0] = 1;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	step = (struct zinf_step_options)ZINF_STEP_OPTIONS_INIT;
	step.micro_batches = 2;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	expect_text(job.zinf, "grad_reduction per_step");
	cr_assert_eq(op_count(&job, ZI_OP_STEP_BEGIN), 0);
	fake_job_leave(&job);
}

Test(step, refused_begin_tells_the_figures_and_may_be_made_again)
{
	struct fake_job job = fake_job_attach(
		&(struct fake_daemon_options){ .fail_on = FAKE_ON_OP(ZI_OP_STEP_BEGIN),
	                                       .fail_error = -ENOSPC,
	                                       .fail_text = "2 GiB needed, 1 GiB free" });
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	fake_job_materialize(&job);
	for (int i = 0; i < 40; i++) { /* more than text slots and ring entries */
		cr_assert_eq(zinf_step_begin(job.zinf, &step), -ENOSPC);
		cr_assert_str_eq(zinf_error_text(job.zinf), "2 GiB needed, 1 GiB free");
	}
	cr_assert_eq(zinf_reduce(job.zinf, 0), -EINVAL, "no step has begun");
	fake_job_leave(&job);
}

Test(step, failure_without_text_names_operation_and_error)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){
		.fail_on = FAKE_ON_OP(ZI_OP_UNSHARD), .fail_error = -EIO });

	fake_job_materialize(&job);
	cr_assert_eq(zinf_unshard(job.zinf, 0), -EIO);
	expect_text(job.zinf, "unshard: Input/output error");
	cr_assert_eq(zinf_reshard(job.zinf, 0), -EINVAL, "it is not unsharded");
	fake_job_leave(&job);
}

Test(step, missing_gradients_and_used_units_are_named_and_can_be_mended)
{
	struct fake_job job = fake_job_attach(&honest);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket = 77;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "call zinf_step_begin() first");
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EBUSY);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), -ENODATA);
	expect_text(job.zinf, "no gradient for units: a, b");
	cr_assert_eq(zinf_unshard(job.zinf, 1), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_grad_acquire(job.zinf, i), 0);
		cr_assert_eq(zinf_reduce(job.zinf, i), 0);
	}
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), -EBUSY);
	expect_text(job.zinf, "units still unsharded: b (call zinf_reshard()");
	cr_assert_eq(op_count(&job, ZI_OP_STEP), 0);
	cr_assert_eq(ticket, 77);
	cr_assert_eq(zinf_reshard(job.zinf, 1), 0);
	cr_assert_eq(zinf_step(job.zinf, NULL, ZINF_BLOB_BYTES + 1, &ticket), -EINVAL);
	cr_assert_eq(zinf_step(job.zinf, NULL, 1, &ticket), -EINVAL);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}

Test(step, many_names_are_cut_to_a_number)
{
	struct fake_job job = fake_job_attach(&honest);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;
	uint32_t index;
	char name[96];

	memset(name, 'n', sizeof(name));
	name[95] = '\0';
	for (char i = 0; i < 9; i++) {
		name[0] = (char)('a' + i);
		cr_assert_eq(zinf_unit_add(job.zinf, name, &index), 0);
		cr_assert_eq(zinf_param_add(job.zinf, "p", 0, NULL, &index), 0);
	}
	cr_assert_eq(zinf_materialize(job.zinf), 0);
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), -ENODATA);
	expect_text(job.zinf, "and 5 more");
	fake_job_leave(&job);
}

Test(step, uses_nest_and_the_daemon_hears_of_one)
{
	struct fake_job job = fake_job_attach(&honest);

	fake_job_materialize(&job);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_prefetch(job.zinf, 0), 0, "it is here");
	cr_assert_eq(zinf_prefetch(job.zinf, 1), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_assert_eq(op_count(&job, ZI_OP_UNSHARD), 1);
	cr_assert_eq(op_count(&job, ZI_OP_RESHARD), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 0), -EINVAL);
	expect_text(job.zinf, "unit 'a' is not unsharded");
	cr_assert_eq(op_count(&job, ZI_OP_RESHARD), 1);
	cr_assert_eq(op_count(&job, ZI_OP_PREFETCH), 1);
	cr_assert_eq(zinf_unshard(job.zinf, 2), -EINVAL);
	expect_text(job.zinf, "unit 2 of 2");
	cr_assert_eq(zinf_prefetch(job.zinf, 2), -EINVAL);
	cr_assert_eq(zinf_grad_acquire(job.zinf, UINT32_MAX), -EINVAL);
	fake_job_leave(&job);
}

Test(step, gradient_is_handed_over_once_and_only_when_held)
{
	struct fake_job job = fake_job_attach(&honest);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 0), 0);
	cr_assert_eq(zinf_reduce(job.zinf, 0), -EINVAL, "no step has begun");
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(zinf_reduce(job.zinf, 1), -EINVAL, "not acquired");
	expect_text(job.zinf, "zinf_grad_acquire()");
	cr_assert_eq(zinf_grad_acquire(job.zinf, 0), 0, "held already");
	cr_assert_eq(op_count(&job, ZI_OP_GRAD_ACQUIRE), 1);
	cr_assert_eq(zinf_reduce(job.zinf, 0), 0);
	cr_assert_eq(zinf_reduce(job.zinf, 0), -EALREADY);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 0), 0);
	cr_assert_eq(zinf_reduce(job.zinf, 0), -EALREADY, "local: once per step");
	cr_assert_eq(op_count(&job, ZI_OP_REDUCE), 1);
	fake_job_leave(&job);
}

Test(step, sharded_schedule_reduces_each_micro_batch)
{
	struct fake_job job = fake_job_attach_with(&honest, ZINF_REDUCE_PER_MICRO_BATCH);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;

	fake_job_materialize(&job);
	step.micro_batches = 2;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), -ENODATA);
		cr_assert_eq(zinf_grad_acquire(job.zinf, 0), 0);
		cr_assert_eq(zinf_reduce(job.zinf, 0), 0);
		cr_assert_eq(zinf_grad_acquire(job.zinf, 1), 0);
		cr_assert_eq(zinf_reduce(job.zinf, 1), 0);
	}
	cr_assert_eq(zinf_grad_acquire(job.zinf, 1), 0);
	cr_assert_eq(zinf_reduce(job.zinf, 1), -EALREADY);
	expect_text(job.zinf, "2 of 2 times");
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}

Test(step, error_of_what_nobody_waits_for_is_told_once_by_the_next_wait_on_the_unit)
{
	const enum zi_opcode opcodes[] = { ZI_OP_REDUCE, ZI_OP_RESHARD, ZI_OP_PREFETCH };

	for (size_t i = 0; i < 3; i++) {
		struct fake_job job = fake_job_attach(
			&(struct fake_daemon_options){ .fail_on = FAKE_ON_OP(opcodes[i]),
		                                       .fail_error = -EBADMSG,
		                                       .fail_text = "block 7 is damaged" });
		struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

		fake_job_materialize(&job);
		cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
		cr_assert_eq(zinf_prefetch(job.zinf, 0), 0);
		cr_assert_eq(zinf_grad_acquire(job.zinf, 0), 0);
		cr_assert_eq(zinf_reduce(job.zinf, 0), 0);
		if (i == 1) {
			cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
			cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
		}
		cr_assert_eq(zinf_ping(job.zinf), 0, "another wait does not tell it");
		cr_assert_eq(zinf_unshard(job.zinf, 1), 0, "nor one on another unit");
		cr_assert_eq(zinf_unshard(job.zinf, 0), -EBADMSG, "%zu", i);
		expect_text(job.zinf, "block 7 is damaged");
		cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
		fake_job_leave(&job);
	}
}

Test(step, error_of_a_reduction_is_told_by_the_step)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){
		.fail_on = FAKE_ON_OP(ZI_OP_REDUCE), .fail_error = -EIO, .fail_text = "no" });
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_grad_acquire(job.zinf, i), 0);
		cr_assert_eq(zinf_reduce(job.zinf, i), 0);
	}
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), -EIO);
	cr_assert_eq(op_count(&job, ZI_OP_STEP), 0);
	fake_job_leave(&job);
}

Test(step, refused_step_surfaces_in_wait_and_can_be_made_again)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){
		.fail_on = FAKE_ON_OP(ZI_OP_STEP), .fail_error = -ENODATA, .fail_text = "unit b" });
	struct zinf_step_stats stats = { .bytes = sizeof(stats), .step = 77 };
	zinf_ticket ticket;

	fake_job_materialize(&job);
	fake_job_backward(&job);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(zinf_step(job.zinf, "x", 1, &ticket), 0);
		cr_assert_eq(zinf_wait(job.zinf, ticket, &stats), -ENODATA);
		expect_text(job.zinf, "unit b");
		cr_assert_eq(stats.step, 77, "untouched on failure");
	}
	cr_assert_eq(zinf_committed_step(job.zinf), 0);
	fake_job_leave(&job);
}

Test(step, tickets_are_tested_and_waited_for_in_any_order)
{
	struct fake_job job = fake_job_attach(&honest);
	zinf_ticket tickets[3];

	fake_job_materialize(&job);
	for (int i = 0; i < 3; i++) {
		fake_job_backward(&job);
		cr_assert_eq(zinf_step(job.zinf, "abc", 3, &tickets[i]), 0);
	}
	for (int i = 2; i >= 0; i--) {
		struct zinf_step_stats stats = { .bytes = sizeof(stats) };
		bool is_done = false;

		while (!is_done)
			cr_assert_eq(zinf_test(job.zinf, tickets[i], &is_done), 0);
		cr_assert_eq(zinf_wait(job.zinf, tickets[i], &stats), 0);
		cr_assert_eq(stats.step, (uint64_t)i + 1);
	}
	cr_assert_eq(zinf_wait(job.zinf, 0, NULL), -EINVAL);
	cr_assert_eq(zinf_wait(job.zinf, 12345678, NULL), -EINVAL);
	fake_job_leave(&job);
}

Test(step, statistics_need_their_size)
{
	struct fake_job job = fake_job_attach(&honest);
	struct zinf_step_stats stats = { 0 };
	zinf_ticket ticket;

	fake_job_materialize(&job);
	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, &stats), -EINVAL);
	stats.bytes = sizeof(stats);
	cr_assert_eq(zinf_wait(job.zinf, ticket, &stats), 0, "the ticket is still there");
	fake_job_leave(&job);
}

Test(step, tickets_that_nobody_waits_for_are_limited)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ .ring_entries = 4 });
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket, first = 0;

	fake_job_materialize(&job);
	for (int i = 0; i < 4; i++) {
		fake_job_backward(&job);
		cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
		first = first ? first : ticket;
	}
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -ENOBUFS);
	expect_text(job.zinf, "4 tickets");
	cr_assert_eq(zinf_wait(job.zinf, first, NULL), 0);
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	fake_job_leave(&job);
}

Test(step, more_operations_than_entries_wait_for_room)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ .ring_entries = 4 });

	fake_job_materialize(&job);
	for (int i = 0; i < 1000; i++)
		cr_assert_eq(zinf_prefetch(job.zinf, (uint32_t)i % 2), 0, "%s",
		             zinf_error_text(job.zinf));
	cr_assert_eq(op_count(&job, ZI_OP_PREFETCH), 1000);
	fake_job_leave(&job);
}

Test(step, commit_returns_the_step_and_carries_the_blob)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .committed_step = -1 });
	static char large[ZINF_BLOB_BYTES];
	uint64_t blob_bytes;
	zinf_ticket ticket;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_committed_step(job.zinf), -1);
	cr_assert_eq(zinf_commit(job.zinf, NULL, sizeof(large) + 1), -EINVAL);
	expect_text(job.zinf, "at most 65536");
	cr_assert_eq(zinf_commit(job.zinf, large, sizeof(large)), 0);
	cr_assert_eq(zinf_committed_step(job.zinf), 0);
	(void)fake_daemon_blob(job.fake, &blob_bytes);
	cr_assert_eq(blob_bytes, ZINF_BLOB_BYTES);
	/* A blob right behind another one: the first must have been taken. */
	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, "first", 5, &ticket), 0);
	cr_assert_eq(zinf_commit(job.zinf, "second", 6), 0);
	cr_assert_eq(op_count(&job, ZI_OP_NOP), 2, "one of them our own question");
	cr_assert_eq(memcmp(fake_daemon_blob(job.fake, &blob_bytes), "second", 6), 0);
	fake_job_leave(&job);
}

Test(step, spinning_and_sleeping_rank_see_the_same)
{
	for (uint32_t spin_us = 0; spin_us <= 2000; spin_us += 1000) {
		struct fake_job job =
			fake_job_attach(&(struct fake_daemon_options){ .spin_us = spin_us });

		for (int i = 0; i < 300; i++)
			cr_assert_eq(zinf_ping(job.zinf), 0);
		cr_assert_eq(op_count(&job, ZI_OP_NOP), 301);
		fake_job_leave(&job);
	}
}
