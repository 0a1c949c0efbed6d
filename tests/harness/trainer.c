/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up trainer for tests (trainer.h): one rank. */
#include "tests/harness/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/harness/reference.h"

/* What lies in the resume blob. */
struct trainer_blob {
	uint64_t step;
	uint64_t rank;
	uint64_t random;
};

/* ---- one rank ---- */

/* Notes the first failure; @r as it is. */
static int note(struct trainer *trainer, int r, const char *call)
{
	struct trainer_report *report = trainer->report;

	if (!r || report->result)
		return r;
	report->failed_ns = zi_clock_now_ns();
	report->result = r;
	(void)snprintf(report->call, sizeof(report->call), "%.31s", call); /* Its name. */
	(void)snprintf(report->text, sizeof(report->text), "%s",
	               trainer->zinf ? zinf_error_text(trainer->zinf) : zinf_attach_error());
	return r;
}

/* Calls, notes what fails, and returns it from the calling function. */
#define TRY(trainer, call)                                       \
	do {                                                     \
		int try_result = note((trainer), (call), #call); \
		if (try_result)                                  \
			return try_result;                       \
	} while (0)

static void at(const struct trainer *trainer, enum trainer_point point)
{
	if (trainer->settings->hook)
		trainer->settings->hook(trainer, point, trainer->settings->hook_arg);
}

static int lay_out(struct trainer *trainer)
{
	const struct trainer_model *model = trainer->settings->model;
	uint32_t param = 0, index;
	char name[32];

	for (uint32_t unit = 0; unit < model->unit_count; unit++) {
		(void)snprintf(name, sizeof(name), "layer.%u", unit);
		TRY(trainer, zinf_unit_add(trainer->zinf, name, &index));
		for (uint32_t end = param + model->unit_params[unit]; param < end; param++) {
			uint64_t rows = model->elements[param] % 3 ? 1 : 3;
			uint64_t shape[2] = { rows, model->elements[param] / rows };

			(void)snprintf(name, sizeof(name), "layer.%u.weight.%u", unit, param);
			TRY(trainer,
			    zinf_param_add(trainer->zinf, name, model->elements[param] == 1 ? 0 : 2,
			                   shape, &index));
		}
	}
	return 0;
}

/* First index of a unit's parameters. */
static uint32_t first_param(const struct trainer_model *model, uint32_t unit)
{
	uint32_t param = 0;

	for (uint32_t before = 0; before < unit; before++)
		param += model->unit_params[before];
	return param;
}

static void write_values(struct trainer *trainer, uint32_t unit)
{
	const struct trainer_settings *settings = trainer->settings;
	uint32_t param = first_param(settings->model, unit);

	for (uint32_t end = param + settings->model->unit_params[unit]; param < end; param++) {
		/* Writable until zinf_param_write_end(). */
		void *data = (void *)(uintptr_t)zinf_param_data(trainer->zinf, param);

		for (uint64_t i = 0; i < settings->model->elements[param]; i++) {
			float value = trainer_first_value(param, i);

			if (settings->options.param_dtype != ZINF_F32)
				((uint16_t *)data)[i] =
					reference_to_half(value, settings->options.param_dtype);
			else
				((float *)data)[i] = value;
		}
	}
}

static int commit_first(struct trainer *trainer)
{
	struct trainer_blob blob = { 0, trainer->rank, trainer->random };
	uint32_t world = trainer->settings->options.world_size;

	for (uint32_t unit = 0; unit < trainer->settings->model->unit_count; unit++) {
		uint32_t root = unit % world;

		if (root == trainer->rank) {
			TRY(trainer, zinf_param_write_begin(trainer->zinf, unit));
			at(trainer, TRAINER_WRITE_BEGUN);
			write_values(trainer, unit);
		}
		TRY(trainer, zinf_param_write_end(trainer->zinf, unit, (int32_t)root));
	}
	at(trainer, TRAINER_WRITTEN);
	TRY(trainer, zinf_commit(trainer->zinf, &blob, sizeof(blob)));
	at(trainer, TRAINER_COMMITTED);
	return 0;
}

/* The start before this one had no such rank. */
static bool is_newcomer(const struct trainer *trainer)
{
	const struct trainer_former *former = trainer->settings->formers;
	uint32_t count = 0;

	while (count < TRAINER_FORMERS && former[count].step)
		count++;
	return count && trainer->rank >= former[count - 1].world;
}

/* A resumed job: the blob says where this rank stood. */
static int resume(struct trainer *trainer)
{
	struct trainer_blob blob = { 0 };
	size_t bytes = 0;

	TRY(trainer, zinf_blob_get(trainer->zinf, &blob, sizeof(blob), &bytes));
	if (!bytes && is_newcomer(trainer)) {
		for (int64_t step = 0; step < trainer->step; step++)
			trainer->random = trainer_random_next(trainer->random, trainer->rank);
		return 0;
	}
	if (bytes != sizeof(blob) || blob.rank != trainer->rank ||
	    blob.step != (uint64_t)trainer->step)
		return note(trainer, -EBADMSG, "the blob is of another step or rank");
	trainer->random = blob.random;
	return 0;
}

int trainer_open(struct trainer *trainer, const struct trainer_settings *settings, uint32_t rank,
                 struct trainer_report *report)
{
	struct zinf_options options = settings->options;
	uint32_t start_count = trainer->start_count;
	char incarnation[ZINF_NAME_BYTES];

	*trainer = (struct trainer){ .settings = settings,
		                     .report = report,
		                     .rank = rank,
		                     .random = trainer_random_first(rank),
		                     .start_count = start_count };
	options.rank = (int32_t)rank;
	if (options.incarnation && start_count) {
		(void)snprintf(incarnation, sizeof(incarnation), "%s.%u", options.incarnation,
		               start_count);
		options.incarnation = incarnation;
	}
	at(trainer, TRAINER_BORN);
	TRY(trainer, zinf_attach(&options, &trainer->zinf));
	at(trainer, TRAINER_ATTACHED);
	if (settings->load)
		TRY(trainer, zinf_load(trainer->zinf, settings->load));
	if (lay_out(trainer))
		return report->result;
	at(trainer, TRAINER_LAID_OUT);
	TRY(trainer, zinf_materialize(trainer->zinf));
	trainer->step = zinf_committed_step(trainer->zinf);
	if (report->attach_count < 8)
		report->first_steps[report->attach_count] = trainer->step;
	report->attach_count++;
	at(trainer, TRAINER_MATERIALIZED);
	if (trainer->step >= 0) {
		report->step = trainer->step;
		return resume(trainer);
	}
	trainer->step = 0;
	return commit_first(trainer);
}

static float load(const struct trainer *trainer, const void *data, uint64_t index)
{
	enum zinf_dtype dtype = trainer->settings->options.param_dtype;

	if (dtype != ZINF_F32)
		return reference_from_half(((const uint16_t *)data)[index], dtype);
	return ((const float *)data)[index];
}

/* In the micro-batches before @end. */
static bool uses_before(const struct trainer *trainer, uint32_t param, uint32_t end)
{
	for (uint32_t micro = 0; micro < end; micro++)
		if (trainer_uses(trainer->settings, trainer->random, micro, param))
			return true;
	return false;
}

/* This rank's gradient of one parameter; with the local schedule, micro-batches add up in the
 * buffer. */
static void backward_param(struct trainer *trainer, uint32_t param, uint32_t micro)
{
	const struct trainer_settings *settings = trainer->settings;
	const enum zinf_dtype dtype = settings->options.grad_dtype;
	const void *data = zinf_param_data(trainer->zinf, param);
	void *gradient = zinf_grad_data(trainer->zinf, param);
	uint32_t seed = trainer_seed(trainer->random, micro, param);
	bool is_added = settings->options.grad_reduction == ZINF_REDUCE_PER_STEP &&
	                uses_before(trainer, param, micro);
	bool is_infinite = (uint64_t)trainer->step == settings->infinite_step && !param &&
	                   settings->infinite_step &&
	                   trainer->rank + 1 == (uint32_t)settings->options.world_size;

	for (uint64_t i = 0; i < settings->model->elements[param]; i++) {
		float value = is_infinite && !i ? INFINITY
		                                : trainer_gradient(seed, i, load(trainer, data, i));

		if (dtype != ZINF_F32) {
			uint16_t *place = (uint16_t *)gradient + i;
			float rounded = reference_round(value, dtype);

			if (is_added)
				rounded += reference_from_half(*place, dtype);
			*place = reference_to_half(rounded, dtype);
		} else {
			float *place = (float *)gradient + i;

			*place = is_added ? *place + value : value;
		}
	}
}

static int forward(struct trainer *trainer)
{
	const struct trainer_model *model = trainer->settings->model;

	for (uint32_t unit = 0; unit < model->unit_count; unit++) {
		if (unit + 1 < model->unit_count)
			TRY(trainer, zinf_prefetch(trainer->zinf, unit + 1));
		TRY(trainer, zinf_unshard(trainer->zinf, unit));
		TRY(trainer, zinf_reshard(trainer->zinf, unit));
	}
	return 0;
}

/* Of any of the unit's parameters, in this step: else it is not so much as acquired. */
static bool uses_unit(const struct trainer *trainer, uint32_t unit)
{
	const struct trainer_settings *settings = trainer->settings;
	uint32_t param = first_param(settings->model, unit);

	for (uint32_t end = param + settings->model->unit_params[unit]; param < end; param++)
		if (uses_before(trainer, param, settings->accumulate))
			return true;
	return false;
}

static int backward_unit(struct trainer *trainer, uint32_t unit, uint32_t micro)
{
	const struct trainer_settings *settings = trainer->settings;
	uint32_t param = first_param(settings->model, unit);

	for (uint32_t end = param + settings->model->unit_params[unit]; param < end; param++) {
		if (!trainer_uses(settings, trainer->random, micro, param))
			continue;
		backward_param(trainer, param, micro);
		if (settings->is_sparse)
			TRY(trainer, zinf_grad_done(trainer->zinf, param));
	}
	return 0;
}

static int backward(struct trainer *trainer, uint32_t micro)
{
	const struct trainer_settings *settings = trainer->settings;
	bool is_last = micro + 1 == settings->accumulate;
	/* Who says what is not handed over yet may call it after each. */
	bool is_handed = is_last ||
	                 settings->options.grad_reduction == ZINF_REDUCE_PER_MICRO_BATCH ||
	                 settings->no_sync_mask >> micro & 1;

	for (uint32_t unit = settings->model->unit_count; unit-- > 0;) {
		if (!uses_unit(trainer, unit))
			continue;
		TRY(trainer, zinf_unshard(trainer->zinf, unit));
		if (is_last && unit + 1 == settings->model->unit_count)
			at(trainer, TRAINER_UNSHARDED);
		if (!micro || settings->options.grad_reduction == ZINF_REDUCE_PER_MICRO_BATCH ||
		    settings->no_sync_mask)
			TRY(trainer, zinf_grad_acquire(trainer->zinf, unit));
		if (is_last && unit + 1 == settings->model->unit_count)
			at(trainer, TRAINER_ACQUIRED);
		if (backward_unit(trainer, unit, micro))
			return trainer->report->result;
		if (is_handed)
			TRY(trainer, zinf_reduce(trainer->zinf, unit));
		TRY(trainer, zinf_reshard(trainer->zinf, unit));
		if (is_last && unit + 1 == settings->model->unit_count)
			at(trainer, TRAINER_REDUCED);
	}
	return 0;
}

static int micro_batch(struct trainer *trainer, uint32_t micro)
{
	bool has_no_sync = trainer->settings->no_sync_mask >> micro & 1;

	if (!trainer->settings->is_eager && forward(trainer))
		return trainer->report->result;
	if (has_no_sync)
		TRY(trainer, zinf_no_sync_begin(trainer->zinf));
	if (backward(trainer, micro))
		return trainer->report->result;
	if (has_no_sync)
		TRY(trainer, zinf_no_sync_end(trainer->zinf));
	return 0;
}

static int await(struct trainer *trainer)
{
	struct zinf_step_stats stats = { .bytes = sizeof(stats) };
	zinf_ticket ticket = trainer->ticket;

	if (!ticket)
		return 0;
	trainer->ticket = 0;
	TRY(trainer, zinf_wait(trainer->zinf, ticket, &stats));
	if (trainer->settings->is_deferred &&
	    memcmp(&stats.norm, &trainer->norm, sizeof(stats.norm)) != 0)
		return note(trainer, -EBADMSG, "the norm was another one before the step ended");
	if (stats.step <= TRAINER_STEPS_MAX)
		trainer->report->stats[stats.step] = stats;
	trainer->report->step = (int64_t)stats.step;
	at(trainer, TRAINER_WAITED);
	return 0;
}

/* What the step begins with. */
static struct zinf_step_options begun_options(const struct trainer *trainer)
{
	const struct trainer_settings *settings = trainer->settings;
	struct zinf_step_options options = settings->step;

	options.is_deferred = settings->is_deferred;
	options.micro_batches = settings->options.grad_reduction == ZINF_REDUCE_PER_MICRO_BATCH
	                                ? settings->accumulate
	                                : 1;
	if (!settings->is_deferred)
		return options;
	/* Nothing of these may count. */
	options.lr = 77;
	options.beta1 = options.eps = -1;
	options.max_norm = NAN;
	options.want_norm = true;
	options.nesterov = !settings->step.nesterov;
	return options;
}

/* Gradients of a step that is not to be, of @count units. *@ret_unit: one that is still unsharded.
 * -ECANCELED: another rank discards the step already. */
static int waste_units(struct trainer *trainer, uint32_t count, uint32_t *ret_unit)
{
	uint32_t unit_count = trainer->settings->model->unit_count;

	for (uint32_t unit = unit_count; unit-- > unit_count - count;) {
		int r = zinf_unshard(trainer->zinf, unit);

		if (r)
			return r;
		*ret_unit = unit;
		r = zinf_grad_acquire(trainer->zinf, unit);
		if (!r)
			r = backward_unit(trainer, unit, 0);
		/* The last one stays held. */
		if (!r && unit > unit_count - count)
			r = zinf_reduce(trainer->zinf, unit);
		if (r)
			return r;
		if (unit == unit_count - count)
			return 0;
		TRY(trainer, zinf_reshard(trainer->zinf, unit));
		*ret_unit = UINT32_MAX;
	}
	return 0;
}

/* Each rank stops at another place. */
static int waste_step(struct trainer *trainer, uint32_t nth)
{
	const struct trainer_settings *settings = trainer->settings;
	struct zinf_step_options options = begun_options(trainer);
	uint32_t turn = trainer->rank * 3 + (uint32_t)trainer->step * 5 + nth;
	uint32_t unit = UINT32_MAX;
	double norm;
	int r;

	TRY(trainer, zinf_step_begin(trainer->zinf, &options));
	r = waste_units(trainer, turn % (settings->model->unit_count + 1), &unit);
	if (!r && turn % 2 && zinf_grad_norm(trainer->zinf, &norm) == 0)
		r = note(trainer, -EBADMSG, "a norm without all gradients");
	if (r && r != -ECANCELED)
		return note(trainer, r, "gradients of a step that is discarded");
	at(trainer, TRAINER_WASTED);
	TRY(trainer, zinf_step_discard(trainer->zinf));
	at(trainer, TRAINER_DISCARDED);
	if (unit != UINT32_MAX)
		TRY(trainer, zinf_reshard(trainer->zinf, unit));
	return 0;
}

/* The norm that was told before the step ended is the step's. */
static int end_deferred(struct trainer *trainer, const struct trainer_blob *blob)
{
	struct zinf_step_options options = trainer->settings->step;

	options.micro_batches = begun_options(trainer).micro_batches;
	TRY(trainer, zinf_grad_norm(trainer->zinf, &trainer->norm));
	at(trainer, TRAINER_NORMED);
	TRY(trainer,
	    zinf_step_with(trainer->zinf, &options, blob, sizeof(*blob), &trainer->ticket));
	return 0;
}

int trainer_step(struct trainer *trainer)
{
	const struct trainer_settings *settings = trainer->settings;
	struct zinf_step_options options = begun_options(trainer);
	struct trainer_blob blob = { (uint64_t)trainer->step + 1, trainer->rank, 0 };

	if (settings->is_eager && forward(trainer))
		return trainer->report->result;
	if (await(trainer))
		return trainer->report->result;
	for (uint32_t i = 0; i < settings->discard_count; i++)
		if (waste_step(trainer, i))
			return trainer->report->result;
	TRY(trainer, zinf_step_begin(trainer->zinf, &options));
	trainer->step++;
	at(trainer, TRAINER_STEP_BEGUN);
	for (uint32_t micro = 0; micro < settings->accumulate; micro++)
		if (micro_batch(trainer, micro))
			return trainer->report->result;
	at(trainer, TRAINER_BACKWARD);
	trainer->random = trainer_random_next(trainer->random, trainer->rank);
	blob.random = trainer->random;
	if (settings->is_deferred && end_deferred(trainer, &blob))
		return trainer->report->result;
	if (!settings->is_deferred)
		TRY(trainer, zinf_step(trainer->zinf, &blob, sizeof(blob), &trainer->ticket));
	at(trainer, TRAINER_STEPPED);
	return settings->is_eager ? 0 : await(trainer);
}

int trainer_dump(struct trainer *trainer)
{
	const struct trainer_settings *settings = trainer->settings;
	uint32_t element_bytes = trainer_dtype_bytes(settings->options.param_dtype);
	unsigned char *place = trainer->report->dump;
	uint32_t param = 0;

	if (await(trainer))
		return trainer->report->result;
	for (uint32_t unit = 0; unit < settings->model->unit_count; unit++) {
		TRY(trainer, zinf_unshard(trainer->zinf, unit));
		for (uint32_t end = param + settings->model->unit_params[unit]; param < end;
		     param++) {
			uint64_t bytes = settings->model->elements[param] * element_bytes;

			memcpy(place, zinf_param_data(trainer->zinf, param), bytes);
			place += bytes;
		}
		TRY(trainer, zinf_reshard(trainer->zinf, unit));
	}
	trainer->report->is_dumped = true;
	return 0;
}

void trainer_close(struct trainer *trainer)
{
	zinf_detach(trainer->zinf);
	trainer->zinf = NULL;
}

static int run_once(struct trainer *trainer, const struct trainer_settings *settings, uint32_t rank,
                    struct trainer_report *report)
{
	int r;

	r = trainer_open(trainer, settings, rank, report);
	while (!r && trainer->step < (int64_t)settings->steps)
		r = trainer_step(trainer);
	/* Nobody leaves before everyone has looked: a step that some missed would hide. */
	if (!r)
		r = trainer_dump(trainer);
	if (!r)
		r = note(trainer, zinf_barrier(trainer->zinf), "zinf_barrier");
	trainer_close(trainer);
	return r;
}

int trainer_run(const struct trainer_settings *settings, uint32_t rank,
                struct trainer_report *report)
{
	struct trainer trainer = { 0 };

	report->step = -1;
	for (;;) {
		int r = run_once(&trainer, settings, rank, report);

		if (r != -ESTALE || trainer.start_count >= settings->restart_max)
			return r;
		trainer.start_count++;
		report->restart_result = report->result;
		memcpy(report->restart_text, report->text, sizeof(report->text));
		report->result = 0;
	}
}
