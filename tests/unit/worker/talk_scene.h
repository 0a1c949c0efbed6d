/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The links of a talk of two nodes in one process, over lanes that are doubles of Gloo's
 * (fake_lanes.h), in the steps that the test makes.
 */
#pragma once

#include <sched.h>

#include "daemon/worker/net/talk_link.h"
#include "tests/unit/worker/fake_lanes.h"

#define SLAB_BYTES (18ull << 20)
#define HEARD_MAX  4096u

struct end {
	struct talk_link link;
	uint32_t rung;
	char *slabs[2]; /* NET_SLAB_TALK, NET_SLAB_PARAM */
	struct talk_entry heard[HEARD_MAX];
	uint32_t heard_count;
};

static struct end ends[2];

static inline void note(void *arg, const struct talk_entry *entry)
{
	struct end *end = arg;

	cr_assert_lt(end->heard_count, HEARD_MAX);
	end->heard[end->heard_count++] = *entry;
}

static inline struct talk_link_options options_of(uint32_t node)
{
	struct talk_link_options options = { .mesh = &both[node].mesh,
		                             .node = 1 - node,
		                             .rung = &ends[node].rung,
		                             .tell = note,
		                             .arg = &ends[node] };

	for (uint32_t i = 0; i < 2; i++)
		options.slabs[NET_SLAB_TALK + i] =
			(struct talk_slab){ ends[node].slabs[i], SLAB_BYTES };
	return options;
}

static inline void make_ends(void)
{
	memset(both, 0, sizeof(both));
	memset(ends, 0, sizeof(ends));
	torn_count = 0;
	for (uint32_t i = 0; i < 2; i++) {
		both[i].mesh.node = i;
		both[i].mesh.is_hurried = true; /* What is known to have come has. */
		for (uint32_t k = 0; k < 2; k++)
			cr_assert((ends[i].slabs[k] = calloc(1, SLAB_BYTES)));
	}
}

static inline void open_end(uint32_t node)
{
	struct talk_link_options options = options_of(node);
	struct zi_text text = { "" };

	cr_assert_eq(talk_link_open(&ends[node].link, &options, &text), 0, "%s", text.chars);
}

static inline void open_ends(void)
{
	make_ends();
	open_end(0);
	open_end(1);
}

static inline void close_ends(void)
{
	for (uint32_t i = 0; i < 2; i++)
		net_mesh_abort(&both[i].mesh);
	for (uint32_t i = 0; i < 2; i++) {
		talk_link_close(&ends[i].link);
		free(ends[i].slabs[0]);
		free(ends[i].slabs[1]);
	}
	cr_expect_eq(torn_count, 0);
}

/* All that has come to @node is counted by its link's thread. */
static inline void settle(uint32_t node)
{
	uint32_t come;

	(void)pthread_mutex_lock(&lock);
	come = both[node].mesh.lanes[0]->come_count;
	(void)pthread_mutex_unlock(&lock);
	while (__atomic_load_n(&ends[node].link.arrived, __ATOMIC_ACQUIRE) != come)
		(void)sched_yield();
}

/* Return: 0, or how it ended. */
static inline int hear_all(uint32_t node, struct zi_text *text)
{
	int r;

	settle(node);
	do
		r = talk_link_hear(&ends[node].link, text);
	while (r > 0);
	return r;
}

/* As the talking thread does. */
static inline void turn(uint32_t node)
{
	struct zi_text text = { "" };

	cr_assert_eq(hear_all(node, &text), 0, "%s", text.chars);
	talk_link_serve(&ends[node].link);
	talk_link_answer(&ends[node].link);
}

/* Until nothing is on its way. */
static inline void turn_both(void)
{
	for (uint32_t i = 0; i < 8; i++) {
		turn(0);
		turn(1);
	}
}

static inline int say(uint32_t node, struct talk_entry entry)
{
	struct zi_text text = { "" };
	int r = talk_link_say(&ends[node].link, &entry, &text);

	cr_assert_geq(r, 0, "%s", text.chars);
	return r;
}

static inline struct talk_entry entry_of(enum talk_kind kind, uint64_t tag, uint64_t offset,
                                         uint64_t bytes)
{
	return (struct talk_entry){ .kind = kind,
		                    .tag = tag,
		                    .slab = NET_SLAB_TALK,
		                    .offset_bytes = offset,
		                    .bytes = bytes };
}

static inline const struct talk_entry *last_heard(uint32_t node)
{
	cr_assert_gt(ends[node].heard_count, 0);
	return &ends[node].heard[ends[node].heard_count - 1];
}

static inline struct talk_entry full_entry(uint64_t tag)
{
	struct talk_entry entry = { .kind = TALK_BECAUSE,
		                    .what = 7,
		                    .error = -ENOSPC,
		                    .tag = tag,
		                    .unit = 1,
		                    .subgroup = 2,
		                    .micro = 3,
		                    .piece = 4,
		                    .step = -5,
		                    .data_bytes = TALK_DATA_BYTES };

	for (uint32_t i = 0; i < TALK_DATA_BYTES; i++)
		entry.data[i] = (uint8_t)(tag + i);
	return entry;
}
