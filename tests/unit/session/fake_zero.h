/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zero for the session's tests: every function that daemon/session calls, with nothing behind it.
 * It keeps operations when told to, and writes down who left and why. The real one is not linked.
 */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/catalog/catalog.h"
#include "daemon/tier/account.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/zero.h"
#include "tests/harness/double.h"

#define FAKE_RANKS_MAX 64u
#define FAKE_OPS_MAX   1024u
#define FAKE_MOVES_MAX 8u

struct zero_rank {
	struct zero_attach attach;
	bool is_attached, is_clean;
	char reason[160];
	const struct tier_segment *received[FAKE_OPS_MAX];
	uint32_t received_count;
};

struct zero {
	struct tier_account account;
	struct tier *tier;
	struct zero_rank ranks[FAKE_RANKS_MAX];
	uint32_t rank_count;
	struct zero_op *held[FAKE_OPS_MAX];
	struct zero_rank *held_by[FAKE_OPS_MAX];
	uint32_t held_count, op_count;
	bool holds; /* operations stay pending until fake_release() */
	int result; /* of operations that do not */
	int attach_result;
	bool spans_nodes;
	int64_t lost_step;
	bool is_for_one; /* a second rank is refused while there is one */
	int layout_result;
	const char *frozen_words; /* NULL: all is well */
	uint32_t layout_count;
	uint32_t unit_count;
	uint32_t job_count; /* reported */
	struct coll *coll;  /* of job1; the test's */
	struct tier_segment *param, *grad, *staging, *tensors;
	char blob[70000];
	uint64_t blob_bytes;
	struct zi_step_options options; /* of the last STEP_BEGIN, or STEP_OPTIONS */
	struct zi_step_group groups[ZI_PARAM_GROUPS_MAX];
	struct zi_step_betas betas[ZI_PARAM_GROUPS_MAX];
	char seen_blob[64]; /* of the last STEP */
	bool seen_keeps;    /* of the last PARAM_WRITE_END */
	struct zero_state_range seen_state;
	uint32_t seen_run; /* of the last UNSHARD_PART, as is */
	uint64_t seen_part[ZI_PART_WORDS];
	uint32_t seen_root;
	/* Of exports and imports. */
	bool moves; /* extents are taken, and under way until fake_read_done(), fake_put_done() */
	struct zero_read *reads[FAKE_MOVES_MAX];
	struct zero_put *puts[FAKE_MOVES_MAX];
	uint32_t read_count, put_count; /* taken */
	uint32_t release_count, drop_count;
	bool waits_for_step;              /* holds without a name stay pending until … */
	struct zero_snapshot_op *waiting; /* … fake_step_done() of this one */
	bool is_long;                     /* the record of an export */
	uint32_t change_count;            /* snapshots and jobs that were to be changed */
	uint64_t today_write_bytes;       /* of the uid that asks; of uid 4242 twice as much */
};

DOUBLE struct zero fake;

#include "tests/unit/session/fake_moves.h"

static inline void fake_init(struct tier *tier)
{
	memset(&fake, 0, sizeof(fake));
	fake.tier = tier;
	fake.unit_count = 4;
	tier_account_init(&fake.account, "uid 0", NULL);
}

static inline void fake_coll_deinit(void);

static inline void fake_deinit(void)
{
	fake.param = tier_segment_unref(fake.param);
	fake.grad = tier_segment_unref(fake.grad);
	fake.staging = tier_segment_unref(fake.staging);
	fake.tensors = tier_segment_unref(fake.tensors);
	fake_coll_deinit();
	tier_account_deinit(&fake.account);
}

static inline void fake_finish(struct zero_op *op, int result)
{
	op->result = result;
	if (result)
		zi_text_set(&op->text, "fake says %d", result);
	op->done(op);
}

static inline void fake_take(struct zero_rank *rank, struct zero_op *op)
{
	fake.op_count++;
	op->stats.step = op->stats.committed_step = 77;
	op->culprit_unit = 3;
	if (!fake.holds) {
		fake_finish(op, fake.result);
		return;
	}
	cr_assert_lt(fake.held_count, FAKE_OPS_MAX);
	fake.held_by[fake.held_count] = rank;
	fake.held[fake.held_count++] = op;
}

/* Completes what is held, of one rank or (NULL) of all. */
static inline void fake_release(struct zero_rank *rank, int result)
{
	uint32_t kept_count = 0;
	uint32_t count = fake.held_count;
	struct zero_op *ops[FAKE_OPS_MAX];
	uint32_t op_count = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (rank && fake.held_by[i] != rank) {
			fake.held_by[kept_count] = fake.held_by[i];
			fake.held[kept_count++] = fake.held[i];
		} else {
			ops[op_count++] = fake.held[i];
		}
	}
	fake.held_count = kept_count;
	for (uint32_t i = 0; i < op_count; i++)
		fake_finish(ops[i], result);
}

DOUBLE struct tier_account *zero_account(struct zero *zero, uint32_t uid)
{
	(void)uid;
	return &zero->account;
}

DOUBLE void zero_account_each(struct zero *zero,
                              void (*each)(void *arg, uint32_t uid,
                                           const struct tier_account *account,
                                           uint64_t today_write_bytes),
                              void *arg)
{
	each(arg, geteuid(), &zero->account, zero->today_write_bytes);
	each(arg, 4242, &zero->account, 2 * zero->today_write_bytes);
}

DOUBLE int zero_attach(struct zero *zero, const struct zero_attach *attach, struct zi_text *text,
                       struct zero_rank **ret_rank, uint64_t *ret_incarnation_number)
{
	struct zero_rank *rank = &zero->ranks[zero->rank_count];

	if (zero->attach_result)
		return zi_text_error(text, zero->attach_result, "fake refuses '%s'", attach->job);
	for (uint32_t i = 0; zero->is_for_one && i < zero->rank_count; i++)
		if (zero->ranks[i].is_attached)
			return zi_text_error(text, -EBUSY, "fake has one, such as pid %d",
			                     zero->ranks[i].attach.pid);
	cr_assert_lt(zero->rank_count, FAKE_RANKS_MAX);
	zero->rank_count++;
	rank->attach = *attach;
	rank->is_attached = true;
	*ret_rank = rank;
	*ret_incarnation_number = 9;
	return 0;
}

DOUBLE void zero_rank_leave(struct zero_rank *rank, bool is_clean, const char *reason)
{
	cr_assert(rank->is_attached);
	fake_release(rank, -ECANCELED);
	rank->is_attached = false;
	rank->is_clean = is_clean;
	(void)snprintf(rank->reason, sizeof(rank->reason), "%s", reason);
}

DOUBLE struct tier_account *zero_rank_account(struct zero_rank *rank)
{
	cr_assert(rank->is_attached);
	return &fake.account;
}

DOUBLE int zero_rank_hold(struct zero_rank *rank, struct tier_segment *segment)
{
	cr_assert(rank->is_attached);
	cr_assert_lt(rank->received_count, FAKE_OPS_MAX);
	rank->received[rank->received_count++] = segment;
	return 0;
}

static inline bool fake_holds(const struct zero_rank *rank, const struct tier_segment *segment)
{
	for (uint32_t i = 0; i < rank->received_count; i++)
		if (rank->received[i] == segment)
			return true;
	return false;
}

DOUBLE void zero_job_destroy(struct zero_rank *rank, struct zero_op *op)
{
	rank->is_attached = fake.result != 0;
	fake_take(rank, op);
}

/* Every snapshot is of step 5, but of job 'none'. */
static inline void fake_snapshot(struct zero_snapshot_op *op)
{
	op->step = 5;
	op->result = strcmp(op->job, "none") == 0 ? -ENOENT : 0;
	if (op->result)
		zi_text_set(&op->text, "no job 'none'");
	else if (!op->name[0])
		cr_assert_eq(zi_copy_name(op->name, sizeof(op->name), "step-5"), 0);
	op->done(op);
}

DOUBLE void zero_snapshot_create(struct zero *zero, struct zero_snapshot_op *op)
{
	(void)zero;
	fake_snapshot(op);
}

DOUBLE void zero_snapshot_remove(struct zero *zero, struct zero_snapshot_op *op)
{
	zero->change_count++;
	fake_snapshot(op);
}

DOUBLE void zero_snapshot_restore(struct zero *zero, struct zero_snapshot_op *op)
{
	zero->change_count++;
	fake_snapshot(op);
}

DOUBLE void zero_job_delete(struct zero *zero, struct zero_snapshot_op *op)
{
	zero->change_count++;
	fake_snapshot(op);
}

DOUBLE void zero_snapshot_each(struct zero *zero, const char *job,
                               void (*each)(void *arg, const struct zero_snapshot_report *report),
                               void *arg)
{
	(void)zero;
	for (uint32_t uid = 1000; uid < 1002; uid++)
		each(arg, &(struct zero_snapshot_report){
				  .job = job ? job : "train", .name = "a", .uid = uid, .step = 5 });
}

DOUBLE int zero_load(struct zero_rank *rank, const char *job, const char *name,
                     struct zi_text *text)
{
	(void)rank;
	if (strcmp(job, "none") != 0 || strcmp(name, "none") != 0)
		return 0;
	return zi_text_error(text, -ENOENT, "no snapshot 'none/none'");
}

DOUBLE int zero_layout_add(struct zero_rank *rank, const struct zi_layout_entry *entry,
                           struct zi_text *text)
{
	(void)rank;
	fake.layout_count++;
	if (fake.layout_result)
		return zi_text_error(text, fake.layout_result, "fake dislikes '%s'", entry->name);
	return 0;
}

DOUBLE int64_t zero_lost_step(const struct zero_rank *rank)
{
	(void)rank;
	return fake.lost_step;
}

DOUBLE bool zero_spans_nodes(const struct zero_rank *rank)
{
	(void)rank;
	return fake.spans_nodes;
}

DOUBLE uint32_t zero_unit_count(const struct zero_rank *rank)
{
	(void)rank;
	return fake.unit_count;
}

DOUBLE void zero_materialize(struct zero_rank *rank, struct zero_op *op)
{
	struct zi_text text;

	if (!fake.param) {
		cr_assert_eq(tier_segment_new(fake.tier, &fake.account, "param", 8192,
		                              TIER_PAGES_HUGE, &text, &fake.param),
		             0);
		cr_assert_eq(tier_segment_new(fake.tier, &fake.account, "grad", 4096,
		                              TIER_PAGES_HUGE, &text, &fake.grad),
		             0);
	}
	fake_take(rank, op);
}

DOUBLE void zero_materialized(struct zero_rank *rank, struct zero_materialized *ret_materialized)
{
	(void)rank;
	*ret_materialized = (struct zero_materialized){
		.committed_step = -1,
		.slot_bytes = 4096,
		.update_count = 77,
		.loss_scale = 4096,
		.param = fake.param,
		.grad = fake.grad,
	};
}

DOUBLE void zero_param_write_begin(struct zero_rank *rank, struct zero_op *op)
{
	struct zi_text text;

	if (!fake.staging)
		cr_assert_eq(tier_segment_new(fake.tier, &fake.account, "staging", 4096,
		                              TIER_PAGES_HUGE, &text, &fake.staging),
		             0);
	fake_take(rank, op);
}

DOUBLE struct tier_segment *zero_param_staging(struct zero_rank *rank)
{
	(void)rank;
	return fake.staging;
}

DOUBLE void zero_param_write_end(struct zero_rank *rank, struct zero_op *op)
{
	fake.seen_keeps = op->keeps_state;
	fake_take(rank, op);
}

DOUBLE void zero_state_open(struct zero_rank *rank, struct zero_op *op)
{
	struct zi_text text;

	if (!fake.tensors)
		cr_assert_eq(tier_segment_new(fake.tier, &fake.account, "state", 8192,
		                              TIER_PAGES_SMALL, &text, &fake.tensors),
		             0);
	fake_take(rank, op);
}

DOUBLE struct tier_segment *zero_state_window(struct zero_rank *rank)
{
	(void)rank;
	return fake.tensors;
}

DOUBLE void zero_state_read(struct zero_rank *rank, struct zero_op *op)
{
	fake.seen_state = op->state;
	fake.seen_root = UINT32_MAX;
	fake_take(rank, op);
}

DOUBLE void zero_state_write(struct zero_rank *rank, struct zero_op *op)
{
	fake.seen_state = op->state;
	fake.seen_root = op->root;
	fake_take(rank, op);
}

DOUBLE void zero_state_count(struct zero_rank *rank, struct zero_op *op)
{
	fake.seen_state = op->state;
	fake_take(rank, op);
}

DOUBLE const void *zero_blob(struct zero_rank *rank, uint64_t *ret_bytes)
{
	(void)rank;
	*ret_bytes = fake.blob_bytes;
	return fake.blob_bytes ? fake.blob : NULL;
}

DOUBLE void zero_unshard(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_unshard_part(struct zero_rank *rank, struct zero_op *op)
{
	fake.seen_run = op->part_run;
	memcpy(fake.seen_part, op->part, sizeof(fake.seen_part));
	fake_take(rank, op);
}

DOUBLE void zero_reshard(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_prefetch(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_grad_acquire(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_reduce(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_grad_unused(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_step_begin(struct zero_rank *rank, struct zero_op *op)
{
	fake.options = op->options;
	if (op->options.group_count)
		memcpy(fake.groups, op->groups, op->options.group_count * sizeof(fake.groups[0]));
	if (op->options.flags & ZI_STEP_BETAS)
		memcpy(fake.betas, op->betas, op->options.group_count * sizeof(fake.betas[0]));
	fake_take(rank, op);
}

DOUBLE void zero_step_options(struct zero_rank *rank, struct zero_op *op)
{
	zero_step_begin(rank, op);
}

DOUBLE void zero_grad_norm(struct zero_rank *rank, struct zero_op *op)
{
	op->norm = 0.375;
	fake_take(rank, op);
}

DOUBLE void zero_step_discard(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_step(struct zero_rank *rank, struct zero_op *op)
{
	if (op->blob_bytes && op->blob_bytes <= sizeof(fake.seen_blob))
		memcpy(fake.seen_blob, op->blob, op->blob_bytes);
	fake_take(rank, op);
}

DOUBLE void zero_commit(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_barrier(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_tensor_open(struct zero_rank *rank, struct zero_op *op)
{
	struct zi_text text;

	if (!fake.tensors)
		cr_assert_eq(tier_segment_new(fake.tier, &fake.account, "tensors", op->bytes,
		                              TIER_PAGES_SMALL, &text, &fake.tensors),
		             0);
	fake_take(rank, op);
}

DOUBLE struct tier_segment *zero_tensor_segment(struct zero_rank *rank)
{
	(void)rank;
	return fake.tensors;
}

/* Where it says that a tensor lies is its id times 4096. */
DOUBLE void zero_tensor_alloc(struct zero_rank *rank, struct zero_op *op)
{
	op->offset_bytes = op->id * 4096;
	fake_take(rank, op);
}

DOUBLE void zero_tensor_put(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_tensor_prefetch(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_tensor_get(struct zero_rank *rank, struct zero_op *op)
{
	op->offset_bytes = op->id * 4096;
	op->bytes = 100 + op->id;
	fake_take(rank, op);
}

DOUBLE void zero_tensor_release(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_tensor_free(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE void zero_cancel(struct zero_rank *rank, struct zero_op *op)
{
	fake_take(rank, op);
}

DOUBLE const char *zero_frozen(const struct zero *zero)
{
	return zero->frozen_words;
}

DOUBLE void zero_evacuate(struct zero *zero)
{
	(void)zero;
}

DOUBLE bool zero_report(struct zero *zero, const char *job,
                        void (*each)(void *arg, const struct zero_job_report *report), void *arg)
{
	bool is_found = !job;

	for (uint32_t i = 0; i < zero->job_count; i++) {
		struct zero_job_report report = {
			.phase = "READY", .uid = 1000 + i % 2, .world_size = 8, .committed_step = i
		};

		/* job1 has opened collectives, when the test has. */
		report.coll = i == 1 ? fake.coll : NULL;
		report.arena_bytes = 4 << 20;

		(void)snprintf(report.name, sizeof(report.name), "job%u", i);
		report.last_step.step = (uint64_t)i;                /* job0: none since the start */
		report.last_step.norm = 0.0 / (double)(i == i + 1); /* NaN: not computed */
		if (job && strcmp(job, report.name) != 0)
			continue;
		each(arg, &report);
		is_found = true;
	}
	return is_found;
}

#include "tests/unit/session/fake_coll.h"
