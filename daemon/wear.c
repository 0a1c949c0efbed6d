/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives are asked for their health at start and every wear_interval_s: by a thread of its own,
 * since a drive may take seconds to answer. What it says is the shard's, in the member. Floor 7.
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/daemon.h"
#include "daemon/tier/member.h"
#include "nvme/nvme.h"

/* Context: the thread "wear". */
static void wear_back(struct zi_post *post)
{
	container_of(post, struct daemon_wear, post)->is_out = false;
}

static struct tier_member *member_of(struct daemon *daemon, const struct nvme_store *store)
{
	for (uint32_t i = 0; i < daemon->nvme_tier_count; i++)
		for (uint32_t j = 0; j < daemon->nvme_tiers[i].member_count; j++)
			if (daemon->nvme_tiers[i].members[j].store == store)
				return &daemon->nvme_tiers[i].members[j];
	return NULL;
}

/* Says once, for each sign of it. */
static void wear_judge(struct daemon *daemon, struct tier_member *member, uint32_t index)
{
	const struct config_store *config = &daemon->config->stores[index];
	struct zi_text text = { "" };
	bool is_worn =
		member->wear.is_known &&
		nvme_smart_is_worn(&member->wear.smart, (uint32_t)config->wear_percent, &text);

	if (is_worn && !member->wear.is_told)
		log_warning("Store '%s' at %s lies on a drive that wears out: %s", member->name,
		            member->path, text.chars);
	member->wear.is_told |= is_worn;
}

/* Context: shard thread. */
static void wear_arrived(struct zi_post *post)
{
	struct daemon_wear *wear = container_of(post, struct daemon_wear, post);
	struct daemon *daemon = container_of(wear, struct daemon, wear);

	for (uint32_t i = 0; i < CONFIG_STORES_MAX; i++) {
		struct tier_member *member =
			daemon->stores[i] ? member_of(daemon, daemon->stores[i]) : NULL;
		bool is_told = member && member->wear.is_told;

		if (!member)
			continue;
		member->wear = wear->found[i];
		member->wear.is_told = is_told;
		wear_judge(daemon, member, i);
	}
	zi_loop_post(wear->loop, &wear->post, wear_back);
}

static void wear_due(struct zi_timer *timer)
{
	struct daemon_wear *wear = container_of(timer, struct daemon_wear, timer);
	struct daemon *daemon = container_of(wear, struct daemon, wear);

	zi_loop_arm(wear->loop, &wear->timer,
	            zi_clock_deadline_ns(daemon->config->wear_interval_s * ZI_NS_PER_S), wear_due);
	if (wear->is_out)
		return;
	for (uint32_t i = 0; i < CONFIG_STORES_MAX; i++) {
		struct tier_wear *found = &wear->found[i];

		*found = (struct tier_wear){ .is_known = false };
		if (daemon->stores[i])
			found->is_known =
				!nvme_smart_read(daemon->stores[i]->fd, &found->why, &found->smart);
	}
	wear->is_out = true;
	zi_loop_post(daemon->shard.loop, &wear->post, wear_arrived);
}

static int wear_main(void *arg)
{
	struct daemon_wear *wear = arg;
	int r = zi_loop_run(wear->loop);

	if (r)
		(void)log_warning_errno(r, "Health checks of the drives end");
	return 0;
}

/* Without stores, or with wear_interval_s never: nothing. Return: 0; -ENOMEM, -EAGAIN. */
int daemon_start_wear(struct daemon *daemon)
{
	struct daemon_wear *wear = &daemon->wear;
	int r;

	if (!daemon->nvme_tier_count || !daemon->config->wear_interval_s)
		return 0;
	r = zi_loop_new(&wear->loop);
	if (r)
		return err_trace(r);
	zi_loop_arm(wear->loop, &wear->timer, zi_clock_now_ns(), wear_due);
	return err_trace(zi_thread_start(&wear->thread, "wear", wear_main, wear));
}

/* Before stores are closed; a drive that does not answer is waited for (10 s). */
void daemon_stop_wear(struct daemon *daemon)
{
	if (!daemon->wear.loop)
		return;
	zi_loop_stop(daemon->wear.loop);
	(void)zi_thread_join(&daemon->wear.thread); /* Always 0. */
	zi_loop_disarm(&daemon->wear.timer);
}
