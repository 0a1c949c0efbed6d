/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks on several nodes materialize one model and wait for each other; what differs, and who
 * is late or dies, is told by name on all nodes. Calls on optimizer state are refused there.
 * Method: daemons on the loopback interface, whose workers talk over Gloo; ranks that have opened
 * collectives have met.
 */
#include "tests/system/far.h"

TestSuite(far_state, .timeout = 240);

static int make_model(struct far_rank *rank, uint64_t columns)
{
	const uint64_t shape[] = { 64, columns };
	uint32_t unit, param;
	int r = zinf_unit_add(rank->zinf, "block", &unit);

	r = r ? r : zinf_param_add(rank->zinf, "block.w", 2, shape, &param);
	return r ? r : zinf_materialize(rank->zinf);
}

static int come_together(struct far_rank *rank)
{
	int r = make_model(rank, 32);

	for (uint32_t i = 0; i < 100 && !r; i++)
		r = zinf_barrier(rank->zinf);
	return r ? far_fail(rank, r, 5) : 0;
}

Test(far_state, ranks_of_all_nodes_come_together)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	far_run(&scene, come_together);
	far_run(&scene, come_together);
	far_close_scene(&scene);
}

static int write_values(struct far_rank *rank)
{
	const uint64_t shape[] = { 1000, 3000 };
	uint32_t unit, param;
	int r = zinf_unit_add(rank->zinf, "block", &unit);
	const float *data;

	r = r ? r : zinf_param_add(rank->zinf, "block.w", 2, shape, &param);
	r = r ? r : zinf_materialize(rank->zinf);
	for (uint32_t root = 0; root < rank->world && !r; root++) {
		if (rank->rank == root) {
			r = zinf_param_write_begin(rank->zinf, unit);
			float *mine = r ? NULL : (float *)zinf_param_data(rank->zinf, param);
			for (uint32_t i = 0; i < 3000000 && !r; i++)
				mine[i] = (float)(i + root);
		}
		r = r ? r : zinf_param_write_end(rank->zinf, unit, root);
		data = zinf_param_data(rank->zinf, param);
		for (uint32_t i = 0; i < 3000000 && !r; i++)
			if (data[i] != (float)(i + root))
				return far_fail(rank, -1, 6);
	}
	r = r ? r : zinf_commit(rank->zinf, NULL, 0);
	return r ? far_fail(rank, r, 5) : 0;
}

Test(far_state, values_are_those_of_all_nodes)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	far_run(&scene, write_values);
	far_close_scene(&scene);
}

/* Return: whether a call was refused as one over several nodes. */
static bool is_refused(const struct far_rank *rank, int r)
{
	return r == -EOPNOTSUPP && strstr(zinf_error_text(rank->zinf), "over several nodes");
}

static int use_state(struct far_rank *rank)
{
	static float values[64 * 32];
	struct zinf *zinf = rank->zinf;
	int r = make_model(rank, 32);

	r = r ? r : zinf_commit(zinf, NULL, 0);
	if (r)
		return far_fail(rank, r, 5);
	r = zinf_state_read(zinf, 0, ZINF_STATE_EXP_AVG, values, 64 * 32);
	if (!is_refused(rank, r))
		return far_fail(rank, r, 6);
	r = zinf_state_write(zinf, 0, ZINF_STATE_EXP_AVG, values, 64 * 32, 0);
	if (!is_refused(rank, r))
		return far_fail(rank, r, 7);
	r = zinf_update_count_set(zinf, 5, 0.9, 0.999);
	if (!is_refused(rank, r))
		return far_fail(rank, r, 8);
	r = rank->rank == 0 ? zinf_param_write_begin(zinf, 0) : 0;
	if (r)
		return far_fail(rank, r, 9);
	r = zinf_param_write_keep(zinf, 0, 0);
	if (!is_refused(rank, r))
		return far_fail(rank, r, 10);
	r = zinf_param_write_end(zinf, 0, 0);
	r = r ? r : zinf_commit(zinf, NULL, 0);
	return r ? far_fail(rank, r, 11) : 0;
}

Test(far_state, optimizer_state_is_refused_and_the_job_goes_on)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_run(&scene, use_state);
	far_close_scene(&scene);
}

static int differ(struct far_rank *rank)
{
	int r = make_model(rank, rank->rank == 3 || rank->rank == 2 ? 33 : 32);

	return r ? far_fail(rank, r, 5) : 0;
}

Test(far_state, models_that_differ_are_named)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_start(&scene, differ);
	for (uint32_t i = 0; i < 4; i++) {
		far_join_one(&scene, i, 5);
		far_expect_error(&scene, i, -EINVAL, "'block.w' (64,33)");
	}
	far_close_scene(&scene);
}

static int die(struct far_rank *rank)
{
	int r = make_model(rank, 32);

	if (!r && rank->rank == 1) {
		far_tell(rank);
		for (;;)
			(void)pause();
	}
	r = r ? r : zinf_barrier(rank->zinf);
	return r ? far_fail(rank, r, 5) : 0;
}

Test(far_state, a_rank_that_is_killed_is_named)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 1);
	far_start(&scene, die);
	far_hear(&scene, 1);
	cr_assert_eq(kill(scene.pids[1], SIGKILL), 0);
	far_join_one(&scene, 0, 5);
	far_expect_error(&scene, 0, -EPIPE, "rank 1 (pid");
	(void)harness_wait(scene.pids[1], FAR_JOIN_MS);
	far_close_scene(&scene);
}

Test(far_state, a_rank_that_does_not_come_is_named)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 1);
	scene.timeout_ms = 3000;
	far_start(&scene, die);
	far_hear(&scene, 1);
	far_join_one(&scene, 0, 5);
	far_expect_error(&scene, 0, -ETIMEDOUT, "rank 1 (pid");
	cr_assert_eq(kill(scene.pids[1], SIGKILL), 0);
	(void)harness_wait(scene.pids[1], FAR_JOIN_MS);
	far_close_scene(&scene);
}

/* Nodes meet for training alone, and the last one does not come: who dies while the others wait is
 * told to the one that does, also where the store was on its node, and the next start finds all. */
Test(far_state, a_rank_that_dies_while_nodes_meet_is_named)
{
	for (uint32_t dead = 0; dead < 2; dead++) {
		struct far_scene scene;
		char words[32];

		far_open_on_loopback(&scene, 3, 1);
		scene.is_plain = true;
		for (uint32_t i = 0; i < 2; i++)
			far_start_one(&scene, i, come_together);
		for (uint32_t i = 0; i < 2; i++)
			far_await_child(scene.harness[i].pid, "zinf-net");
		cr_assert_eq(kill(scene.pids[dead], SIGKILL), 0);
		far_join_one(&scene, 1 - dead, 5);
		(void)snprintf(words, sizeof(words), "rank %u (pid %d) died", dead,
		               (int)scene.pids[dead]);
		far_expect_error(&scene, 1 - dead, -EPIPE, words);
		(void)harness_wait(scene.pids[dead], FAR_JOIN_MS);
		far_run(&scene, come_together);
		far_close_scene(&scene);
	}
}
