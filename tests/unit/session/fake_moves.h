/* SPDX-License-Identifier: Apache-2.0 */
/* Exports and imports of the fake zero: a part of fake_zero.h, which has its object. */
#pragma once

#include "tests/unit/session/fake_zero.h"

/* Job 'held' has one extent, which the engine does not take. */
DOUBLE struct catalog_unit fake_unit = { .name = "h.0" };
DOUBLE struct catalog_extent fake_extent = {
	.plane = ZI_PLANE_STATE,
	.subgroup = 3,
	.extent = { .offset_bytes = 8192, .bytes = 4096 },
};
static const struct catalog_job fake_record = {
	.name = "held",
	.unit_count = 1,
	.units = &fake_unit,
	.extent_count = 1,
	.extents = &fake_extent,
};

/* The same with more extents than an answer of one message has. */
DOUBLE struct catalog_extent fake_extents[8192];
static const struct catalog_job fake_long_record = {
	.name = "held",
	.unit_count = 1,
	.units = &fake_unit,
	.extent_count = 8192,
	.extents = fake_extents,
};

static inline void fake_hold(struct zero_snapshot_op *op)
{
	op->result = strcmp(op->job, "held") == 0 ? 0 : -ENOENT;
	if (op->result)
		zi_text_set(&op->text, "nothing to hold");
	else
		op->held = (struct zero_snapshot *)&fake; /* Never looked into. */
	op->done(op);
}

DOUBLE void zero_snapshot_hold(struct zero *zero, struct zero_snapshot_op *op)
{
	if (zero->waits_for_step && !op->name[0])
		zero->waiting = op;
	else
		fake_hold(op);
}

/* The trainer goes on. */
static inline void fake_step_done(void)
{
	cr_assert_not_null(fake.waiting);
	fake_hold(fake.waiting);
	fake.waiting = NULL;
}

DOUBLE void zero_snapshot_withdraw(struct zero *zero, struct zero_snapshot_op *op)
{
	if (zero->waiting != op)
		return;
	zero->waiting = NULL;
	op->result = -ECANCELED;
	zi_text_set(&op->text, "withdrawn");
	op->done(op);
}

DOUBLE void zero_snapshot_release(struct zero_snapshot *held)
{
	cr_assert_eq((void *)held, (void *)&fake);
	fake.release_count++;
}

DOUBLE const struct catalog_job *zero_snapshot_record(const struct zero_snapshot *held)
{
	(void)held;
	return fake.is_long ? &fake_long_record : &fake_record;
}

DOUBLE int zero_snapshot_read(struct zero_read *read)
{
	if (!fake.moves)
		return -EINVAL;
	cr_assert_lt(fake.read_count, FAKE_MOVES_MAX);
	fake.reads[fake.read_count++] = read;
	return 0;
}

/* The @index-th of those that were taken. */
static inline void fake_read_done(uint32_t index, int result)
{
	cr_assert_lt(index, fake.read_count);
	cr_assert_eq(fake.release_count, 0, "memory under the disk's hands was let go");
	fake.reads[index]->result = result;
	fake.reads[index]->done(fake.reads[index]);
}

DOUBLE const char *zero_snapshot_path(const struct zero_snapshot *held, uint32_t index)
{
	(void)held;
	(void)index;
	return "/disk/store";
}

DOUBLE int zero_import_new(struct zero *zero, const struct zero_import_options *options,
                           struct zi_text *text, struct zero_import **ret_import)
{
	(void)zero;
	if (!fake.moves)
		return zi_text_error(text, -ENOSPC, "fake has no room for %u parameters of '%s'",
		                     options->record->param_count, options->job);
	*ret_import = (struct zero_import *)&fake; /* Never looked into. */
	return 0;
}

DOUBLE uint64_t zero_import_extent_bytes(const struct zero_import *import, uint32_t index)
{
	(void)import;
	return index < FAKE_MOVES_MAX ? 4096 : 0;
}

DOUBLE int zero_import_write(struct zero_put *put)
{
	cr_assert_lt(fake.put_count, FAKE_MOVES_MAX);
	fake.puts[fake.put_count++] = put;
	return 0;
}

/* The @index-th of those that were taken. */
static inline void fake_put_done(uint32_t index, int result, const char *text)
{
	cr_assert_lt(index, fake.put_count);
	cr_assert_eq(fake.drop_count, 0, "memory under the disk's hands was let go");
	fake.puts[index]->result = result;
	zi_text_set(&fake.puts[index]->text, "%s", text);
	fake.puts[index]->done(fake.puts[index]);
}

DOUBLE void zero_import_end(struct zero_import *import, struct zero_snapshot_op *op)
{
	(void)import;
	cr_assert(fake.moves, "nothing was imported");
	op->done(op);
}

DOUBLE void zero_import_drop(struct zero_import *import)
{
	(void)import;
	cr_assert(fake.moves, "nothing was imported");
	fake.drop_count++;
}
