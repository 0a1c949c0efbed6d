/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever stands where the worker of a group across nodes posts, which every member of the
 * node can write, is an error of the call, and touches nothing but its buffers; and nothing is
 * staged before that which a member that is still at a refused call could write over.
 * Method: one member, with another one on a second node that there is not; the test plays the
 * worker. Behind the buffers lies a page out of reach.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/mman.h>

#include "libclient/coll/node/call.h"
#include "libclient/coll/node/far.h"
#include "tests/unit/node/world.h"

#define MANY       5000u /* elements: more than go with a post */
#define FEW        10u
#define PAGE_BYTES 4096u

static struct {
	struct world world;
	struct rank rank;
	struct zi_far_group far;
	char *pages[2]; /* a page's end is a buffer's */
	struct zi_text text;
} scene;

#define PAGES_BYTES (16u * PAGE_BYTES)

static void start(void)
{
	static const uint8_t nodes[] = { 0, 1 };

	world_init(&scene.world, 2, 1); /* the second part of the board is the worker's */
	rank_init(&scene.rank, &scene.world, 0);
	scene.far = (struct zi_far_group){ .slab = world_memory(ZI_FAR_GROUP_BYTES),
		                           .slab_bytes = ZI_FAR_GROUP_BYTES };
	zi_far_shape_init(&scene.far.shape, nodes, 2, 2, 0);
	zi_mail_init(&scene.far.mail, &scene.far.shape, scene.far.slab, scene.far.slab_bytes);
	scene.rank.group.far = &scene.far;
	for (uint32_t i = 0; i < 2; i++) {
		scene.pages[i] = mmap(NULL, PAGES_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
		                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		cr_assert_neq(scene.pages[i], MAP_FAILED);
		cr_assert_eq(mprotect(scene.pages[i] + PAGES_BYTES, PAGE_BYTES, PROT_NONE), 0);
	}
}

static void stop(void)
{
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(munmap(scene.pages[i], PAGES_BYTES + PAGE_BYTES), 0);
	free(scene.far.slab);
	rank_deinit(&scene.rank);
	world_deinit(&scene.world);
}

TestSuite(far_answer, .init = start, .fini = stop, .timeout = 60);

/* A call that does not wait for anybody. */
static struct zi_node_call call_of(enum zi_coll_operation operation, uint64_t element_count)
{
	static const uint64_t counts[2] = { FEW, FEW };
	uint64_t source_bytes = element_count * 4, target_bytes = element_count * 4;

	if (operation == ZI_COLL_REDUCE_SCATTER || operation == ZI_COLL_SCATTER ||
	    operation == ZI_COLL_ALL_TO_ALL)
		source_bytes *= 2;
	if (operation == ZI_COLL_ALL_GATHER || operation == ZI_COLL_GATHER ||
	    operation == ZI_COLL_ALL_TO_ALL)
		target_bytes *= 2;
	if (operation == ZI_COLL_ALL_TO_ALLV)
		source_bytes = target_bytes = sizeof(float) * 2 * FEW;
	return (struct zi_node_call){
		.operation = operation,
		.dtype = operation == ZI_COLL_BARRIER ? 0 : ZI_DTYPE_F32,
		.reduce_op = zi_coll_is_join(operation) ? ZI_REDUCE_SUM : 0,
		.element_count = operation == ZI_COLL_BARRIER || operation == ZI_COLL_ALL_TO_ALLV
		                         ? 0
		                         : element_count,
		.source = scene.pages[0] + PAGES_BYTES - source_bytes,
		.target = scene.pages[1] + PAGES_BYTES - target_bytes,
		.source_counts = counts,
		.target_counts = counts,
	};
}

/* The worker has answered @said to the next call, and made all steps. */
static int make(const struct zi_node_call *call, const struct zi_board_call *said)
{
	uint32_t sequence = scene.rank.group.sequence + 1;
	struct zi_board_post *post = &scene.world.board[1].posts[sequence % ZI_BOARD_SLOTS];

	post->call = *said;
	post->payload_bytes = sizeof("a reason");
	memcpy(post->payload, "a reason", sizeof("a reason"));
	post->sequence = sequence;
	scene.world.board[1].step.value = (uint32_t)scene.far.pieces + 1000;
	return zi_node_call(&scene.rank.group, call, &scene.text);
}

static struct zi_board_call answer(const struct zi_node_call *call, uint8_t flags)
{
	return (struct zi_board_call){ .operation = (uint8_t)call->operation,
		                       .flags = flags,
		                       .element_count = call->element_count };
}

Test(far_answer, what_a_worker_says_is_taken)
{
	struct zi_node_call call = call_of(ZI_COLL_ALL_REDUCE, MANY);
	struct zi_board_call said = answer(&call, 0);

	cr_expect_eq(make(&call, &said), 0, "%s", scene.text.chars);
	/* Straight from the arenas. */
	call.source = scene.rank.inside[0];
	call.target = scene.rank.inside[1];
	said = answer(&call, ZI_BOARD_DIRECT);
	cr_expect_eq(make(&call, &said), 0, "%s", scene.text.chars);
	call = call_of(ZI_COLL_ALL_REDUCE, FEW);
	said = answer(&call, ZI_BOARD_SMALL);
	cr_expect_eq(make(&call, &said), 0, "%s", scene.text.chars);
	call = call_of(ZI_COLL_BARRIER, 0);
	said = answer(&call, 0);
	cr_expect_eq(make(&call, &said), 0, "%s", scene.text.chars);
	call = call_of(ZI_COLL_ALL_TO_ALLV, 0);
	said = answer(&call, 0);
	said.element_count = MANY; /* somebody else's block */
	cr_expect_eq(make(&call, &said), 0, "%s", scene.text.chars);
}

static void expect_nonsense(enum zi_coll_operation operation, uint64_t element_count, uint8_t flags,
                            uint64_t said_count)
{
	struct zi_node_call call = call_of(operation, element_count);
	struct zi_board_call said = answer(&call, flags);

	scene.rank.group.over = 0;
	said.element_count = said_count;
	cr_expect_eq(make(&call, &said), -EPROTO, "%d × %lu: %s", operation,
	             (unsigned long)element_count, scene.text.chars);
	cr_expect(strstr(scene.text.chars, "what zinf-net posted makes no sense"), "%s",
	          scene.text.chars);
}

Test(far_answer, a_count_that_is_another_is_an_error)
{
	expect_nonsense(ZI_COLL_ALL_REDUCE, MANY, 0, 100 * MANY);
	expect_nonsense(ZI_COLL_ALL_GATHER, MANY, 0, MANY + 1);
	expect_nonsense(ZI_COLL_BARRIER, 0, 0, 1);
}

Test(far_answer, a_way_that_it_cannot_go_is_an_error)
{
	expect_nonsense(ZI_COLL_ALL_REDUCE, MANY, ZI_BOARD_SMALL, MANY);
	expect_nonsense(ZI_COLL_ALL_REDUCE, FEW, 0, FEW);
	expect_nonsense(ZI_COLL_ALL_TO_ALLV, 0, ZI_BOARD_SMALL, FEW);
	expect_nonsense(ZI_COLL_BARRIER, 0, ZI_BOARD_DIRECT, 0);
	/* Its buffers are in no arena, so that it has staged them. */
	expect_nonsense(ZI_COLL_ALL_REDUCE, MANY, ZI_BOARD_DIRECT, MANY);
}

/* ---- two members on this node ---- */

/* Member 1, which is here as well, is played by the test: it posts @places, @bytes of them. */
static void post_neighbour(const struct zi_far_places *places, uint16_t bytes)
{
	uint32_t sequence = scene.rank.group.sequence + 1;
	struct zi_board_post *post = &scene.world.board[1].posts[sequence % ZI_BOARD_SLOTS];

	memcpy(post->payload, places, sizeof(*places));
	post->payload_bytes = bytes;
	post->sequence = sequence;
}

/* An all_to_all of three members, two of them here, goes straight. */
static int make_beside(const struct zi_far_places *places, uint16_t bytes)
{
	struct zi_node_call call = call_of(ZI_COLL_ALL_TO_ALL, MANY);
	uint32_t sequence = scene.rank.group.sequence + 1;
	struct zi_board_post *post = &scene.world.board[2].posts[sequence % ZI_BOARD_SLOTS];

	call.source = scene.rank.inside[0];
	call.target = scene.rank.inside[1];
	scene.rank.group.over = 0;
	post_neighbour(places, bytes);
	post->call = answer(&call, ZI_BOARD_DIRECT);
	post->sequence = sequence;
	scene.world.board[2].step.value = (uint32_t)scene.far.pieces + 1000;
	return zi_node_call(&scene.rank.group, &call, &scene.text);
}

static void start_beside(void)
{
	static const uint8_t nodes[] = { 0, 0, 1 };

	world_init(&scene.world, 3, 1); /* the third part of the board is the worker's */
	rank_init(&scene.rank, &scene.world, 0);
	scene.far = (struct zi_far_group){ .slab = world_memory(ZI_FAR_GROUP_BYTES),
		                           .slab_bytes = ZI_FAR_GROUP_BYTES };
	zi_far_shape_init(&scene.far.shape, nodes, 3, 2, 0);
	zi_mail_init(&scene.far.mail, &scene.far.shape, scene.far.slab, scene.far.slab_bytes);
	scene.rank.group.far = &scene.far;
}

static void stop_beside(void)
{
	free(scene.far.slab);
	rank_deinit(&scene.rank);
	world_deinit(&scene.world);
}

Test(far_beside, what_a_neighbour_has_is_taken_and_told, .init = start_beside, .fini = stop_beside)
{
	const uint64_t bytes = MANY * sizeof(float);
	uint64_t place = WORLD_ARENA_BYTES + WORLD_STAGING_BYTES;
	struct zi_far_places places = { place, ZI_BOARD_NOWHERE };
	const char *target = scene.rank.inside[1];
	char *theirs = scene.world.arenas + place;

	memset(scene.rank.inside[0], 1, 3 * bytes);
	memset(theirs, 2, bytes); /* for this one */
	memset(scene.rank.inside[1], 0, 3 * bytes);
	cr_assert_eq(make_beside(&places, sizeof(places)), 0, "%s", scene.text.chars);
	cr_expect_eq(memcmp(target, scene.rank.inside[0], bytes), 0);
	cr_expect_eq(memcmp(target + bytes, theirs, bytes), 0);
	cr_expect_eq(target[2 * bytes], 0, "that comes from the other node");
	cr_expect_eq(scene.world.board[0].step.value,
	             (uint32_t)zi_far_number(0, scene.rank.group.sequence) + 1);
}

Test(far_beside, who_says_nothing_good_is_an_error_by_its_number, .init = start_beside,
     .fini = stop_beside)
{
	const uint64_t bytes = MANY * sizeof(float), end = 3ull * WORLD_ARENA_BYTES;
	const struct {
		uint64_t source;
		uint16_t bytes;
		int error;
	} cases[] = {
		{ end - 3 * bytes, sizeof(struct zi_far_places), 0 },
		{ end - 3 * bytes + 1, sizeof(struct zi_far_places), -EPROTO },
		{ end, sizeof(struct zi_far_places), -EPROTO },
		{ UINT64_MAX - bytes, sizeof(struct zi_far_places), -EPROTO },
		{ ZI_BOARD_NOWHERE, sizeof(struct zi_far_places), -EPROTO },
		{ 0, sizeof(struct zi_far_places) - 1, -EPROTO },
		{ 0, 0, -EPROTO },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		struct zi_far_places places = { cases[i].source, ZI_BOARD_NOWHERE };

		cr_expect_eq(make_beside(&places, cases[i].bytes), cases[i].error, "case %u: %s", i,
		             scene.text.chars);
		if (cases[i].error)
			cr_expect(strstr(scene.text.chars,
			                 "where member 1 of the group has its data is nowhere"),
			          "case %u: %s", i, scene.text.chars);
	}
}

/* ---- before the answer ---- */

/* Posts @call, which the worker has not answered. Return: whether something of it is staged. */
static bool is_early(const struct zi_node_call *call)
{
	const uint32_t *step = &scene.world.board[0].step.value;
	uint32_t before = *step;
	struct zi_meet_wants wants = { .count = 0 };

	zi_node_begin(&scene.rank.group, call);
	cr_assert_eq(zi_node_poll(&scene.rank.group, &wants, &scene.text), ZI_NODE_E_WAITS);
	cr_assert_eq(scene.rank.group.run.phase, ZI_NODE_MEETING);
	return *step != before;
}

/* The worker answers @said to the call that is posted, and has made all steps. */
static int finish(const struct zi_board_call *said)
{
	uint32_t sequence = scene.rank.group.sequence;
	struct zi_board_post *post = &scene.world.board[1].posts[sequence % ZI_BOARD_SLOTS];
	struct zi_meet_wants wants = { .count = 0 };

	post->call = *said;
	post->payload_bytes = sizeof("a reason");
	memcpy(post->payload, "a reason", sizeof("a reason"));
	post->sequence = sequence;
	scene.world.board[1].step.value = (uint32_t)scene.far.pieces + 1000;
	return zi_node_poll(&scene.rank.group, &wants, &scene.text);
}

static bool is_slab_zero(void)
{
	for (uint64_t i = 0; i < scene.far.slab_bytes; i++)
		if (scene.far.slab[i])
			return false;
	return true;
}

Test(far_answer, after_a_refusal_nothing_is_staged_before_the_answer)
{
	struct zi_node_call call = call_of(ZI_COLL_ALL_REDUCE, MANY), own;
	struct zi_board_call agreed = answer(&call, 0), refused = answer(&call, ZI_BOARD_REFUSED);

	refused.root = EINVAL;
	cr_expect(is_early(&call), "the first one");
	cr_assert_eq(finish(&agreed), 0, "%s", scene.text.chars);
	cr_expect(is_early(&call), "after one that was made");
	cr_assert_eq(finish(&refused), -EINVAL);
	/* Told by the worker, twice. */
	for (uint32_t i = 0; i < 2; i++) {
		struct zi_node_call other = call_of(ZI_COLL_ALL_GATHER, MANY);

		memset(scene.far.slab, 0, scene.far.slab_bytes);
		cr_expect(!is_early(&other) && is_slab_zero(), "refusal %u", i);
		cr_assert_eq(finish(&refused), -EINVAL);
	}
	cr_expect(!is_early(&call));
	cr_assert_eq(finish(&agreed), 0, "%s", scene.text.chars);
	cr_expect(is_early(&call), "the next after the one that was made");
	cr_assert_eq(finish(&agreed), 0, "%s", scene.text.chars);
	/* By itself: it is over with that, and hears of the worker that all have posted. */
	own = call;
	own.refused = -EINVAL;
	own.reason = "a fault";
	cr_assert_eq(make(&own, &refused), -EINVAL);
	memset(scene.far.slab, 0, scene.far.slab_bytes);
	cr_expect(!is_early(&call) && is_slab_zero());
	cr_assert_eq(finish(&agreed), 0, "%s", scene.text.chars);
}

Test(far_answer, a_call_that_is_not_staged_yet_is_not_direct)
{
	struct zi_node_call call = call_of(ZI_COLL_ALL_REDUCE, MANY);
	struct zi_board_call said = answer(&call, ZI_BOARD_REFUSED);

	said.root = EINVAL;
	cr_assert_eq(make(&call, &said), -EINVAL);
	said = answer(&call, ZI_BOARD_DIRECT);
	cr_expect_eq(make(&call, &said), -EPROTO, "%s", scene.text.chars);
}

Test(far_answer, anything_is_an_error_or_an_answer)
{
	uint64_t state = 4713;
	uint32_t proto = 0;

	for (uint32_t round = 0; round < 4000; round++) {
		struct zi_node_call call =
			call_of(1 + round % ZI_COLL_ALL_TO_ALLV, round % 3 ? MANY : FEW);
		struct zi_board_call said = answer(&call, 0);
		uint8_t *bytes = (uint8_t *)&said;
		int r;

		scene.rank.group.over = 0;
		/* All of it, or one byte. */
		for (uint32_t i = 0; i < sizeof(said) && round % 4 == 0; i++)
			bytes[i] = (uint8_t)data_random(&state);
		bytes[data_random(&state) % sizeof(said)] = (uint8_t)(1u << round % 8);
		r = make(&call, &said);
		cr_assert(r == 0 || r == -EINVAL || r == -EPROTO || r == -EOVERFLOW ||
		                  r == -EACCES || r == -ETIMEDOUT,
		          "round %u: %d", round, r);
		cr_assert(!r || scene.text.chars[0], "round %u: %d", round, r);
		proto += r == -EPROTO;
		scene.far.pieces = 0;
	}
	cr_assert_gt(proto, 500);
}
