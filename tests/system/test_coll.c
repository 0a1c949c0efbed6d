/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every collective of zinf.h gives what it should, for 1 to 4 ranks, in buffers of the arena
 * and elsewhere, in place, in groups, and with tickets. Method: ranks as processes of a real zinfd;
 * contributions are a function of rank and element, so that each rank computes what it must have.
 */
#include "tests/system/coll.h"

TestSuite(coll, .timeout = 120);

/* Short: in the posts. Then shares in the arena, and several pieces of staging. */
static const uint64_t sizes[] = { 0, 1, 7, 3000, 300001 };
#define SIZE_MAX_ELEMENTS 300001u

static int32_t value(uint32_t rank, uint64_t index)
{
	return (int32_t)(rank * 1000003u + (uint32_t)index * 7919u) % 100000;
}

struct scene {
	struct coll_rank *rank;
	struct zinf_coll_options options;
	uint32_t self, count_of_members;
	const uint32_t *ranks; /* of the members */
	uint64_t count;
	int32_t *source, *target; /* members × count each */
};

static void fill(const struct scene *scene, int32_t *buffer, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		buffer[i] = value(scene->rank->rank, i);
}

static int32_t sum_of(const struct scene *scene, uint64_t index)
{
	int32_t sum = 0;

	for (uint32_t i = 0; i < scene->count_of_members; i++)
		sum += value(scene->ranks[i], index);
	return sum;
}

#define must(call)       coll_must(scene->rank, 0, call)
#define check(condition) coll_check(scene->rank, condition)

static int join(const struct scene *scene)
{
	const struct zinf_coll_options *options = &scene->options;
	struct zinf *zinf = scene->rank->zinf;
	uint64_t count = scene->count, first = scene->self * count;
	uint32_t root = scene->count_of_members - 1;
	int32_t *source = scene->source, *target = scene->target;

	fill(scene, source, count);
	must(zinf_coll_all_reduce(zinf, source, target, count, ZINF_I32, ZINF_SUM, options));
	for (uint64_t i = 0; i < count; i++)
		check(target[i] == sum_of(scene, i));
	fill(scene, target, count);
	must(zinf_coll_reduce(zinf, target, target, count, ZINF_I32, ZINF_SUM, root, options));
	for (uint64_t i = 0; i < count && scene->self == root; i++)
		check(target[i] == sum_of(scene, i));
	fill(scene, source, count * scene->count_of_members);
	must(zinf_coll_reduce_scatter(zinf, source, target, count, ZINF_I32, ZINF_SUM, options));
	for (uint64_t i = 0; i < count; i++)
		check(target[i] == sum_of(scene, first + i));
	must(zinf_coll_reduce_scatter(zinf, source, source + first, count, ZINF_I32, ZINF_SUM,
	                              options));
	for (uint64_t i = 0; i < count; i++)
		check(source[first + i] == sum_of(scene, first + i));
	return 0;
}

static int gather(const struct scene *scene)
{
	const struct zinf_coll_options *options = &scene->options;
	struct zinf *zinf = scene->rank->zinf;
	uint64_t count = scene->count, first = scene->self * count;
	uint32_t members = scene->count_of_members;
	int32_t *source = scene->source, *target = scene->target;

	fill(scene, source, count);
	must(zinf_coll_all_gather(zinf, source, target, count, ZINF_I32, options));
	for (uint32_t m = 0; m < members; m++)
		for (uint64_t i = 0; i < count; i++)
			check(target[m * count + i] == value(scene->ranks[m], i));
	memset(target, 0, members * count * sizeof(*target));
	fill(scene, target + first, count);
	must(zinf_coll_all_gather(zinf, target + first, target, count, ZINF_I32, options));
	for (uint32_t m = 0; m < members; m++)
		for (uint64_t i = 0; i < count; i++)
			check(target[m * count + i] == value(scene->ranks[m], i));
	memset(target, 0, members * count * sizeof(*target));
	must(zinf_coll_gather(zinf, source, scene->self ? NULL : target, count, ZINF_I32, 0,
	                      options));
	for (uint32_t m = 0; m < members && !scene->self; m++)
		for (uint64_t i = 0; i < count; i++)
			check(target[m * count + i] == value(scene->ranks[m], i));
	return 0;
}

static int spread(const struct scene *scene)
{
	const struct zinf_coll_options *options = &scene->options;
	struct zinf *zinf = scene->rank->zinf;
	uint64_t count = scene->count, first = scene->self * count;
	uint32_t members = scene->count_of_members, root = members / 2;
	int32_t *source = scene->source, *target = scene->target;

	fill(scene, target, count);
	must(zinf_coll_broadcast(zinf, target, count, ZINF_I32, root, options));
	for (uint64_t i = 0; i < count; i++)
		check(target[i] == value(scene->ranks[root], i));
	fill(scene, source, count * members);
	must(zinf_coll_scatter(zinf, scene->self == root ? source : NULL, target, count, ZINF_I32,
	                       root, options));
	for (uint64_t i = 0; i < count; i++)
		check(target[i] == value(scene->ranks[root], first + i));
	must(zinf_coll_all_to_all(zinf, source, target, count, ZINF_I32, options));
	for (uint32_t m = 0; m < members; m++)
		for (uint64_t i = 0; i < count; i++)
			check(target[m * count + i] == value(scene->ranks[m], first + i));
	must(zinf_coll_all_to_all(zinf, source, source, count, ZINF_I32, options));
	for (uint32_t m = 0; m < members; m++)
		for (uint64_t i = 0; i < count; i++)
			check(source[m * count + i] == value(scene->ranks[m], first + i));
	fill(scene, source, count * members);
	must(zinf_coll_scatter(zinf, source, scene->self == root ? source + first : target, count,
	                       ZINF_I32, root, options));
	for (uint64_t i = 0; i < count && scene->self != root; i++)
		check(target[i] == value(scene->ranks[root], first + i));
	must(zinf_coll_barrier(zinf, options));
	return 0;
}

/* From @from to @to: up to the count, and sometimes nothing. */
static uint64_t uneven(const struct scene *scene, uint32_t from, uint32_t to)
{
	return scene->count * ((from + 2 * to) % 3) / 2;
}

static int uneven_all_to_all(const struct scene *scene)
{
	uint64_t source_counts[COLL_RANKS_MAX], target_counts[COLL_RANKS_MAX];
	uint32_t members = scene->count_of_members;
	uint64_t place = 0;

	for (uint32_t m = 0; m < members; m++) {
		source_counts[m] = uneven(scene, scene->self, m);
		target_counts[m] = uneven(scene, m, scene->self);
	}
	fill(scene, scene->source, scene->count * members);
	must(zinf_coll_all_to_allv(scene->rank->zinf, scene->source, source_counts, scene->target,
	                           target_counts, ZINF_I32, &scene->options));
	for (uint32_t m = 0; m < members; m++) {
		uint64_t begin = 0;

		for (uint32_t to = 0; to < scene->self; to++)
			begin += uneven(scene, m, to);
		for (uint64_t i = 0; i < target_counts[m]; i++)
			check(scene->target[place++] == value(scene->ranks[m], begin + i));
	}
	return 0;
}

/* To the next, from the one before: both at once; then from even members to odd ones. */
static int pass(const struct scene *scene)
{
	uint32_t members = scene->count_of_members;
	uint32_t next = (scene->self + 1) % members, before = (scene->self + members - 1) % members;
	struct zinf_coll_p2p ops[2] = {
		{ .is_send = 1,
		  .peer = next,
		  .data = scene->source,
		  .count = scene->count,
		  .dtype = ZINF_I32 },
		{ .peer = before, .data = scene->target, .count = scene->count, .dtype = ZINF_I32 },
	};
	struct zinf *zinf = scene->rank->zinf;

	fill(scene, scene->source, scene->count);
	must(zinf_coll_batch(zinf, ops, 2, &scene->options));
	for (uint64_t i = 0; i < scene->count; i++)
		check(scene->target[i] == value(scene->ranks[before], i));
	memset(scene->target, 0, scene->count * sizeof(*scene->target));
	if (scene->self % 2) {
		must(zinf_coll_recv(zinf, scene->target, scene->count, ZINF_I32, scene->self - 1,
		                    &scene->options));
		for (uint64_t i = 0; i < scene->count; i++)
			check(scene->target[i] == value(scene->ranks[scene->self - 1], i));
	} else if (scene->self + 1 < members) {
		must(zinf_coll_send(zinf, scene->source, scene->count, ZINF_I32, scene->self + 1,
		                    &scene->options));
	}
	return 0;
}

static int all_operations(struct scene *scene)
{
	for (size_t i = 0; i < ZI_COUNT_OF(sizes); i++) {
		scene->count = sizes[i];
		if (join(scene) || gather(scene) || spread(scene) || uneven_all_to_all(scene) ||
		    pass(scene)) {
			fprintf(stderr, "… with %llu elements, %u members\n",
			        (unsigned long long)scene->count, scene->count_of_members);
			return 1;
		}
	}
	return 0;
}

static const uint32_t all_ranks[COLL_RANKS_MAX] = { 0, 1, 2, 3 };

/* Source and target in the arena or not, in all ways; ranks need not do alike. */
static int every_placement(struct coll_rank *rank)
{
	const uint64_t bytes = (uint64_t)SIZE_MAX_ELEMENTS * rank->world * sizeof(int32_t);
	void *inside[2] = { NULL, NULL }, *outside[2] = { malloc(bytes), malloc(bytes) };
	struct scene scene = {
		.rank = rank,
		.options = ZINF_COLL_OPTIONS_INIT,
		.self = rank->rank,
		.count_of_members = rank->world,
		.ranks = all_ranks,
	};
	int r = 0;

	coll_must(rank, 0, zinf_coll_alloc(rank->zinf, bytes, &inside[0]));
	coll_must(rank, 0, zinf_coll_alloc(rank->zinf, bytes, &inside[1]));
	for (uint32_t way = 0; way < 4 && !r; way++) {
		uint32_t own_way = way == 3 ? rank->rank % 4 : way;

		scene.source = own_way & 1 ? outside[0] : inside[0];
		scene.target = own_way & 2 ? outside[1] : inside[1];
		r = all_operations(&scene);
		if (r)
			fprintf(stderr, "… placement %u\n", way);
	}
	free(outside[0]);
	free(outside[1]);
	if (!r) /* who leaves while others are busy breaks the group */
		coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	return r;
}

Test(coll, every_operation_of_1_to_4_ranks_is_right_wherever_the_buffers_lie)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	for (uint32_t world = 1; world <= COLL_RANKS_MAX; world++)
		coll_run(&scene, world, every_placement);
	coll_close_scene(&scene);
}

/* ---- groups ---- */

/* Two halves at once, and one across; a group is made anew where one was freed. */
static int groups_at_once(struct coll_rank *rank)
{
	static const uint32_t halves[2][2] = { { 2, 0 }, { 1, 3 } },
			      sorted[2][2] = { { 0, 2 }, { 1, 3 } };
	int32_t source[2 * 7], target[2 * 7];
	struct scene scene = { .rank = rank,
		               .options = ZINF_COLL_OPTIONS_INIT,
		               .self = rank->rank / 2,
		               .count_of_members = 2,
		               .ranks = sorted[rank->rank % 2],
		               .count = 7,
		               .source = source,
		               .target = target };

	for (uint32_t round = 0; round < 3; round++) {
		zinf_group groups[2];
		int32_t member;

		for (uint32_t i = 0; i < 2; i++)
			coll_must(rank, 0,
			          zinf_coll_group(rank->zinf, halves[i], 2, NULL, &groups[i]));
		scene.options.group = groups[rank->rank % 2];
		coll_must(rank, 0, zinf_coll_group_rank(rank->zinf, scene.options.group, &member));
		coll_check(rank, member == (int32_t)scene.self);
		coll_check(rank, groups[!(rank->rank % 2)] == ZINF_GROUP_NONE);
		for (uint32_t i = 0; i < 50; i++)
			if (join(&scene) || gather(&scene) || spread(&scene) || pass(&scene))
				return 1;
		scene.options.group = groups[!(rank->rank % 2)];
		coll_must(rank, -EPERM, zinf_coll_barrier(rank->zinf, &scene.options));
		for (uint32_t i = 0; i < 2; i++)
			coll_must(rank, 0, zinf_coll_group_free(rank->zinf, groups[i]));
	}
	return 0;
}

Test(coll, groups_work_side_by_side)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 4, groups_at_once);
	coll_close_scene(&scene);
}

static int groups_of_other_members(struct coll_rank *rank)
{
	const uint32_t ranks[2] = { 0, rank->rank }; /* rank 0 names itself twice: here */
	zinf_group group;
	int r = zinf_coll_group(rank->zinf, ranks, rank->rank ? 2 : 1, NULL, &group);

	coll_check(rank, r == -EINVAL);
	coll_text(rank, "rank");
	return 0;
}

Test(coll, ranks_that_name_different_members_are_told)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 2, groups_of_other_members);
	coll_close_scene(&scene);
}

/* ---- tickets ---- */

#define TICKETS 40u

static int many_tickets(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_ticket tickets[TICKETS];
	float *data[TICKETS];

	for (uint32_t i = 0; i < TICKETS; i++) {
		void *place;

		coll_must(rank, 0, zinf_coll_alloc(rank->zinf, 20000 * sizeof(float), &place));
		data[i] = place;
		for (uint32_t k = 0; k < 20000; k++)
			data[i][k] = (float)(rank->rank + i + k % 100);
		options.ret_ticket = &tickets[i];
		coll_must(rank, 0,
		          zinf_coll_all_reduce(rank->zinf, data[i], data[i], 20000, ZINF_F32,
		                               ZINF_AVG, &options));
	}
	for (uint32_t n = 0; n < TICKETS; n++) {
		uint32_t i = rank->rank % 2 ? n : TICKETS - 1 - n; /* waited for as one likes */

		coll_must(rank, 0, zinf_wait(rank->zinf, tickets[i], NULL));
		for (uint32_t k = 0; k < 20000; k++)
			coll_check(rank, data[i][k] == (float)(rank->world - 1) / 2 +
			                                       (float)(i + k % 100));
	}
	/* What waits comes after what was begun before. */
	options.ret_ticket = &tickets[0];
	coll_must(rank, 0, zinf_coll_broadcast(rank->zinf, data[0], 20000, ZINF_F32, 0, &options));
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	coll_must(rank, 0, zinf_wait_for(rank->zinf, tickets[0], COLL_TIMEOUT_MS, NULL));
	return 0;
}

Test(coll, calls_with_tickets_go_on_by_themselves_in_their_order)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 2, many_tickets);
	coll_run(&scene, 3, many_tickets);
	coll_close_scene(&scene);
}

/* Rank 1 comes only when the test says so. */
static int wait_and_look(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_ticket barrier, unposted, message;
	bool is_done = true;
	int32_t value = 4711;

	if (rank->rank) {
		coll_must(rank, 0, coll_await(rank));
		coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
		coll_must(rank, 0, coll_await(rank));
		coll_must(rank, 0, zinf_coll_send(rank->zinf, &value, 1, ZINF_I32, 0, NULL));
		return 0;
	}
	options.ret_ticket = &barrier;
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, &options));
	options.ret_ticket = &unposted;
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, &options));
	/* Until the barrier is posted nobody is late for it. */
	do
		coll_must(rank, -ETIMEDOUT, zinf_wait_for(rank->zinf, barrier, 20, NULL));
	while (!strstr(zinf_error_text(rank->zinf), "come"));
	coll_text(rank, "barrier of group 0 is not over within 0.02 s: rank 1 has not come");
	coll_must(rank, 0, zinf_test(rank->zinf, barrier, &is_done));
	coll_check(rank, !is_done);
	coll_must(rank, -EBUSY, zinf_cancel(rank->zinf, barrier));
	coll_must(rank, 0, zinf_cancel(rank->zinf, unposted));
	coll_must(rank, -ECANCELED, zinf_wait(rank->zinf, unposted, NULL));
	coll_must(rank, 0, coll_tell(rank));
	coll_must(rank, 0, zinf_wait(rank->zinf, barrier, NULL));
	value = 0;
	options.ret_ticket = &message;
	coll_must(rank, 0, zinf_coll_recv(rank->zinf, &value, 1, ZINF_I32, 1, &options));
	coll_must(rank, -ETIMEDOUT, zinf_wait_for(rank->zinf, message, 20, NULL));
	coll_text(rank, "messages of group 0 with rank 1 are not over within 0.02 s");
	coll_must(rank, 0, coll_tell(rank));
	coll_must(rank, 0, zinf_wait(rank->zinf, message, NULL));
	coll_check(rank, value == 4711);
	return 0;
}

Test(coll, a_ticket_is_looked_at_and_cancelled_while_others_have_not_heard_of_it)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_start(&scene, 2, wait_and_look);
	for (uint32_t i = 0; i < 2; i++) {
		coll_hear(&scene, 1);
		coll_let_go(&scene, 1);
	}
	for (uint32_t i = 0; i < 2; i++)
		coll_join_one(&scene, i, 0);
	coll_close_scene(&scene);
}
