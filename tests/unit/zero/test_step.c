/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the protocol of a step. What is out of order is refused with a sentence and changes
 * nothing; what must wait waits; blobs, skipped steps, writes between steps and statistics are
 * right. Method: ranks called out of order beside the plain computation.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/world.h"

Test(zero_step, calls_out_of_order_are_refused)
{
	begin(2, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	refused(&actors[0], -EINVAL, "before step_begin", actor_call(&actors[0], zero_step, NULL));
	refused(&actors[0], -EINVAL, "before step_begin", actor_unit(&actors[0], zero_reduce, 0));
	refused(&actors[0], -EINVAL, "was not unsharded", actor_unit(&actors[0], zero_reshard, 1));
	refused(&actors[0], -EINVAL, "the job has 3", actor_unit(&actors[0], zero_unshard, 3));
	cr_assert_eq(step_begin(&actors[0], model_options()), 0);
	refused(&actors[0], -EALREADY, "began this step", step_begin(&actors[0], model_options()));
	refused(&actors[1], -EINVAL, "before step_begin", actor_unit(&actors[1], zero_reduce, 0));
	cr_assert_eq(actor_unit(&actors[0], zero_reduce, 0), 0);
	refused(&actors[0], -EALREADY, "'embed'", actor_unit(&actors[0], zero_reduce, 0));
	refused(&actors[0], -EBUSY, "a step is under way",
	        actor_unit(&actors[0], zero_param_write_begin, 0));
	refused(&actors[0], -EBUSY, "a step is under way",
	        actor_unit(&actors[0], zero_param_write_end, 0));
	refused(&actors[0], -EBUSY, "a step is under way",
	        actor_call(&actors[0], zero_commit, NULL));
	end(2);
}

/* What is told to a rank is of its own call, not of whoever had the op's memory before. */
Test(zero_step, answer_has_nothing_of_a_former_call)
{
	const struct zero_op used = { .options = model_options(),
		                      .micro_batches = 77,
		                      .offset_bytes = 78 };

	begin(1, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(actor_call(&actors[0], zero_step_begin, &used), 0);
	cr_assert_eq(actors[0].calls[0].op.micro_batches, 0);
	cr_assert_eq(actors[0].calls[0].op.offset_bytes, 0);
	end(1);
}

Test(zero_step, options_that_differ_are_refused_with_rank_field_and_values)
{
	struct zi_step_options options = model_options();

	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_SHARDED);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	options.lr = 0.5;
	refused(&actors[1], -EINVAL, "lr is 0.5 in rank 1, but 0.01 in rank 0",
	        step_begin(&actors[1], options));
	options = model_options();
	options.micro_batches = 3;
	refused(&actors[1], -EINVAL, "micro_batches is 3 in rank 1, but 1 in rank 0",
	        step_begin(&actors[1], options));
	options = model_options();
	options.flags = ZI_STEP_SUM;
	refused(&actors[1], -EINVAL, "sum is set in rank 1, but not set in rank 0",
	        step_begin(&actors[1], options));
	options = model_options();
	options.weight_decay = -0.0;
	refused(&actors[1], -EINVAL, "weight_decay", step_begin(&actors[1], options));
	options = model_options();
	options.lr_decay = 0.125;
	refused(&actors[1], -EINVAL, "lr_decay is 0.125 in rank 1, but 0 in rank 0",
	        step_begin(&actors[1], options));
	options = model_options();
	options.flags = ZI_STEP_NO_BIAS_CORRECTION;
	refused(&actors[1], -EINVAL, "no_bias_correction is set in rank 1, but not set in rank 0",
	        step_begin(&actors[1], options));
	cr_assert_eq(step_begin(&actors[1], model_options()), 0, "others are not harmed");
	end(2);
}

/* Of @optimizer's first step; nothing has begun. */
static void step_refused(uint32_t optimizer, double lr_decay, uint32_t flags, const char *words)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);
	struct zi_step_options options = model_options();

	config.optimizer = optimizer;
	begin_with(1, &config);
	options.lr_decay = lr_decay;
	options.flags = flags;
	if (words)
		refused(&actors[0], -EINVAL, words, step_begin(&actors[0], options));
	else
		cr_assert_eq(step_begin(&actors[0], options), 0, "%s", actors[0].text.chars);
	end(1);
}

Test(zero_step, what_another_optimizer_has_is_refused_by_name)
{
	step_refused(ZI_OPTIMIZER_ADAGRAD, 0.25, 0, NULL);
	step_refused(ZI_OPTIMIZER_LION, 0.25, 0,
	             "lr_decay is 0.25: adagrad has one, the job's optimizer is lion");
	step_refused(ZI_OPTIMIZER_ADAM, 0, ZI_STEP_NO_BIAS_CORRECTION, NULL);
	step_refused(ZI_OPTIMIZER_ADAMW, 0, ZI_STEP_NO_BIAS_CORRECTION, NULL);
	step_refused(ZI_OPTIMIZER_SGD, 0, ZI_STEP_NO_BIAS_CORRECTION,
	             "no_bias_correction is set: adam and adamw have one, the job's optimizer is "
	             "sgd");
}

Test(zero_step, micro_batches_need_the_sharded_schedule)
{
	struct zi_step_options options = model_options();

	begin(1, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	options.micro_batches = 2;
	refused(&actors[0], -EINVAL, "grad_reduction per_step", step_begin(&actors[0], options));
	options.micro_batches = 0;
	refused(&actors[0], -EINVAL, "micro_batches is 0", step_begin(&actors[0], options));
	end(1);
}

Test(zero_step, what_comes_after_the_step_of_a_rank_is_refused)
{
	struct zi_step_options options = model_options();

	begin(2, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	model_gradients(actors, 2, 1, &options);
	actor_start(&actors[0], 1, zero_step, NULL);
	refused(&actors[0], -EINVAL, "a gradient of unit 'h.0' after step",
	        actor_unit(&actors[0], zero_reduce, 1));
	cr_assert_eq(actor_call(&actors[1], zero_step, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(2);
}

Test(zero_step, job_within_a_step_is_not_destroyed)
{
	begin(1, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(step_begin(&actors[0], model_options()), 0);
	refused(&actors[0], -EBUSY, "job 'train' is working",
	        actor_call(&actors[0], zero_job_destroy, NULL));
	end(1);
}

Test(zero_step, missing_gradients_and_pinned_units_are_named_and_may_be_mended)
{
	begin(1, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(step_begin(&actors[0], model_options()), 0);
	model_fill_grad(&actors[0], 1, 0, 1);
	cr_assert_eq(actor_unit(&actors[0], zero_reduce, 1), 0);
	refused(&actors[0], -ENODATA, "'embed', 'head'", actor_call(&actors[0], zero_step, NULL));
	for (uint32_t unit = 0; unit < UNITS; unit += 2) {
		model_fill_grad(&actors[0], 1, 0, unit);
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	}
	cr_assert_eq(actor_unit(&actors[0], zero_unshard, 1), 0);
	cr_assert_eq(actor_unit(&actors[0], zero_unshard, 1), 0, "it nests");
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 1), 0);
	refused(&actors[0], -EBUSY, "'h.0'", actor_call(&actors[0], zero_step, NULL));
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 1), 0);
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1,
	           &(struct zi_step_options){ .lr = 1e-2,
	                                      .beta1 = 0.9,
	                                      .beta2 = 0.99,
	                                      .eps = 1e-8,
	                                      .weight_decay = 0.1,
	                                      .unscale = 0.5,
	                                      .micro_batches = 1 });
	cr_assert(plain_equals(&plain, &actors[0]));
	end(1);
}

Test(zero_step, sharded_micro_batches_are_missed_and_counted)
{
	struct zi_step_options options = model_options();

	options.micro_batches = 2;
	begin(1, ZI_OFFLOAD_CPU, ZI_SCHEDULE_SHARDED);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		model_fill_grad(&actors[0], 1, 0, unit);
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	}
	refused(&actors[0], -ENODATA, "'embed', 'h.0', 'head'",
	        actor_call(&actors[0], zero_step, NULL));
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		cr_assert_eq(actor_unit(&actors[0], zero_grad_acquire, unit), 0);
		model_fill_grad(&actors[0], 1, 1, unit);
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	}
	node_settle(&node);
	refused(&actors[0], -EALREADY, "all 2 gradients", actor_unit(&actors[0], zero_reduce, 0));
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(1);
}

Test(zero_step, gradient_buffer_comes_back_when_it_is_no_longer_needed)
{
	struct zi_step_options options = model_options();

	options.max_norm = 1;
	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	model_gradients(actors, 2, 1, &options);
	actor_start(&actors[0], 1, zero_grad_acquire, &(struct zero_op){ .unit = 1 });
	actor_start(&actors[1], 1, zero_grad_acquire, &(struct zero_op){ .unit = 1 });
	node_settle(&node);
	cr_assert(actors[1].calls[1].is_done, "summed: rank 1 has its own back");
	cr_assert_not(actors[0].calls[1].is_done, "the sum lies in rank 0's");
	cr_assert_eq(all_call(actors, 2, zero_step, NULL), 0);
	cr_assert(actors[0].calls[1].is_done);
	cr_assert_eq(actors[0].calls[1].op.result, 0);
	end(2);
}

Test(zero_step, unshard_after_step_waits_for_the_update)
{
	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	model_gradients(actors, 2, 1,
	                &(struct zi_step_options){ .lr = 1, .unscale = 1, .micro_batches = 1 });
	actor_start(&actors[0], 0, zero_step, NULL);
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = 0 });
	actor_start(&actors[1], 1, zero_unshard, &(struct zero_op){ .unit = 0 });
	node_settle(&node);
	cr_assert_not(actors[0].calls[1].is_done, "it wants the next step's values");
	cr_assert(actors[1].calls[1].is_done, "this one has not called step");
	cr_assert_eq(actor_unit(&actors[1], zero_reshard, 0), 0);
	cr_assert_eq(actor_call(&actors[1], zero_step, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	end(2);
}

Test(zero_step, next_step_begins_when_the_former_is_committed)
{
	struct zi_step_options options = model_options();

	begin(1, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	model_gradients(actors, 1, 1, &options);
	actor_start(&actors[0], 0, zero_step, NULL);
	actor_start(&actors[0], 1, zero_step_begin, &(struct zero_op){ .options = options });
	cr_assert_not(actors[0].calls[1].is_done);
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	cr_assert(actors[0].calls[0].is_done);
	cr_assert_eq(actors[0].calls[0].op.stats.step, 1);
	end(1);
}

Test(zero_step, statistics_say_what_moved_and_how_long)
{
	struct zi_step_options options = model_options();
	const struct zi_step_stats *stats = &actors[0].calls[0].op.stats;
	uint64_t padded = 0;

	options.flags = ZI_STEP_WANT_NORM;
	begin(1, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	node.zero->options.is_staging_kept = false;
	for (uint32_t unit = 0; unit < UNITS; unit++)
		padded += zi_geometry_padded(model_elements[unit]);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0);
	cr_assert_eq(stats->read_bytes, 0, "moments that were never written take no reads");
	cr_assert_eq(stats->write_bytes, padded * 12, "10 of state, 2 of parameters");
	plain_step(&plain, 1, &options);
	cr_assert_eq(stats->norm, plain.norm);
	cr_assert_eq(stats->clip, 1.0);
	cr_assert_eq(stats->is_skipped, 0);
	cr_assert_gt(stats->step_ns, 0);
	cr_assert_geq(stats->step_ns, stats->commit_ns);
	cr_assert_leq(stats->norm_wait_ns + stats->io_read_ns + stats->io_write_ns + stats->cpu_ns +
	                      stats->commit_ns,
	              stats->step_ns);
	cr_assert_eq(model_step(actors, 1, 2, &options), 0);
	cr_assert_eq(stats->read_bytes, padded * 10);
	end(1);
}

Test(zero_step, non_finite_gradient_is_skipped_and_changes_nothing_but_the_number)
{
	struct zi_step_options options = model_options();
	float infinite = INFINITY;
	uint64_t bytes = 0;

	options.flags = ZI_STEP_SKIP_NONFINITE;
	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(model_step(actors, 2, 1, &options), 0);
	plain_step(&plain, 1, &options);
	uint64_t free_bytes = tier_extent_free_bytes(&node.nvme);

	cr_assert_eq(all_call(actors, 2, zero_step_begin, &(struct zero_op){ .options = options }),
	             0);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			model_fill_grad(&actors[i], 2, 0, unit);
			if (i == 1 && unit == 2)
				put(unit_of(&actors[i], actors[i].memory.grad, unit), 17, infinite,
				    ZI_DTYPE_BF16);
			cr_assert_eq(actor_unit(&actors[i], zero_reduce, unit), 0);
		}
	cr_assert_eq(all_call(actors, 2, zero_step,
	                      &(struct zero_op){ .blob = "skip", .blob_bytes = 4 }),
	             0);
	cr_assert_eq(actors[0].calls[0].op.stats.is_skipped, 1);
	cr_assert_eq(actors[0].calls[0].op.stats.step, 2);
	cr_assert_eq(actors[0].calls[0].op.stats.update_count, 1, "two steps, one update");
	cr_assert_eq(actors[0].calls[0].op.stats.culprit, 1);
	cr_assert_eq(actors[0].calls[0].op.culprit_unit, 2);
	cr_assert(plain_equals(&plain, &actors[0]));
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes, "nothing stays reserved");
	cr_assert_eq(memcmp(zero_blob(actors[1].rank, &bytes), "skip", 4), 0);
	/* The powers of beta did not advance: the next step is the plain computation's second. */
	cr_assert_eq(model_step(actors, 2, 3, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 3, &options);
	cr_assert(plain_equals(&plain, &actors[1]));
	cr_assert_eq(actors[1].calls[0].op.stats.update_count, 2);
	cr_assert_eq(actors[1].calls[0].op.stats.loss_scale, 1);
	end(2);
}

Test(zero_step, non_finite_gradient_that_is_not_to_be_skipped_goes_through)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_WANT_NORM;
	begin(1, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		model_fill_grad(&actors[0], 1, 0, unit);
		put(unit_of(&actors[0], actors[0].memory.grad, unit), 0, NAN, ZI_DTYPE_BF16);
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	}
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0);
	cr_assert(isnan(actors[0].calls[0].op.stats.norm));
	cr_assert_eq(actors[0].calls[0].op.stats.is_skipped, 0);
	end(1);
}

Test(zero_step, blobs_are_each_rank_s_own_and_those_of_the_newest_commit)
{
	struct zi_step_options options = model_options();
	uint64_t bytes = 99;

	begin(2, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(memcmp(zero_blob(actors[0].rank, &bytes), "zero", 4), 0);
	model_gradients(actors, 2, 1, &options);
	actor_start(&actors[0], 0, zero_step, &(struct zero_op){ .blob = "left", .blob_bytes = 4 });
	cr_assert_eq(memcmp(zero_blob(actors[0].rank, &bytes), "zero", 4), 0, "not committed yet");
	cr_assert_eq(actor_call(&actors[1], zero_step, NULL), 0);
	cr_assert_eq(memcmp(zero_blob(actors[0].rank, &bytes), "left", 4), 0);
	cr_assert_null(zero_blob(actors[1].rank, &bytes));
	cr_assert_eq(bytes, 0);
	end(2);
}

Test(zero_step, too_large_a_blob_is_refused)
{
	static char large[ZI_BLOB_BYTES + 1];
	struct zi_step_options options = model_options();

	begin(1, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	refused(&actors[0], -EINVAL, "65537 bytes",
	        actor_call(&actors[0], zero_commit,
	                   &(struct zero_op){ .blob = large, .blob_bytes = sizeof(large) }));
	model_gradients(actors, 1, 1, &options);
	refused(&actors[0], -EINVAL, "65537 bytes",
	        actor_call(&actors[0], zero_step,
	                   &(struct zero_op){ .blob = large, .blob_bytes = sizeof(large) }));
	cr_assert_eq(actor_call(&actors[0], zero_step,
	                        &(struct zero_op){ .blob = large, .blob_bytes = ZI_BLOB_BYTES }),
	             0);
	end(1);
}

Test(zero_step, nothing_can_step_before_the_first_commit)
{
	struct zi_job_config config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME);

	node_init(&node);
	node_start(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	refused(&actors[0], -EINVAL, "before materialize", step_begin(&actors[0], model_options()));
	cr_assert_eq(model_materialize(actors, 1), 0);
	refused(&actors[0], -EINVAL, "never committed", step_begin(&actors[0], model_options()));
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert_null(node_job(&node, "train"),
	               "a job that never committed is gone with its ranks");
	node_deinit(&node);
}

Test(zero_step, barrier_waits_for_every_rank)
{
	begin(3, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	actor_start(&actors[0], 0, zero_barrier, NULL);
	actor_start(&actors[2], 0, zero_barrier, NULL);
	node_turn(&node);
	cr_assert_not(actors[0].calls[0].is_done);
	refused(&actors[2], -EALREADY, "barrier",
	        (actor_start(&actors[2], 1, zero_barrier, NULL), actor_wait(&actors[2], 1)));
	cr_assert_eq(actor_call(&actors[1], zero_barrier, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	cr_assert_eq(actor_wait(&actors[2], 0), 0);
	cr_assert_eq(actor_unit(&actors[0], zero_prefetch, 0), 0);
	end(3);
}

static void report_each(void *arg, const struct zero_job_report *report)
{
	*(struct zero_job_report *)arg = *report;
}

Test(zero_step, report_has_every_plane_in_bytes)
{
	struct zero_job_report report = { .phase = NULL };
	uint64_t padded = 0;

	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_SHARDED);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		padded += zi_geometry_padded(model_elements[unit]);
	cr_assert_eq(model_step(actors, 2, 1,
	                        &(struct zi_step_options){ .unscale = 1, .micro_batches = 1 }),
	             0);
	cr_assert(zero_report(node.zero, "train", report_each, &report));
	cr_assert_not(zero_report(node.zero, "other", report_each, &report));
	cr_assert_str_eq(report.phase, "READY");
	cr_assert_eq(report.param_cpu_bytes, padded * 2);
	cr_assert_eq(report.grad_cpu_bytes, padded * 2 * 2);
	cr_assert_eq(report.accum_cpu_bytes, padded * 4);
	cr_assert_eq(report.state_nvme_bytes, padded * 10);
	cr_assert_eq(report.param_nvme_bytes, padded * 2);
	cr_assert_eq(report.reserved_nvme_bytes, 2 * padded * 12);
	cr_assert_eq(report.committed_step, 1);
	cr_assert_eq(report.rank_count, 2);
	cr_assert_eq(report.ranks[1].pid, getpid());
	cr_assert_str_eq(report.ranks[1].doing, "step");
	cr_assert_eq(report.write_bytes, padded * 12 + padded * 2);
	end(2);
}

static void quiesced(void *arg)
{
	((struct node *)arg)->is_quiesced = true;
}

Test(zero_step, quiescing_discards_what_waits_for_ranks_and_refuses_the_rest)
{
	struct actor late = { 0 };

	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	model_gradients(actors, 2, 1,
	                &(struct zi_step_options){ .unscale = 1, .micro_batches = 1 });
	actor_start(&actors[0], 0, zero_step, NULL);
	zero_quiesce(node.zero, quiesced, &node);
	cr_assert_eq(actor_wait(&actors[0], 0), -ESTALE);
	cr_assert(actors[1].is_broken);
	refused(&actors[1], -ESTALE, "stopping", actor_call(&actors[1], zero_barrier, NULL));
	refused(&late, -ESHUTDOWN, "stopping",
	        actor_attach(&node, &late, &(struct attach_options){ .job = "x", .world = 1 }));
	node_settle(&node);
	cr_assert(node.is_quiesced);
	cr_assert_eq(node_job(&node, "train")->committed_step, 0);
	end(2);
}

Test(zero_step, quiescing_lets_a_step_that_updates_commit)
{
	struct zi_step_options options = model_options();

	begin(1, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	model_gradients(actors, 1, 1, &options);
	actor_start(&actors[0], 0, zero_step, NULL);
	zero_quiesce(node.zero, quiesced, &node);
	cr_assert_not(node.is_quiesced);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	node_settle(&node);
	cr_assert(node.is_quiesced);
	refused(&actors[0], -ESTALE, "stopping", step_begin(&actors[0], options));
	cr_assert_eq(node_job(&node, "train")->committed_step, 1);
	end(1);
}
