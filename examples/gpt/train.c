/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training loop. A step:
 *
 *     forward of micro-batch 0      begins while the former step is still being written: each unit
 *                                   is there as soon as its own update is
 *     wait for the former step      its statistics are printed
 *     step_begin, backward, further micro-batches, step
 *
 * Lanes (ranks of this process) are computed one after the other, micro-batch by micro-batch.
 */
#include "examples/gpt/train.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/gpt/activations.h"
#include "examples/gpt/arena.h"
#include "examples/gpt/args_scale.h"
#include "examples/gpt/begin.h"
#include "examples/gpt/clock.h"
#include "examples/gpt/console.h"
#include "examples/gpt/layers.h"
#include "examples/gpt/once.h"
#include "examples/gpt/report.h"
#include "examples/gpt/share.h"
#include "examples/gpt/step_options.h"

struct trainer {
	const struct gpt_run *run;
	const struct gpt_args *args;
	struct gpt_backend *backend;
	struct gpt_problem *problem;
	struct gpt_units units;
	struct gpt_activations acts;
	struct gpt_report report;
	uint8_t *inputs; /* (B, T) */
	uint8_t *targets;
	struct gpt_blob blob;      /* as of the newest step whose end was started */
	struct gpt_record current; /* the step that computes */
	struct gpt_record ending;  /* the one that is being written; step 0: none */
	struct zinf_step_group groups[GPT_GROUPS_MAX]; /* of the step that computes */
	uint64_t mark_ns;                              /* when the last commit was seen */
	uint64_t lap_ns;        /* up to then the loop's time belongs to a step */
	uint64_t skipped_count; /* steps of this run that updated nothing; for older daemons */
};

/* ---- a step ---- */

static void draw(struct trainer *trainer, const struct gpt_batch_name *name)
{
	const struct gpt_config *config = &trainer->run->model->config;
	uint64_t state;

	if (trainer->args->is_once && !name->is_eval) {
		gpt_once_batch(trainer->args, trainer->run->corpus, name, trainer->inputs,
		               trainer->targets);
		return;
	}
	state = gpt_corpus_batch(trainer->run->corpus, name, config->batch_count,
	                         config->sequence_count, trainer->inputs, trainer->targets);
	if (!name->is_eval)
		trainer->blob.rng_state = state;
}

/* The loop's time since the last call. */
static uint64_t take_lap(struct trainer *trainer)
{
	uint64_t now_ns = gpt_now_ns(), lap_ns = now_ns - trainer->lap_ns;

	trainer->lap_ns = now_ns;
	return lap_ns;
}

/* For whoever ends this run. */
static void mark_committed(const struct trainer *trainer, uint64_t step)
{
	if (trainer->backend->rank_first == 0)
		trainer->run->board->committed_count = step + 1;
}

/* The step before is committed: show it. */
static int finish_ending(struct trainer *trainer)
{
	struct gpt_record *record = &trainer->ending;
	uint64_t now_ns;
	int r;

	if (!record->step)
		return 0;
	r = trainer->backend->ops->wait(trainer->backend, &record->stats);
	if (r)
		return gpt_backend_problem(trainer->backend, r, trainer->problem);
	assert(record->stats.step == record->step);
	now_ns = gpt_now_ns();
	trainer->skipped_count += record->stats.is_skipped;
	record->wall_ns = now_ns - trainer->mark_ns;
	trainer->mark_ns = now_ns;
	mark_committed(trainer, record->step);
	if (trainer->current.step == record->step)
		record->loop_ns += take_lap(trainer); /* No later step computes meanwhile. */
	gpt_report_step(&trainer->report, record);
	if (record->step == trainer->args->exit_after_step && trainer->args->restart_index == 0 &&
	    trainer->args->exit_rank == (uint32_t)trainer->backend->rank_first) {
		(void)fflush(NULL); /* The lines so far are part of the test. */
		(void)raise(SIGKILL);
	}
	record->step = 0;
	return 0;
}

/* Of the steps before the present one, those that changed the parameters. They are over. */
static uint64_t update_count(const struct trainer *trainer)
{
	int64_t count = trainer->backend->ops->update_count(trainer->backend);

	/* gpt_begin() sees to it that the steps of former runs have not been skipped then. */
	return count >= 0 ? (uint64_t)count : trainer->current.step - 1 - trainer->skipped_count;
}

/* Of this step's backward: the step before is over. */
static int take_scale(struct trainer *trainer)
{
	double scale = gpt_fixed_scale(trainer->args);
	int r = 0;

	if (trainer->args->scaler.kind != ZINF_SCALER_NONE)
		r = trainer->backend->ops->loss_scale(trainer->backend, &scale);
	if (r)
		return gpt_backend_problem(trainer->backend, r, trainer->problem);
	trainer->units.loss_scale = scale;
	trainer->current.loss_scale = scale;
	return 0;
}

/* One micro-batch of one lane. The step begins between the first forward and the first backward. */
static int micro_batch(struct trainer *trainer, uint32_t micro_index, uint32_t lane,
                       double *loss_sum)
{
	const struct gpt_batch_name name = {
		.seed = trainer->args->seed,
		.step = trainer->current.step,
		.micro_index = micro_index,
		.rank = (uint32_t)trainer->backend->rank_first + lane,
	};
	const struct gpt_backend_ops *ops = trainer->backend->ops;
	uint64_t begin_ns = gpt_now_ns(), between_ns;
	struct zinf_step_options options;
	bool has_no_sync;
	double loss = 0;
	int r;

	trainer->units.place = (struct gpt_units_place){
		.lane = lane,
		.micro_index = micro_index,
		.micro_count = trainer->args->grad_accum_count,
	};
	draw(trainer, &name);
	r = gpt_forward(&trainer->units, &trainer->acts, trainer->inputs, trainer->targets, &loss);
	if (r)
		return gpt_backend_problem(trainer->backend, r, trainer->problem);
	*loss_sum += loss;
	trainer->current.compute_ns += gpt_now_ns() - begin_ns;
	if (micro_index == 0 && lane == 0) {
		r = finish_ending(trainer);
		if (!r)
			r = take_scale(trainer);
		if (r)
			return r;
		gpt_step_options(trainer->args, trainer->current.step, update_count(trainer),
		                 trainer->groups, &options);
		trainer->current.lr = options.lr;
		r = ops->step_begin(trainer->backend, &options);
		if (r)
			return gpt_backend_problem(trainer->backend, r, trainer->problem);
	}
	between_ns = gpt_now_ns();
	has_no_sync =
		trainer->units.has_no_sync && micro_index + 1 < trainer->args->grad_accum_count;
	r = has_no_sync ? ops->no_sync(trainer->backend, true) : 0;
	if (!r)
		r = gpt_backward(&trainer->units, &trainer->acts, trainer->inputs,
		                 trainer->targets);
	if (!r && has_no_sync)
		r = ops->no_sync(trainer->backend, false);
	if (r)
		return gpt_backend_problem(trainer->backend, r, trainer->problem);
	trainer->current.compute_ns += gpt_now_ns() - between_ns;
	return 0;
}

/* On a page that all ranks see, or all of them here. */
static bool is_sharing(const struct trainer *trainer)
{
	return trainer->run->is_board_shared ||
	       trainer->backend->lane_count == trainer->backend->world_count;
}

/* Who has joined comes to no collective: then each knows its own loss alone. */
static void count_losses(struct trainer *trainer)
{
	uint32_t live_count = trainer->current.live_count;
	bool is_whole = live_count == trainer->backend->world_count;

	trainer->current.loss_count = is_sharing(trainer) || is_whole ? live_count : 1;
}

static int share_losses(struct trainer *trainer, volatile double *losses)
{
	int r;

	if (!is_sharing(trainer) && trainer->current.live_count < trainer->backend->world_count)
		return 0;
	r = gpt_share(trainer->run, trainer->backend, losses);
	return r ? gpt_backend_problem(trainer->backend, r, trainer->problem) : 0;
}

/* Those of this process that have data in the step. */
static uint32_t live_lanes(const struct trainer *trainer)
{
	uint32_t rank_first = (uint32_t)trainer->backend->rank_first;
	uint32_t lane_count = trainer->backend->lane_count;

	assert(trainer->current.live_count > rank_first);
	return trainer->current.live_count - rank_first < lane_count
	               ? trainer->current.live_count - rank_first
	               : lane_count;
}

static int train_step(struct trainer *trainer, uint64_t step)
{
	const struct gpt_config *config = &trainer->run->model->config;
	uint32_t accum = trainer->args->grad_accum_count;
	uint64_t sequences = (uint64_t)config->batch_count * accum;
	volatile double *losses = trainer->run->board->losses[step % GPT_BOARD_ROWS];
	double sums[ZINF_WORLD_MAX] = { 0 };
	uint32_t lane_count;
	int r;

	trainer->current = (struct gpt_record){
		.step = step,
		.live_count = gpt_once_live(trainer->args, trainer->run->corpus, step),
	};
	count_losses(trainer);
	trainer->current.token_count =
		sequences * config->sequence_count * trainer->current.live_count;
	lane_count = live_lanes(trainer);
	for (uint32_t lane = trainer->backend->lane_count; lane > lane_count; lane--) {
		r = trainer->backend->ops->join(trainer->backend, lane - 1);
		if (r)
			return gpt_backend_problem(trainer->backend, r, trainer->problem);
	}
	trainer->units.wait_ns = 0;
	trainer->acts.blocks.wait_ns = 0;
	for (uint32_t micro = 0; micro < accum; micro++) {
		for (uint32_t lane = 0; lane < lane_count; lane++) {
			r = micro_batch(trainer, micro, lane, &sums[lane]);
			if (r)
				return r;
		}
	}
	for (uint32_t lane = 0; lane < lane_count; lane++)
		losses[(uint32_t)trainer->backend->rank_first + lane] = sums[lane] / accum;
	r = share_losses(trainer, losses);
	if (r)
		return r;
	trainer->current.wait_ns = trainer->units.wait_ns + trainer->acts.blocks.wait_ns;
	trainer->current.compute_ns -= trainer->current.wait_ns;
	trainer->blob.step = step;
	trainer->blob.token_count += trainer->current.token_count;
	trainer->blob.sequence_count += sequences;
	r = trainer->backend->ops->step(trainer->backend, &trainer->blob, sizeof(trainer->blob));
	if (r)
		return gpt_backend_problem(trainer->backend, r, trainer->problem);
	trainer->current.loop_ns = take_lap(trainer);
	trainer->ending = trainer->current;
	return 0;
}

/* Each rank takes its own part of the text that is not trained on. */
static int evaluate(struct trainer *trainer, uint64_t step)
{
	volatile double *losses = trainer->run->board->eval_losses;
	uint64_t begin_ns;
	int r;

	r = finish_ending(trainer); /* So that its time is not mixed with this one's. */
	if (r)
		return r;
	begin_ns = gpt_now_ns();
	for (uint32_t lane = 0; lane < trainer->backend->lane_count; lane++) {
		uint32_t rank = (uint32_t)trainer->backend->rank_first + lane;
		double sum = 0;

		for (uint32_t batch = 0; batch < trainer->args->eval_batch_count; batch++) {
			const struct gpt_batch_name name = { .seed = trainer->args->seed,
				                             .micro_index = batch,
				                             .rank = rank,
				                             .is_eval = true };

			draw(trainer, &name);
			double loss = 0;

			r = gpt_logits(&trainer->units, &trainer->acts, trainer->inputs, false);
			if (!r)
				r = gpt_loss(&trainer->units, &trainer->acts,
				             trainer->acts.row_count, trainer->targets, &loss);
			if (r)
				return gpt_backend_problem(trainer->backend, r, trainer->problem);
			sum += loss;
		}
		losses[rank] = sum / trainer->args->eval_batch_count;
	}
	r = share_losses(trainer, losses);
	if (r)
		return r;
	r = trainer->backend->ops->barrier(trainer->backend);
	if (r)
		return gpt_backend_problem(trainer->backend, r, trainer->problem);
	gpt_report_eval(&trainer->report, step);
	trainer->mark_ns += gpt_now_ns() - begin_ns; /* No part of any step's time. */
	(void)take_lap(trainer);
	return 0;
}

/* Ranks whose text has ended wait for the others', in their steps. */
static int end_together(struct trainer *trainer)
{
	const struct gpt_args *args = trainer->args;
	int r;

	if (!args->is_once || trainer->backend->lane_count > 1 ||
	    gpt_once_live(args, trainer->run->corpus, args->step_count) == args->world_count)
		return 0;
	r = finish_ending(trainer);
	if (r)
		return r;
	r = trainer->backend->ops->join(trainer->backend, 0);
	return r ? gpt_backend_problem(trainer->backend, r, trainer->problem) : 0;
}

/* ---- the whole ---- */

static int trainer_init(struct trainer *trainer)
{
	const struct gpt_run *run = trainer->run;
	const struct gpt_config *config = &run->model->config;
	size_t token_count = (size_t)config->batch_count * config->sequence_count;
	uint32_t rank_first = (uint32_t)trainer->backend->rank_first;
	int r;

	trainer->report = (struct gpt_report){
		.args = run->args,
		.model = run->model,
		.board = run->board,
		.rank_first = rank_first,
		.lane_count = trainer->backend->lane_count,
		.world_count = trainer->backend->world_count,
		.watch_fd = -1,
	};
	trainer->inputs = calloc(token_count, 1);
	trainer->targets = calloc(token_count, 1);
	if (!trainer->inputs || !trainer->targets ||
	    gpt_units_init(&trainer->units, run->args, run->model, trainer->backend))
		return gpt_problem_set(trainer->problem, -ENOMEM,
		                       "No memory%s for %u x %u tokens and the largest unit in f32",
		                       gpt_arena_place(trainer->backend->device),
		                       config->batch_count, config->sequence_count);
	r = gpt_activations_init(&trainer->acts, run->args, run->model, trainer->backend,
	                         trainer->problem);
	if (r)
		return r;
	/* Opening a pipe waits for its reader, and a test that broke the first life has gone. */
	if (!run->args->watch || rank_first != 0 || run->args->restart_index > 0)
		return 0;
	trainer->report.watch_fd = open(run->args->watch, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (trainer->report.watch_fd < 0)
		return gpt_problem_set(trainer->problem, -errno, "--watch %s: %s", run->args->watch,
		                       strerror(errno));
	return 0;
}

static void trainer_deinit(struct trainer *trainer)
{
	if (trainer->report.watch_fd >= 0)
		(void)close(trainer->report.watch_fd);
	gpt_activations_deinit(&trainer->acts);
	gpt_units_deinit(&trainer->units);
	free(trainer->inputs);
	free(trainer->targets);
}

static bool has_text(const struct trainer *trainer, uint64_t step)
{
	return (uint32_t)trainer->backend->rank_first <
	       gpt_once_live(trainer->args, trainer->run->corpus, step);
}

static int train(struct trainer *trainer)
{
	const struct gpt_args *args = trainer->args;
	uint64_t step = 0;
	int r;

	gpt_report_start(&trainer->report, trainer->run->model, trainer->run->corpus->byte_count,
	                 trainer->run->corpus->file_count);
	r = gpt_begin(trainer->run, trainer->backend, &trainer->report, &trainer->blob, &step,
	              trainer->problem);
	if (r)
		return r;
	mark_committed(trainer, step);
	trainer->mark_ns = trainer->lap_ns = gpt_now_ns();
	if (step >= args->step_count)
		gpt_report_nothing_to_do(&trainer->report, step);
	while (step < args->step_count && has_text(trainer, step + 1)) {
		r = train_step(trainer, ++step);
		if (r)
			return r;
		if (args->eval_every && step % args->eval_every == 0) {
			r = evaluate(trainer, step);
			if (r)
				return r;
		}
	}
	r = end_together(trainer);
	if (!r)
		r = finish_ending(trainer);
	if (r)
		return r;
	if (args->dump)
		r = gpt_dump(trainer->run->model, trainer->backend, step, gpt_param_dtype(args),
		             args->dump, trainer->problem);
	if (!r && args->dump_state)
		r = gpt_dump_state(trainer->run->model, trainer->backend, args->dump_state,
		                   trainer->problem);
	if (r)
		return r;
	gpt_report_memory(&trainer->report, trainer->acts.blocks.arena_bytes,
	                  trainer->acts.blocks.tensor_bytes);
	/* Nobody leaves while another one still reads. */
	r = trainer->backend->ops->barrier(trainer->backend);
	return r ? gpt_backend_problem(trainer->backend, r, trainer->problem) : 0;
}

/*
 * Trains from where the job stands up to --steps. Return: 0 or a negative errno with the reason;
 * -ESTALE and -EPIPE: this group of ranks is over, the job stands at its last committed step.
 */
int gpt_train(const struct gpt_run *run, struct gpt_backend *backend, struct gpt_problem *problem)
{
	struct trainer trainer = {
		.run = run, .args = run->args, .backend = backend, .problem = problem
	};
	int r;

	r = trainer_init(&trainer);
	if (!r)
		r = train(&trainer);
	if (!r)
		r = gpt_console_end(problem);
	trainer_deinit(&trainer);
	return r;
}
