/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a node (life.h). */
#include "tests/power/life.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/types.h"
#include "tests/power/image.h"
#include "tests/power/record.h"

/* Just room for both jobs, so that freed extents are soon written again. */
#define STORE_BYTES (2ull << 20)

/* A unit is shorter than a block, or of two tiles, the second one short. An operation more than the
 * life has: what the last commit is carried on to. */
const struct job_kind life_kinds[LIFE_KINDS] = {
	{ .name = "alpha",
	  .operations = "WSSwSNSESwSES",
	  .number = 0,
	  .world = 2,
	  .unit_count = 3,
	  .unit_elements = { 700, 20000, 5000 },
	  .dtype = ZI_DTYPE_BF16,
	  .optimizer = ZI_OPTIMIZER_ADAMW },
	{ .name = "beta",
	  .operations = "WSSwS",
	  .number = 1,
	  .world = 1,
	  .unit_count = 2,
	  .unit_elements = { 4096, 300 },
	  .dtype = ZI_DTYPE_F32,
	  .optimizer = ZI_OPTIMIZER_ADAM },
	{ .name = "beta",
	  .operations = "WSESSwESS",
	  .number = 2,
	  .world = 1,
	  .unit_count = 2,
	  .unit_elements = { 300, 9000 },
	  .dtype = ZI_DTYPE_F32,
	  .optimizer = ZI_OPTIMIZER_SGD,
	  .offload_param = ZI_OFFLOAD_NVME },
};
const uint32_t life_name_of_kind[LIFE_KINDS] = { 0, 1, 1 };

static void must(bool is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "life: %s\n", what);
	abort();
}

bool life_is_power(const struct life *life, uint32_t name)
{
	return life->durability == LIFE_POWER || (life->durability == LIFE_MIXED && name != 1);
}

uint32_t life_durability_of(const struct life *life, uint32_t kind)
{
	return life_is_power(life, life_name_of_kind[kind]) ? ZI_DURABILITY_POWER
	                                                    : ZI_DURABILITY_PROCESS;
}

/* ---- the reference ---- */

void life_reference(struct life *life, const char *directory)
{
	for (uint32_t kind = 0; kind < LIFE_KINDS; kind++) {
		const char *operations = life_kinds[kind].operations;
		int64_t step = 0;
		struct zi_text text;
		struct node node;
		struct job job;

		must(!node_start(&node, directory, LIFE_STORE_BYTES, &text), text.chars);
		must(!job_open(&job, &node, &life_kinds[kind], life_durability_of(life, kind),
		               NULL),
		     job.text.chars);
		for (uint32_t serial = 0; operations[serial]; serial++) {
			must(!job_do(&job, serial), job.text.chars);
			must(!job_hash(&job, &life->hashes[kind][serial]), job.text.chars);
			step += job_is_step(operations[serial]);
			life->steps[kind][serial] = step;
		}
		job_close(&job);
		node_stop(&node);
		image_clear_directory(directory);
	}
}

/* ---- the life ---- */

/* @kind: -1: it is gone from here on. */
static struct life_point *point_add(struct life *life, uint32_t name, int32_t kind, uint32_t serial)
{
	struct life_point *point = &life->points[name][life->point_count[name]++];

	must(life->point_count[name] <= LIFE_POINTS_MAX, "too many points");
	*point = (struct life_point){
		.begun = record_now(), .acknowledged = UINT64_MAX, .kind = kind, .serial = serial
	};
	return point;
}

/* Each rank is told; the first one counts. */
static void acknowledged(void *arg)
{
	struct life_point *point = arg;

	if (point->acknowledged == UINT64_MAX)
		point->acknowledged = record_now();
}

static void open_job(struct life *life, struct job *job, struct node *node, uint32_t kind)
{
	int r = job_open(job, node, &life_kinds[kind], life_durability_of(life, kind), NULL);

	must(!r, job->text.chars);
	job->acknowledged = acknowledged;
}

static void submit(struct life *life, struct job *job, uint32_t serial)
{
	job->arg = point_add(life, life_name_of_kind[job->kind->number], (int32_t)job->kind->number,
	                     serial);
	job_submit(job, serial);
}

static void check_job(const struct life *life, struct job *job, uint32_t serial)
{
	uint64_t hash;

	must(!job_wait(job), job->text.chars);
	must(!job_hash(job, &hash), job->text.chars);
	must(hash == life->hashes[job->kind->number][serial], "the recorded run trains otherwise");
}

/* The operation @first of one job and @second of the other, whose commits overlap. */
static void round_do(struct life *life, struct job *one, uint32_t first, struct job *other,
                     uint32_t second)
{
	must(!job_prepare(one, first), one->text.chars);
	must(!job_prepare(other, second), other->text.chars);
	submit(life, one, first);
	submit(life, other, second);
	check_job(life, one, first);
	check_job(life, other, second);
}

static void destroy(struct life *life, struct job *job)
{
	job->arg = point_add(life, life_name_of_kind[job->kind->number], -1, 0);
	must(!job_destroy(job), job->text.chars);
}

/* ---- snapshots ---- */

struct snapshot_call {
	struct zero_snapshot_op op;
	struct node *node;
	struct life_point *point;
	bool is_done;
};

static void snapshot_done(struct zero_snapshot_op *op)
{
	struct snapshot_call *call = container_of(op, struct snapshot_call, op);

	must(!op->result, op->text.chars);
	acknowledged(call->point);
	call->is_done = true;
	zi_loop_stop(call->node->loop);
}

static void snapshot_do(struct node *node,
                        void (*function)(struct zero *zero, struct zero_snapshot_op *op),
                        struct life_point *point)
{
	struct snapshot_call call = {
		.op = { .done = snapshot_done, .name = LIFE_SNAPSHOT_NAME, .is_admin = true },
		.node = node,
		.point = point,
	};

	(void)zi_copy_name(call.op.job, sizeof(call.op.job), life_kinds[0].name); /* Fits. */
	function(node->zero, &call.op);
	while (!call.is_done)
		must(!zi_loop_run(node->loop), "the loop");
}

/* ---- days ---- */

static void start(struct node *node, const char *directory, uint64_t store_bytes)
{
	struct zi_text text;

	must(!node_start(node, directory, store_bytes, &text), text.chars);
}

/* The daemon stops by itself, its jobs at rest. */
static void stop(struct node *node, struct job *one, struct job *other)
{
	job_close(one);
	job_close(other);
	node_stop(node);
}

void life_run(struct life *life, const char *directory)
{
	struct node node;
	struct job alpha, beta;

	for (uint32_t name = 0; name < LIFE_NAMES; name++)
		point_add(life, name, -1, 0)->acknowledged = 0; /* There is nothing yet. */
	start(&node, directory, STORE_BYTES);
	life->made = record_now();
	open_job(life, &alpha, &node, 0);
	open_job(life, &beta, &node, 1);
	for (uint32_t i = 0; i < 4; i++)
		round_do(life, &alpha, i, &beta, i);
	snapshot_do(&node, zero_snapshot_create, point_add(life, LIFE_SNAPSHOT, 0, 3));
	destroy(life, &beta);
	open_job(life, &beta, &node, 2);
	for (uint32_t i = 0; i < 2; i++)
		round_do(life, &alpha, 4 + i, &beta, i);
	stop(&node, &alpha, &beta);

	start(&node, directory, LIFE_STORE_BYTES);
	open_job(life, &alpha, &node, 0);
	open_job(life, &beta, &node, 2);
	for (uint32_t i = 0; i < 3; i++)
		round_do(life, &alpha, 6 + i, &beta, 2 + i);
	stop(&node, &alpha, &beta);

	start(&node, directory, LIFE_STORE_BYTES);
	open_job(life, &beta, &node, 2);
	open_job(life, &alpha, &node, 0);
	for (uint32_t i = 0; i < 3; i++) {
		round_do(life, &beta, 5 + i, &alpha, 9 + i);
		if (i == 1)
			snapshot_do(&node, zero_snapshot_remove,
			            point_add(life, LIFE_SNAPSHOT, -1, 0));
	}
	stop(&node, &alpha, &beta);
}
