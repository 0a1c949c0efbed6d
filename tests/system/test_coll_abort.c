/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a member that aborts a group ends every other member's calls at once, those under way and
 * those to come, with its name and reason, and no other group; and whoever gives no deadline waits
 * as long as the call, the group, the job or the daemon's configuration says, in that order.
 * Method: ranks as processes of a real zinfd (coll.h).
 */
#include "tests/system/coll.h"

TestSuite(coll_abort, .timeout = 120);

#define SHORT_MS 300u

static int sum(struct coll_rank *rank, zinf_group group, uint32_t timeout_ms)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	int32_t data = 1;

	options.group = group;
	options.timeout_ms = timeout_ms;
	return zinf_coll_all_reduce(rank->zinf, &data, &data, 1, ZINF_I32, ZINF_SUM, &options);
}

#define coll_aborted(self, call)                                       \
	do {                                                           \
		coll_must(self, -ECONNABORTED, call);                  \
		coll_text(self, "rank 2 (pid ");                       \
		coll_text(self, "aborted group 0: batch 7 holds NaN"); \
	} while (0)

/* Rank 0 waits in a sum, rank 1 in a message, rank 3 for a ticket; rank 2 calls it off. */
static int one_aborts(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_group odd, again;
	zinf_ticket ticket;
	int32_t data = 0;

	coll_must(rank, 0, zinf_coll_group(rank->zinf, (uint32_t[]){ 1, 3 }, 2, NULL, &odd));
	options.ret_ticket = &ticket;
	if (rank->rank == 3)
		coll_must(rank, 0,
		          zinf_coll_all_reduce(rank->zinf, &data, &data, 1, ZINF_I32, ZINF_SUM,
		                               &options));
	if (rank->rank == 2) {
		coll_must(rank, -EPERM, zinf_coll_abort(rank->zinf, odd, "not a member"));
		coll_must(rank, -EINVAL, zinf_coll_abort(rank->zinf, 9, "none"));
		coll_must(rank, 0, coll_await(rank)); /* until the others are about to wait */
		coll_must(rank, 0,
		          zinf_coll_abort(rank->zinf, ZINF_GROUP_WORLD, "batch 7 holds NaN"));
		coll_must(rank, 0, zinf_coll_abort(rank->zinf, ZINF_GROUP_WORLD, NULL));
	} else {
		coll_must(rank, 0, coll_tell(rank));
	}
	if (rank->rank == 1)
		coll_aborted(rank, zinf_coll_recv(rank->zinf, &data, 1, ZINF_I32, 2, NULL));
	if (rank->rank == 3)
		coll_aborted(rank, zinf_wait(rank->zinf, ticket, NULL));
	coll_aborted(rank, sum(rank, ZINF_GROUP_WORLD, 0));
	coll_aborted(rank, zinf_coll_barrier(rank->zinf, NULL));
	if (rank->rank % 2)
		coll_must(rank, 0, sum(rank, odd, 0));
	coll_must(rank, 0,
	          zinf_coll_group(rank->zinf, (uint32_t[]){ 0, 1, 2, 3 }, 4, NULL, &again));
	coll_must(rank, 0, sum(rank, again, 0));
	return 0;
}

Test(coll_abort, all_members_hear_at_once_who_and_why_and_a_new_group_goes_on)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run_and_let_go(&scene, 4, one_aborts, 3);
	coll_close_scene(&scene);
}

/* ---- how long a call waits ---- */

/* Rank 1 never comes. */
static int one_stays_away(struct coll_rank *rank)
{
	struct zinf_group_options options = ZINF_GROUP_OPTIONS_INIT;
	zinf_group quick, slow;

	options.timeout_ms = SHORT_MS;
	coll_must(rank, 0, zinf_coll_group(rank->zinf, (uint32_t[]){ 0, 1 }, 2, &options, &quick));
	coll_must(rank, 0, zinf_coll_group(rank->zinf, (uint32_t[]){ 0, 1 }, 2, NULL, &slow));
	if (rank->rank == 1)
		return coll_await(rank);
	coll_must(rank, -ETIMEDOUT, sum(rank, quick, 0));
	coll_text(rank, "within 0.3 s");
	coll_must(rank, -ETIMEDOUT, sum(rank, slow, 200));
	coll_text(rank, "within 0.2 s");
	coll_must(rank, -ETIMEDOUT, sum(rank, ZINF_GROUP_WORLD, 0));
	coll_text(rank, rank->scene->timeout_ms ? "within 0.9 s" : "within 1 s");
	return coll_tell(rank);
}

Test(coll_abort, the_configurations_deadline_counts_where_nobody_gives_another)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	cr_assert_eq(harness_halt(&scene.harness), 0);
	scene.harness.options.daemon_extra = "coll_timeout_s = 1\n";
	cr_assert_eq(harness_restart(&scene.harness), 0);
	for (uint32_t round = 0; round < 2; round++) {
		scene.incarnation = round ? "second" : "first";
		scene.timeout_ms = round ? 900 : 0;
		coll_start(&scene, 2, one_stays_away);
		coll_hear(&scene, 1);
		coll_let_go(&scene, 1);
		coll_join_one(&scene, 0, 0);
		coll_join_one(&scene, 1, 0);
	}
	coll_close_scene(&scene);
}
