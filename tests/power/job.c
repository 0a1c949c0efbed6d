/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the test (job.h). */
#include "tests/power/job.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/param/fetch.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/step.h"
#include "kernels/cast.h"
#include "kernels/hash.h"
#include "tests/power/votes.h"

bool job_has_votes;

#define TIMEOUT_NS (60 * ZI_NS_PER_S)

typedef void (*call_fn)(struct zero_rank *rank, struct zero_op *op);

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static void fill(void *target, uint64_t what, uint64_t count, uint32_t dtype)
{
	static float values[1u << 15];

	if (count > ZI_COUNT_OF(values))
		abort();
	for (uint64_t i = 0; i < count; i++)
		values[i] = (float)(int32_t)mix(what * 0x9e3779b97f4a7c15ull + i) * 0x1p-31f;
	kern_narrow(target, values, count, (enum zi_dtype)dtype);
}

static void *grad_in(const struct job *job, uint32_t rank, uint32_t unit)
{
	const struct zero_unit *entry = &job->ranks[rank]->job->units[unit];

	return (char *)job->memory[rank].grad->region.base + entry->grad_offset;
}

/* ---- calls ---- */

static void call_done(struct zero_op *op)
{
	struct job_call *call = container_of(op, struct job_call, op);
	struct job *job = call->job;

	call->is_done = true;
	if (call->is_commit && !op->result && job->acknowledged)
		job->acknowledged(job->arg);
	zi_loop_stop(job->node->loop);
}

static void call_begin(struct job *job, uint32_t rank, call_fn function,
                       const struct zero_op *filled, bool is_commit)
{
	struct job_call *call = &job->calls[rank];

	*call = (struct job_call){ .op = *filled, .job = job, .is_commit = is_commit };
	call->op.done = call_done;
	function(job->ranks[rank], &call->op);
}

static void call_start(struct job *job, uint32_t rank, call_fn function,
                       const struct zero_op *filled)
{
	call_begin(job, rank, function, filled, false);
}

/* alarm() ends a test that waits for ever. */
static int call_wait(struct job *job, uint32_t rank)
{
	struct job_call *call = &job->calls[rank];

	while (!call->is_done)
		if (zi_loop_run(job->node->loop))
			abort();
	if (call->op.result && !job->text.chars[0])
		job->text = call->op.text;
	return call->op.result;
}

static int call_one(struct job *job, uint32_t rank, call_fn function, const struct zero_op *filled)
{
	call_start(job, rank, function, filled);
	return call_wait(job, rank);
}

static int call_all(struct job *job, call_fn function, const struct zero_op *filled)
{
	int first = 0;

	for (uint32_t i = 0; i < job->kind->world; i++)
		call_start(job, i, function, filled);
	for (uint32_t i = 0; i < job->kind->world; i++) {
		int r = call_wait(job, i);

		first = first ? first : r;
	}
	return first;
}

/* ---- opening ---- */

static void broken(void *arg, int error, uint32_t culprit, const struct zi_text *text)
{
	(void)arg; /* The next call says so too. */
	(void)error;
	(void)culprit;
	(void)text;
}

static int attach(struct job *job, uint32_t rank, uint32_t durability)
{
	uint64_t number;
	struct zero_attach options = {
		.job = job->kind->name,
		.incarnation = "",
		.pid = getpid(),
		.rank = rank,
		.world_size = job->kind->world,
		.config = { .param_dtype = job->kind->dtype,
		            .grad_dtype = job->kind->dtype,
		            .optimizer = job->kind->optimizer,
		            .schedule = ZI_SCHEDULE_LOCAL,
		            .offload_optimizer = ZI_OFFLOAD_NVME,
		            .offload_param = job->kind->offload_param,
		            .param_budget_bytes =
		                    job->kind->offload_param == ZI_OFFLOAD_NVME ? 1u << 16 : 0,
		            .durability = durability },
		.timeout_ns = TIMEOUT_NS,
		.broken = broken,
	};

	return zero_attach(job->node->zero, &options, &job->text, &job->ranks[rank], &number);
}

static int add_layout(struct job *job, uint32_t rank)
{
	int r = 0;

	for (uint32_t unit = 0; unit < job->kind->unit_count && !r; unit++) {
		struct zi_layout_entry entry = { .kind = ZI_LAYOUT_UNIT };

		(void)snprintf(entry.name, sizeof(entry.name), "unit %u", unit); /* Fits. */
		r = zero_layout_add(job->ranks[rank], &entry, &job->text);
		entry.kind = ZI_LAYOUT_PARAM;
		entry.dim_count = 1;
		entry.shape[0] = job->kind->unit_elements[unit];
		if (!r)
			r = zero_layout_add(job->ranks[rank], &entry, &job->text);
	}
	return r;
}

bool job_is_step(char operation)
{
	return operation == 'S' || operation == 'E' || operation == 'N';
}

static int load_snapshot(struct job *job, uint32_t rank, const char *load)
{
	char name[ZI_NAME_BYTES];
	size_t bytes = strcspn(load, "/");

	(void)snprintf(name, sizeof(name), "%.*s", (int)bytes, load); /* Fits. */
	return zero_load(job->ranks[rank], name, load + bytes + 1, &job->text);
}

int job_open(struct job *job, struct node *node, const struct job_kind *kind, uint32_t durability,
             const char *load)
{
	int r = 0;

	*job = (struct job){ .kind = kind, .node = node };
	for (uint32_t i = 0; i < kind->world && !r; i++)
		r = attach(job, i, durability);
	for (uint32_t i = 0; i < kind->world && !r; i++)
		r = add_layout(job, i);
	for (uint32_t i = 0; i < kind->world && !r && load; i++)
		r = load_snapshot(job, i, load);
	if (!r)
		r = call_all(job, zero_materialize, &(struct zero_op){ 0 });
	for (uint32_t i = 0; i < kind->world && !r; i++)
		zero_materialized(job->ranks[i], &job->memory[i]);
	if (r)
		job_close(job);
	else if (job_has_votes)
		votes_give(job->ranks[0]->job);
	return r;
}

void job_close(struct job *job)
{
	for (uint32_t i = 0; i < JOB_WORLD_MAX; i++) {
		struct zero_rank *rank = job->ranks[i];

		job->ranks[i] = NULL;
		if (rank)
			zero_rank_leave(rank, true, NULL);
	}
	node_settle(job->node);
}

bool job_serial(const struct job *job, int64_t *ret_serial)
{
	int64_t serial = -1;

	for (uint32_t i = 0; i < job->kind->world; i++) {
		uint64_t bytes = 0;
		const struct job_blob *blob = zero_blob(job->ranks[i], &bytes);

		if (job->memory[i].committed_step < 0 && !bytes)
			continue;
		if (bytes != sizeof(*blob) || blob->rank != i || blob->number != job->kind->number)
			return false;
		if (i && (int64_t)blob->serial != serial)
			return false;
		serial = (int64_t)blob->serial;
	}
	*ret_serial = serial;
	return true;
}

/* Of rank 0, which has just unsharded it. */
static const void *param_in(const struct job *job, uint32_t unit)
{
	const struct zero_unit *entry = &job->ranks[0]->job->units[unit];
	bool is_pooled = job->kind->offload_param == ZI_OFFLOAD_NVME;

	return (const char *)job->memory[0].param->region.base +
	       (is_pooled ? job->calls[0].op.offset_bytes : entry->param_offset);
}

int job_hash(struct job *job, uint64_t *ret_hash)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->kind->dtype);
	uint64_t hash = 0;
	int r = 0;

	for (uint32_t unit = 0; unit < job->kind->unit_count && !r; unit++) {
		r = call_one(job, 0, zero_unshard, &(struct zero_op){ .unit = unit });
		if (!r)
			hash = mix(hash) ^ kern_hash(param_in(job, unit),
			                             job->kind->unit_elements[unit] * width);
		if (!r)
			r = call_one(job, 0, zero_reshard, &(struct zero_op){ .unit = unit });
	}
	*ret_hash = hash;
	return r;
}

/* ---- operations ---- */

static uint64_t what_of(const struct job *job, uint32_t serial, uint32_t rank, uint32_t unit)
{
	return ((job->kind->number * JOB_SERIALS_MAX + serial) * JOB_WORLD_MAX + rank) *
	               JOB_UNITS_MAX +
	       unit + 1;
}

static int write_unit(struct job *job, uint32_t serial, uint32_t unit)
{
	int r = call_one(job, 0, zero_param_write_begin, &(struct zero_op){ .unit = unit });

	if (r)
		return r;
	fill(zero_param_staging(job->ranks[0])->region.base, what_of(job, serial, 0, unit),
	     job->kind->unit_elements[unit], job->kind->dtype);
	return call_all(job, zero_param_write_end, &(struct zero_op){ .unit = unit });
}

static int gradient(struct job *job, uint32_t serial, uint32_t rank, uint32_t unit)
{
	int r = call_one(job, rank, zero_grad_acquire, &(struct zero_op){ .unit = unit });
	void *grad;

	if (r)
		return r;
	grad = grad_in(job, rank, unit);
	fill(grad, what_of(job, serial, rank, unit), job->kind->unit_elements[unit],
	     job->kind->dtype);
	if (job->kind->operations[serial] == 'N' && rank == 0)
		kern_narrow(grad, &(float){ INFINITY }, 1, (enum zi_dtype)job->kind->dtype);
	return call_one(job, rank, zero_reduce, &(struct zero_op){ .unit = unit });
}

static int gradients(struct job *job, uint32_t serial)
{
	bool is_early = job->kind->operations[serial] == 'E';
	const struct zero_op begin = {
		.options = { .lr = 1e-2,
		             .beta1 = 0.9,
		             .beta2 = 0.99,
		             .eps = 1e-8,
		             .weight_decay = 0.1,
		             .unscale = 0.5,
		             .max_norm = serial % 2 && !is_early ? 1.0 : 0.0,
		             .micro_batches = 1,
		             .flags = is_early ? ZI_STEP_UPDATE_EARLY : ZI_STEP_SKIP_NONFINITE },
	};
	int r = call_all(job, zero_step_begin, &begin);

	for (uint32_t unit = job->kind->unit_count; unit-- > 0;)
		for (uint32_t i = 0; i < job->kind->world && !r; i++)
			r = gradient(job, serial, i, unit);
	return r;
}

int job_prepare(struct job *job, uint32_t serial)
{
	char operation = job->kind->operations[serial];
	int r = 0;

	if (job_is_step(operation))
		return gradients(job, serial);
	for (uint32_t unit = 0; unit < job->kind->unit_count && !r; unit++)
		if (operation == 'W' || unit == serial % job->kind->unit_count)
			r = write_unit(job, serial, unit);
	return r;
}

void job_submit(struct job *job, uint32_t serial)
{
	char operation = job->kind->operations[serial];

	for (uint32_t i = 0; i < job->kind->world; i++) {
		job->blobs[i] = (struct job_blob){ .number = job->kind->number,
			                           .rank = i,
			                           .serial = serial };
		call_begin(job, i, job_is_step(operation) ? zero_step : zero_commit,
		           &(struct zero_op){ .blob = &job->blobs[i],
		                              .blob_bytes = sizeof(job->blobs[i]) },
		           true);
	}
}

int job_wait(struct job *job)
{
	int first = 0;

	for (uint32_t i = 0; i < job->kind->world; i++) {
		int r = call_wait(job, i);

		first = first ? first : r;
	}
	return first;
}

int job_do(struct job *job, uint32_t serial)
{
	int r = job_prepare(job, serial);

	if (r)
		return r;
	job_submit(job, serial);
	return job_wait(job);
}

int job_destroy(struct job *job)
{
	int r;

	call_begin(job, 0, zero_job_destroy, &(struct zero_op){ 0 }, true);
	r = call_wait(job, 0);
	if (!r)
		job->ranks[0] = NULL; /* It is gone with the job. */
	return r;
}
