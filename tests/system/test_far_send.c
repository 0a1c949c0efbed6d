/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: messages between ranks on different nodes: what arrives is what was sent, in its order,
 * whatever else goes on; a peer that takes another size, does not come, dies, or whose worker or
 * daemon dies is named on both sides. Method: two or three daemons on the loopback interface with
 * two ranks each; tests/coll compares random messages with a model.
 */
#include "tests/system/far.h"

TestSuite(far_send, .timeout = 240);

#define SHORT_MS 2000u
#define LATE_MS  15000u
/* More pieces than a pair of members has letters. */
#define LONG_COUNT 700001u

static int32_t *new_values(uint32_t seed)
{
	int32_t *values = malloc(LONG_COUNT * sizeof(*values));

	for (uint32_t i = 0; values && i < LONG_COUNT; i++)
		values[i] = (int32_t)(i * 2654435761u + seed);
	return values;
}

static bool are_values(const int32_t *values, uint32_t seed)
{
	for (uint32_t i = 0; i < LONG_COUNT; i++)
		if (values[i] != (int32_t)(i * 2654435761u + seed))
			return false;
	return true;
}

/* Who leaves while others are not done breaks the group. */
static int leave_together(struct far_rank *rank)
{
	int r = zinf_coll_barrier(rank->zinf, NULL);

	return r ? far_fail(rank, r, 9) : 0;
}

/* ---- what arrives ---- */

/* Round a ring of all ranks, whose neighbours are near and far: nothing, one, many. */
static int go_round(struct far_rank *rank)
{
	uint32_t next = (rank->rank + 1) % rank->world;
	uint32_t former = (rank->rank + rank->world - 1) % rank->world;
	_cleanup_(zi_freep) int32_t *source = new_values(rank->rank);
	_cleanup_(zi_freep) int32_t *target = new_values(~0u);
	static const uint64_t counts[] = { 0, 1, 250, LONG_COUNT };

	for (uint32_t i = 0; i < ZI_COUNT_OF(counts); i++) {
		const struct zinf_coll_p2p both[] = {
			{ .is_send = 1,
			  .peer = next,
			  .data = source,
			  .count = counts[i],
			  .dtype = ZINF_I32 },
			{ .peer = former, .data = target, .count = counts[i], .dtype = ZINF_I32 },
		};
		int r = zinf_coll_batch(rank->zinf, both, 2, NULL);

		if (r)
			return far_fail(rank, r, 1);
		if (counts[i] &&
		    target[counts[i] - 1] != (int32_t)((counts[i] - 1) * 2654435761u + former))
			return 2;
	}
	if (!are_values(target, former))
		return 3;
	/* Without a batch: the even ones send first. */
	for (uint32_t turn = 0; turn < 2; turn++) {
		int r = rank->rank % 2 == turn ? zinf_coll_send(rank->zinf, source, LONG_COUNT,
		                                                ZINF_I32, next, NULL)
		                               : zinf_coll_recv(rank->zinf, target, LONG_COUNT,
		                                                ZINF_I32, former, NULL);

		if (r)
			return far_fail(rank, r, 4);
	}
	if (!are_values(target, former))
		return 5;
	return leave_together(rank);
}

Test(far_send, messages_of_any_length_go_round_all_nodes)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	for (uint32_t i = 0; i < 2; i++)
		far_run(&scene, go_round);
	far_close_scene(&scene);
}

/* Rank 0 sends to rank 2 what that one takes only after a sum of all: neither waits for the other.
 * Messages of other pairs, and later ones, go on meanwhile. */
static int cross(struct far_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	_cleanup_(zi_freep) int32_t *values = new_values(7);
	_cleanup_(zi_freep) int32_t *others = new_values(~0u);
	zinf_ticket tickets[3];
	int32_t small[3] = { 1, 2, 3 };
	float sum = 1;
	int r = 0;

	for (uint32_t i = 0; i < 3 && rank->rank == 0 && !r; i++) {
		options.ret_ticket = &tickets[i];
		r = zinf_coll_send(rank->zinf, i == 0 ? values : &small[i], i == 0 ? LONG_COUNT : 1,
		                   ZINF_I32, 2, &options);
	}
	if (r)
		return far_fail(rank, r, 1);
	if (rank->rank == 1)
		r = zinf_coll_send(rank->zinf, small, 3, ZINF_I32, 3, NULL);
	if (rank->rank == 3)
		r = zinf_coll_recv(rank->zinf, others, 3, ZINF_I32, 1, NULL);
	r = r ? r : zinf_coll_all_reduce(rank->zinf, &sum, &sum, 1, ZINF_F32, ZINF_SUM, NULL);
	if (r || sum != (float)rank->world)
		return far_fail(rank, r, 2);
	if (rank->rank == 2) {
		r = zinf_coll_recv(rank->zinf, others, LONG_COUNT, ZINF_I32, 0, NULL);
		if (r || !are_values(others, 7))
			return far_fail(rank, r, 3);
		for (int32_t i = 1; i < 3; i++) {
			r = zinf_coll_recv(rank->zinf, others, 1, ZINF_I32, 0, NULL);
			if (r || others[0] != i + 1)
				return far_fail(rank, r, 4);
		}
	}
	for (uint32_t i = 0; i < 3 && rank->rank == 0; i++) {
		r = zinf_wait(rank->zinf, tickets[i], NULL);
		if (r)
			return far_fail(rank, r, 5);
	}
	return leave_together(rank);
}

Test(far_send, messages_and_calls_do_not_wait_for_each_other)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_run(&scene, cross);
	far_close_scene(&scene);
}

/* ---- what is wrong with a message ---- */

static int differ(struct far_rank *rank)
{
	_cleanup_(zi_freep) int32_t *values = new_values(rank->rank);
	int r = 0;

	/* One element more or less, short and long; another type; then right. */
	for (uint32_t i = 0; i < 4; i++) {
		static const uint64_t sent[] = { 4, LONG_COUNT, 4, LONG_COUNT };
		static const uint64_t taken[] = { 5, LONG_COUNT - 1, 4, LONG_COUNT };
		const char *says = i == 0   ? "from member 0 to member 2: 4 × i32 are sent and "
		                              "5 × i32 taken"
		                   : i == 1 ? "700001 × i32 are sent and 700000 × i32 taken"
		                            : "4 × i32 are sent and 4 × f32 taken";

		if (rank->rank == 0)
			r = zinf_coll_send(rank->zinf, values, sent[i], ZINF_I32, 2, NULL);
		else if (rank->rank == 2)
			r = zinf_coll_recv(rank->zinf, values, taken[i],
			                   i == 2 ? ZINF_F32 : ZINF_I32, 0, NULL);
		else
			break;
		if (i < 3 && (r != -EINVAL || !strstr(zinf_error_text(rank->zinf), says)))
			return far_fail(rank, r, 1);
		if (i == 3 && (r || !are_values(values, 0)))
			return far_fail(rank, r, 2);
	}
	if (zinf_coll_send(rank->zinf, values, 1, ZINF_I32, 4, NULL) != -EINVAL ||
	    !strstr(zinf_error_text(rank->zinf), "peer 4 of a group of 4 members"))
		return 3;
	return far_sum_once(rank);
}

Test(far_send, a_message_of_another_size_is_an_error_of_both_and_the_group_stands)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_run(&scene, differ);
	far_close_scene(&scene);
}

/* ---- who does not come, and who dies ---- */

/* The last rank waits until it is killed; rank 0 sends to it, or takes from it, and the others are
 * in a call of all that has more time. What they met is the report. */
static int wait_for_last(struct far_rank *rank, bool is_send)
{
	struct zinf_coll_options patient = ZINF_COLL_OPTIONS_INIT;
	struct zinf_coll_options own = ZINF_COLL_OPTIONS_INIT;
	_cleanup_(zi_freep) int32_t *values = new_values(0);
	uint64_t begin_ns;
	int r;

	r = zinf_coll_barrier(rank->zinf, NULL);
	if (r)
		return far_fail(rank, r, 1);
	far_tell(rank);
	if (rank->rank == rank->world - 1)
		(void)pause(); /* Until it is killed. */
	begin_ns = zi_clock_now_ns();
	patient.timeout_ms = 2 * LATE_MS;
	own.timeout_ms = rank->scene->call_ms;
	if (rank->rank)
		r = zinf_coll_barrier(rank->zinf, &patient);
	else if (is_send)
		r = zinf_coll_send(rank->zinf, values, LONG_COUNT, ZINF_I32, rank->world - 1, &own);
	else
		r = zinf_coll_recv(rank->zinf, values, 3, ZINF_I32, rank->world - 1, &own);
	rank->scene->shared->reports[rank->rank].took_ms =
		(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
	(void)far_note(rank, r);
	return zinf_coll_barrier(rank->zinf, NULL) == r ? 0 : 2; /* It stays broken. */
}

static int send_to_last(struct far_rank *rank)
{
	return wait_for_last(rank, true);
}

static int take_from_last(struct far_rank *rank)
{
	return wait_for_last(rank, false);
}

Test(far_send, a_peer_that_does_not_come_is_named_on_all_nodes)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t i = 0; i < 2; i++) {
		char name[64];

		scene.call_ms = SHORT_MS;
		far_start(&scene, i ? take_from_last : send_to_last);
		far_hear(&scene, 4);
		(void)snprintf(name, sizeof(name), "rank 3 (pid %d) did not come within 2",
		               scene.pids[3]);
		for (uint32_t k = 0; k < 3; k++) {
			far_join_one(&scene, k, 0);
			far_expect_error(&scene, k, -ETIMEDOUT, name);
			far_expect_error(&scene, k, -ETIMEDOUT,
			                 i ? "recv (i32 x 3, from rank 3)"
			                   : "send (i32 x 700001, to rank 3)");
			cr_expect_lt(scene.shared->reports[k].took_ms, SHORT_MS + LATE_MS);
		}
		cr_assert_eq(kill(scene.pids[3], SIGKILL), 0);
		far_join_one(&scene, 3, 1000 + SIGKILL);
	}
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

/* ---- who stops amid a message ---- */

/* Rank 0 sends to the last rank, or takes from it, in a short time, and is stopped as soon as it
 * waits; then the other one, who has more time, begins: it is rank 0's turn again. */
static int stop_amid(struct far_rank *rank, bool is_send)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	_cleanup_(zi_freep) int32_t *values = new_values(0);
	uint32_t peer = rank->rank ? 0 : rank->world - 1;
	int r = zinf_coll_barrier(rank->zinf, NULL);

	if (r)
		return far_fail(rank, r, 1);
	options.timeout_ms = rank->rank ? 4 * LATE_MS : 2 * SHORT_MS;
	if (rank->rank == 0)
		far_tell(rank);
	if (rank->rank)
		far_await(rank, 1);
	if (rank->rank && rank->rank != rank->world - 1)
		r = zinf_coll_barrier(rank->zinf, &options);
	else if (is_send == !rank->rank)
		r = zinf_coll_send(rank->zinf, values, LONG_COUNT, ZINF_I32, peer, &options);
	else
		r = zinf_coll_recv(rank->zinf, values, LONG_COUNT, ZINF_I32, peer, &options);
	(void)far_note(rank, r);
	return 0;
}

static int stop_sender(struct far_rank *rank)
{
	return stop_amid(rank, true);
}

static int stop_receiver(struct far_rank *rank)
{
	return stop_amid(rank, false);
}

/* Until @pid, which does nothing else, waits for others. */
static void await_sleep(pid_t pid)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(FAR_JOIN_MS * ZI_NS_PER_MS);
	char path[64], line[300], state = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid); /* Fits. */
	while (state != 'S') {
		FILE *file = fopen(path, "r");

		cr_assert(file);
		cr_assert(fgets(line, sizeof(line), file));
		cr_assert_eq(sscanf(strrchr(line, ')'), ") %c", &state), 1);
		(void)fclose(file);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "it goes on");
	}
}

Test(far_send, who_stops_amid_a_message_is_named_though_its_peer_has_more_time)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t i = 0; i < 2; i++) {
		char name[64];

		far_start(&scene, i ? stop_receiver : stop_sender);
		far_hear(&scene, 1);
		await_sleep(scene.pids[0]);
		cr_assert_eq(kill(scene.pids[0], SIGSTOP), 0);
		far_raise(&scene, 1);
		(void)snprintf(name, sizeof(name), "rank 0 (pid %d) did not come within 4",
		               scene.pids[0]);
		for (uint32_t k = 1; k < 4; k++) {
			far_join_one(&scene, k, 0);
			far_expect_error(&scene, k, -ETIMEDOUT, name);
		}
		cr_assert_eq(kill(scene.pids[0], SIGKILL), 0);
		far_join_one(&scene, 0, 1000 + SIGKILL);
	}
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

Test(far_send, a_peer_that_dies_is_named_on_all_nodes_at_once)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t i = 0; i < 2; i++) {
		char name[32];

		far_start(&scene, i ? take_from_last : send_to_last);
		far_hear(&scene, 4);
		(void)snprintf(name, sizeof(name), "rank 3 (pid %d)", scene.pids[3]);
		cr_assert_eq(kill(scene.pids[3], SIGKILL), 0);
		far_join_one(&scene, 3, 1000 + SIGKILL);
		for (uint32_t k = 0; k < 3; k++) {
			far_join_one(&scene, k, 0);
			far_expect_error(&scene, k, -EPIPE, name);
			cr_expect_lt(scene.shared->reports[k].took_ms, LATE_MS);
		}
	}
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

/* Messages from every node to every other until one fails, which is the report. */
static int send_until_error(struct far_rank *rank)
{
	uint32_t peer = (rank->rank + rank->world / 2) % rank->world;
	_cleanup_(zi_freep) int32_t *source = new_values(rank->rank);
	_cleanup_(zi_freep) int32_t *target = new_values(0);
	const struct zinf_coll_p2p both[] = {
		{ .is_send = 1,
		  .peer = peer,
		  .data = source,
		  .count = LONG_COUNT,
		  .dtype = ZINF_I32 },
		{ .peer = peer, .data = target, .count = LONG_COUNT, .dtype = ZINF_I32 },
	};
	int r = 0;

	for (uint32_t round = 0; !r; round++) {
		uint64_t begin_ns = zi_clock_now_ns();

		r = zinf_coll_batch(rank->zinf, both, 2, NULL);
		rank->scene->shared->reports[rank->rank].took_ms =
			(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
		if (round == 0)
			far_tell(rank);
	}
	(void)far_note(rank, r);
	return 0;
}

static void expect_all(struct far_scene *scene, uint32_t first, const char *part)
{
	for (uint32_t i = first; i < first + 2; i++) {
		far_join_one(scene, i, 0);
		far_expect_error(scene, i, -EPIPE, part);
		cr_expect_lt(scene->shared->reports[i].took_ms, LATE_MS);
	}
}

Test(far_send, a_killed_worker_or_daemon_is_named_amid_messages)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t node = 0; node < 2; node++) {
		char name[32];
		pid_t worker;

		(void)snprintf(name, sizeof(name), "node %u (", node);
		far_start(&scene, send_until_error);
		far_hear(&scene, 4);
		worker = far_child_of(scene.harness[node].pid, "zinf-net");
		cr_assert_gt(worker, 0);
		cr_assert_eq(kill(worker, SIGKILL), 0);
		expect_all(&scene, 2 * node, "was killed by signal 9");
		expect_all(&scene, 2 - 2 * node, name);
		far_run(&scene, far_sum_once);

		far_start(&scene, send_until_error);
		far_hear(&scene, 4);
		harness_kill(&scene.harness[node]);
		expect_all(&scene, 2 - 2 * node, name);
		for (uint32_t i = 2 * node; i < 2 * node + 2; i++)
			far_join_one(&scene, i, 0);
		far_start_node(&scene, node, true);
		far_run(&scene, far_sum_once);
	}
	far_close_scene(&scene);
}
