/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job over nodes that cannot meet is told where it was to, by name and figure, within its
 * deadline; the next start with the right place works. Method: two daemons on the loopback
 * interface, and places to meet that are no place: no name, nobody's address, somebody else's.
 */
#include "tests/system/far.h"

TestSuite(far_begin, .timeout = 240);

#define SHORT_MS 2000u
/* How much later than its deadline an error may come, on a crowded machine. */
#define LATE_MS 15000u

static int open_late(struct far_rank *rank)
{
	struct far_report *report = &rank->scene->shared->reports[rank->rank];
	uint64_t begin_ns = zi_clock_now_ns();
	int r = zinf_coll_open(rank->zinf, FAR_ARENA);

	report->took_ms = (zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
	return far_note(rank, r) ? 7 : 0;
}

/* All ranks of two nodes are to meet at @host, which does not go, and are told so with @part. */
static void meet_nowhere(const char *host, const char *part)
{
	struct far_scene scene = { .host = host, .namespaces = { -1, -1, -1, -1 } };

	far_need_net();
	far_open_scene(&scene, 2, 1);
	scene.is_plain = true;
	scene.timeout_ms = SHORT_MS;
	far_start(&scene, open_late);
	for (uint32_t i = 0; i < 2; i++) {
		const struct far_report *report = &scene.shared->reports[i];

		far_join_one(&scene, i, 7);
		cr_expect_lt(report->error, 0);
		cr_expect(strstr(report->text, part), "rank %u: '%s' is not in: %s", i, part,
		          report->text);
		cr_expect_lt(report->took_ms, SHORT_MS + LATE_MS);
	}
	scene.is_plain = false;
	scene.host = "127.0.0.1";
	scene.timeout_ms = 20000;
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

Test(far_begin, a_name_that_is_none_is_told)
{
	meet_nowhere("nobody.invalid", "nobody.invalid");
}

/* TEST-NET-1: no packet to it is ever answered. */
Test(far_begin, an_address_that_nobody_has_is_told)
{
	meet_nowhere("192.0.2.1", "192.0.2.1");
}

Test(far_begin, no_address_at_all_is_told)
{
	meet_nowhere("", "MASTER_ADDR");
}
