/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what drives say of their health reaches the path that lies on them, and who wears out is
 * told of once. Method: a drive that says what the test likes (a double of nvme_smart_read()), the
 * thread "wear" as it is, and the shard's loop, turned by hand.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "daemon/daemon.h"
#include "daemon/tier/member.h"
#include "daemon/tier/tier.h"
#include "nvme/smart.h"
#include "tests/harness/patience.h"

#define FD_WORN   1000 /* never used but as a name */
#define FD_SILENT 1001
#define FD_OTHER  1002 /* of a store that is no path of a tier */

static struct config config;
static struct daemon node;
static char paths[3][8] = { "/worn", "/silent", "/other" };
static struct nvme_store stores[3] = {
	{ .name = "worn", .path = paths[0], .fd = FD_WORN, .bytes = 64 << 20, .uuid = { 1 } },
	{ .name = "silent", .path = paths[1], .fd = FD_SILENT, .bytes = 64 << 20, .uuid = { 2 } },
	{ .name = "other", .path = paths[2], .fd = FD_OTHER, .bytes = 64 << 20, .uuid = { 3 } },
};
static uint8_t used_percent;

/* A double: of the drives under the three. Context: the thread "wear". */
int nvme_smart_read(int fd, struct zi_text *text, struct nvme_smart *ret_smart)
{
	if (fd == FD_SILENT)
		return zi_text_error(text, -ENODEV, "not reported by this device");
	*ret_smart = (struct nvme_smart){ .used_percent = used_percent,
		                          .spare_percent = 100,
		                          .spare_threshold_percent = 10,
		                          .power_on_hours = 5 };
	return 0;
}

static void set_up(void)
{
	config_init(&config);
	config.wear_interval_s = 3600;
	for (uint32_t i = 0; i < 3; i++)
		config.stores[i].wear_percent = 80;
	node = (struct daemon){ .config = &config, .nvme_tier_count = 1 };
	cr_assert_eq(zi_loop_new(&node.shard.loop), 0);
	cr_assert_eq(tier_init_nvme(&node.nvme_tiers[0], "disk", 0), 0);
	for (uint32_t i = 0; i < 3; i++)
		node.stores[i] = &stores[i];
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(tier_member_add_store(&node.nvme_tiers[0], &stores[i]), 0);
}

static void tear_down(void)
{
	tier_deinit(&node.nvme_tiers[0]);
	node.shard.loop = zi_loop_free(node.shard.loop);
}

TestSuite(wear, .init = set_up, .fini = tear_down, .timeout = 60);

static const struct tier_wear *wear_of(uint32_t index)
{
	return &node.nvme_tiers[0].members[index].wear;
}

struct turn {
	struct zi_loop *loop;
	struct zi_timer timer;
};

static void turn_over(struct zi_timer *timer)
{
	zi_loop_stop(container_of(timer, struct turn, timer)->loop);
}

/* What is due or posted, and what comes within a millisecond. */
static void turn_loop(struct zi_loop *loop)
{
	struct turn turn = { .loop = loop };

	zi_loop_arm(loop, &turn.timer, zi_clock_deadline_ns(ZI_NS_PER_MS), turn_over);
	cr_assert_eq(zi_loop_run(loop), 0);
}

/* One start of a daemon, until all was asked. What it logged: in @words. */
static void ask(char *words, size_t capacity)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(20 * ZI_NS_PER_S));
	int log_fd = memfd_create("log", MFD_CLOEXEC);
	int stderr_fd = dup(STDERR_FILENO);
	ssize_t count;

	node.nvme_tiers[0].members[1].wear.why.chars[0] = '\0';
	cr_assert_geq(dup2(log_fd, STDERR_FILENO), 0);
	cr_assert_eq(daemon_start_wear(&node), 0);
	while (!wear_of(1)->why.chars[0]) {
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "no drive is asked");
		turn_loop(node.shard.loop);
	}
	daemon_stop_wear(&node);
	turn_loop(node.wear.loop); /* The way back of the post. */
	cr_assert_not(node.wear.is_out);
	node.wear.loop = zi_loop_free(node.wear.loop);
	cr_assert_geq(dup2(stderr_fd, STDERR_FILENO), 0);
	count = pread(log_fd, words, capacity - 1, 0);
	cr_assert_geq(count, 0);
	words[count] = '\0';
	(void)zi_close(stderr_fd);
	(void)zi_close(log_fd);
}

Test(wear, drive_that_wears_out_is_told_of_once_and_its_figures_stay_new)
{
	char words[1024];

	used_percent = 79;
	ask(words, sizeof(words));
	cr_assert_str_eq(words, "", "it does not");
	cr_assert(wear_of(0)->is_known);
	cr_assert_eq(wear_of(0)->smart.used_percent, 79);
	cr_assert_not(wear_of(0)->is_told);

	used_percent = 80;
	ask(words, sizeof(words));
	cr_assert_not_null(strstr(words, "Store 'worn' at /worn lies on a drive that wears out"),
	                   "%s", words);
	cr_assert_not_null(strstr(words, "80"), "%s", words);
	cr_assert_null(strstr(words, "silent"), "%s", words);
	cr_assert_null(strstr(words, "other"), "%s", words);
	cr_assert(wear_of(0)->is_told);

	used_percent = 93;
	ask(words, sizeof(words));
	cr_assert_str_eq(words, "", "it was told");
	cr_assert_eq(wear_of(0)->smart.used_percent, 93);
	cr_assert(wear_of(0)->is_told);
}

Test(wear, drive_that_says_nothing_has_its_reason)
{
	char words[1024];

	ask(words, sizeof(words));
	cr_assert_not(wear_of(1)->is_known);
	cr_assert_str_eq(wear_of(1)->why.chars, "not reported by this device");
	cr_assert_not(wear_of(1)->is_told);
}

Test(wear, nobody_is_asked_where_it_is_switched_off_or_nothing_is_there)
{
	config.wear_interval_s = 0;
	cr_assert_eq(daemon_start_wear(&node), 0);
	cr_assert_null(node.wear.loop);
	config.wear_interval_s = 60;
	node.nvme_tier_count = 0;
	cr_assert_eq(daemon_start_wear(&node), 0);
	cr_assert_null(node.wear.loop);
	daemon_stop_wear(&node); /* Nothing was started. */
}
