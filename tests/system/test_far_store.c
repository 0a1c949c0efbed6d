/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the end of the node that serves the store ends the groups that have members there, and no
 * others. Method: three daemons on the loopback interface, each a node with one rank.
 */
#include "tests/system/far.h"

TestSuite(far_store, .timeout = 240);

/* Until nobody listens where the store was. */
static bool await_no_store(const struct far_rank *rank)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_port = htons((uint16_t)rank->scene->port),
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	uint64_t deadline_ns = zi_clock_deadline_ns(FAR_JOIN_MS * ZI_NS_PER_MS);
	int r;

	do {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return false;
		r = connect(fd, (struct sockaddr *)&address, sizeof(address));
		close(fd);
	} while (!r && zi_clock_now_ns() < deadline_ns);
	return r != 0;
}

static int sum_in(struct far_rank *rank, zinf_group group)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	float value = 1, sum = 0;
	int r;

	options.group = group;
	r = zinf_coll_all_reduce(rank->zinf, &value, &sum, 1, ZINF_F32, ZINF_SUM, &options);
	(void)far_note(rank, r);
	return r ? r : sum != 2;
}

/* Rank 0 leaves, and with it the store. */
static int outlive_the_store(struct far_rank *rank)
{
	enum { ROUNDS = 2000 }; /* the watch sees the store's end during these, if not before */
	static const uint32_t both[] = { 1, 2 };
	zinf_group group;

	if (zinf_coll_group(rank->zinf, both, 2, NULL, &group))
		return far_fail(rank, -1, 1);
	if (zinf_coll_barrier(rank->zinf, NULL))
		return far_fail(rank, -1, 2);
	if (rank->rank == 0)
		return 0;
	while (!zinf_coll_barrier(rank->zinf, NULL))
		;
	if (!await_no_store(rank))
		return 3;
	for (uint32_t i = 0; i < ROUNDS; i++)
		if (sum_in(rank, group))
			return 4;
	/* Who is gone is seen without a store as well. */
	return rank->rank == 1 && sum_in(rank, group) != -EPIPE ? 5 : 0;
}

Test(far_store, groups_without_members_at_the_store_go_on_when_it_ends)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 1);
	far_run(&scene, outlive_the_store);
	cr_expect(strstr(scene.shared->reports[1].text, "node 1 ("), "%s",
	          scene.shared->reports[1].text);
	far_close_scene(&scene);
}
