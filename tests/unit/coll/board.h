/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of daemon/coll share: four ranks, boards that the test writes as they would. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "daemon/coll/coll.h"
#include "daemon/coll/describe.h"

#define RANKS 4u

static _Alignas(4096) struct zi_board_member boards[ZI_GROUPS_MAX][RANKS];
static _Alignas(4096) union {
	struct zi_verdicts verdicts;
	char bytes[ZI_VERDICT_BYTES];
} region;
static struct coll *coll;
static const char *doing_words[RANKS]; /* what a rank does elsewhere; NULL: nothing */
static struct zi_text text;

static inline void doing(void *arg, uint32_t rank, struct zi_text *ret_text)
{
	(void)arg;
	if (doing_words[rank])
		zi_text_set(ret_text, "%s", doing_words[rank]);
}

static struct zi_text broken_words; /* of the group that broke last */

static inline void broken(void *arg, uint32_t group, int error, const struct zi_text *why)
{
	(void)arg;
	(void)group;
	(void)error;
	broken_words = *why;
}

static inline void add_group(uint32_t number, uint64_t mask)
{
	coll_group_add(coll, number, mask, boards[number], 10000000000ull);
}

static inline void board_setup(void)
{
	memset(boards, 0, sizeof(boards));
	memset(&region, 0, sizeof(region));
	memset(doing_words, 0, sizeof(doing_words));
	cr_assert_eq(coll_new(&(struct coll_options){ .world_size = RANKS,
	                                              .verdicts = &region.verdicts,
	                                              .doing = doing,
	                                              .broken = broken },
	                      &coll),
	             0);
	for (uint32_t i = 0; i < RANKS; i++)
		coll_rank_here(coll, i, 100 + (int)i);
	add_group(ZI_GROUP_WORLD, 0xf);
}

static inline void board_teardown(void)
{
	coll = coll_free(coll);
}

static inline struct zi_board_call a_call(enum zi_coll_operation operation, uint64_t count,
                                          enum zi_reduce_op op, uint32_t root)
{
	return (struct zi_board_call){
		.operation = (uint8_t)operation,
		.dtype = operation == ZI_COLL_BARRIER ? 0 : ZI_DTYPE_F32,
		.reduce_op = (uint8_t)op,
		.root = root,
		.element_count = count,
		.source = ZI_BOARD_NOWHERE,
		.target = ZI_BOARD_NOWHERE,
	};
}

static inline void post(uint32_t group, uint32_t member, uint32_t sequence,
                        struct zi_board_call call)
{
	struct zi_board_post *place = &boards[group][member].posts[sequence % ZI_BOARD_SLOTS];

	place->call = call;
	place->sequence = sequence;
}

static inline struct zi_coll_fail failure(uint32_t group, uint32_t sequence, int error)
{
	return (struct zi_coll_fail){ .group = group,
		                      .sequence = sequence,
		                      .error = error,
		                      .culprit = COLL_NOBODY,
		                      .timeout_ms = 10000 };
}

static inline int fail(uint32_t rank, struct zi_coll_fail report)
{
	text.chars[0] = '\0';
	return coll_fail(coll, rank, &report, &text);
}

static inline uint32_t verdict(uint32_t group)
{
	return zi_line_load(&region.verdicts.groups[group]);
}
