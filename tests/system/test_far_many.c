/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: six and eight nodes are as good as two: every operation and messages between all pairs are
 * right, a node that goes is named on each of the others, and the job starts again; and a zinf-net
 * asks for memory as its nodes need it. Method: as many daemons on the loopback interface, with one
 * rank each.
 */
#include "tests/system/far.h"

TestSuite(far_many, .timeout = 240);

#define COUNT    70001u /* elements of a block: more than travels with a post, in several pieces */
#define PATIENCE 20000u

static int32_t source[FAR_NODES_MAX][COUNT], target[FAR_NODES_MAX][COUNT];

static int32_t value_of(uint32_t from, uint32_t to, uint32_t index)
{
	return (int32_t)((from * FAR_NODES_MAX + to) * 40503u + index * 2654435761u);
}

static void fill(const struct far_rank *rank)
{
	for (uint32_t to = 0; to < rank->world; to++)
		for (uint32_t i = 0; i < COUNT; i++)
			source[to][i] = value_of(rank->rank, to, i);
	memset(target, 0, sizeof(target));
}

/* Whether block @from of the target is what that rank has for @to. */
static bool is_right(uint32_t from, uint32_t to)
{
	for (uint32_t i = 0; i < COUNT; i++)
		if (target[from][i] != value_of(from, to, i))
			return false;
	return true;
}

/* ---- what arrives ---- */

/* Every pair at once, both ways. */
static int send_all(struct far_rank *rank)
{
	struct zinf_coll_p2p all[2 * FAR_NODES_MAX];
	uint32_t count = 0;
	int r;

	fill(rank);
	for (uint32_t i = 0; i < rank->world; i++) {
		if (i == rank->rank)
			continue;
		all[count++] = (struct zinf_coll_p2p){ .is_send = 1,
			                               .peer = i,
			                               .data = source[i],
			                               .count = COUNT,
			                               .dtype = ZINF_I32 };
		all[count++] = (struct zinf_coll_p2p){
			.peer = i, .data = target[i], .count = COUNT, .dtype = ZINF_I32
		};
	}
	r = zinf_coll_batch(rank->zinf, all, count, NULL);
	for (uint32_t i = 0; i < rank->world && !r; i++)
		if (i != rank->rank && !is_right(i, rank->rank))
			return 11;
	return r ? far_note(rank, r), 10 : 0;
}

static int exchange_all(struct far_rank *rank)
{
	uint32_t root = rank->world - 1;
	int r;

	fill(rank);
	r = zinf_coll_all_to_all(rank->zinf, source, target, COUNT, ZINF_I32, NULL);
	for (uint32_t i = 0; i < rank->world && !r; i++)
		if (!is_right(i, rank->rank))
			return 21;
	r = r ? r : zinf_coll_all_gather(rank->zinf, source[0], target, COUNT, ZINF_I32, NULL);
	for (uint32_t i = 0; i < rank->world && !r; i++)
		if (!is_right(i, 0))
			return 22;
	memset(target, 0, sizeof(target));
	memcpy(target[root], source[1], sizeof(source[1]));
	r = r ? r : zinf_coll_broadcast(rank->zinf, target[root], COUNT, ZINF_I32, root, NULL);
	if (!r && !is_right(root, 1))
		return 23;
	return r ? far_note(rank, r), 20 : 0;
}

static int do_all(struct far_rank *rank)
{
	int r = exchange_all(rank);

	r = r ? r : send_all(rank);
	return r ? r : far_sum_once(rank);
}

/* ---- who goes ---- */

/* Messages round a ring, and a sum, until one fails. */
static int go_round_until_error(struct far_rank *rank)
{
	uint32_t next = (rank->rank + 1) % rank->world;
	uint32_t former = (rank->rank + rank->world - 1) % rank->world;
	const struct zinf_coll_p2p both[] = {
		{ .is_send = 1, .peer = next, .data = source, .count = COUNT, .dtype = ZINF_I32 },
		{ .peer = former, .data = target, .count = COUNT, .dtype = ZINF_I32 },
	};
	float sum = 1;
	int r = 0;

	for (uint32_t round = 0; !r; round++) {
		uint64_t begin_ns = zi_clock_now_ns();

		r = zinf_coll_batch(rank->zinf, both, 2, NULL);
		sum = 1;
		r = r ? r
		      : zinf_coll_all_reduce(rank->zinf, &sum, &sum, 1, ZINF_F32, ZINF_SUM, NULL);
		rank->scene->shared->reports[rank->rank].took_ms =
			(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
		if (!r && sum != (float)rank->world)
			return 31;
		if (round == 0)
			far_tell(rank);
	}
	(void)far_note(rank, r);
	return 0;
}

/* @gone: node, and rank, that is killed. */
static void kill_one(struct far_scene *scene, uint32_t gone)
{
	char name[32];

	far_start(scene, go_round_until_error);
	far_hear(scene, far_world(scene));
	harness_kill(&scene->harness[gone]);
	(void)snprintf(name, sizeof(name), "node %u (", gone); /* Fits. */
	for (uint32_t i = 0; i < far_world(scene); i++) {
		far_join_one(scene, i, 0);
		if (i == gone)
			continue; /* What it met is its daemon's end. */
		far_expect_error(scene, i, -EPIPE, name);
		cr_expect_lt(scene->shared->reports[i].took_ms, PATIENCE);
	}
	far_start_node(scene, gone, true);
	far_run(scene, do_all);
}

static void play(uint32_t node_count)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, node_count, 1);
	far_run(&scene, do_all);
	kill_one(&scene, node_count / 2);
	kill_one(&scene, 0); /* which serves the store */
	far_close_scene(&scene);
}

Test(far_many, six_nodes)
{
	play(6);
}

Test(far_many, eight_nodes)
{
	play(8);
}

/* ---- memory ---- */

#ifdef ZI_SANITIZED
#define SKIP_SANITIZED() cr_skip_test("a sanitizer's own memory is no measure of zinf-net's")
#else
#define SKIP_SANITIZED() ((void)0)
#endif

/* What @pid may write and nobody else sees, touched or not: where memory is not overcommitted
 * (vm.overcommit_memory = 2) all of it counts. */
static uint64_t private_bytes(pid_t pid)
{
	unsigned long kib = 0;
	char path[64], line[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid); /* Fits. */
	file = fopen(path, "r");
	cr_assert(file);
	while (fgets(line, sizeof(line), file) && sscanf(line, "VmData: %lu kB", &kib) != 1)
		;
	(void)fclose(file);
	cr_assert_gt(kib, 0);
	return (uint64_t)kib * 1024;
}

Test(far_many, two_nodes_need_little_memory)
{
	struct far_scene scene;

	SKIP_SANITIZED();
	far_open_on_loopback(&scene, 2, 1);
	far_start(&scene, far_sum_until_told);
	far_hear(&scene, 2);
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t bytes = private_bytes(far_child_of(scene.harness[i].pid, "zinf-net"));

		/* Rings of some MiB for each piece under way, and threads' stacks of 8 MiB. */
		cr_expect_lt(bytes, 160u << 20, "node %u: %lu bytes", i, (unsigned long)bytes);
	}
	__atomic_store_n(&scene.shared->is_over, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < 2; i++)
		far_join_one(&scene, i, 0);
	far_close_scene(&scene);
}
