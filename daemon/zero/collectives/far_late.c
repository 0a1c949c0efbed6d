/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a call that spans nodes waits for on this one: what its worker saw, put into words; see
 * far_private.h. Floor 5, shard thread. */
#include "common/base/err.h"
#include "daemon/coll/coll.h"
#include "daemon/coll/look.h"
#include "daemon/coll/words.h"
#include "daemon/zero/collectives/collectives.h"
#include "daemon/zero/collectives/far_private.h"
#include "daemon/zero/job/job.h"

static struct coll *coll_of(const struct far *far)
{
	return far->job ? far->job->collectives.coll : NULL;
}

/* What @far's worker follows; NULL: it is nobody's any more. */
static struct coll_group *group_of(const struct far *far)
{
	struct coll *coll = coll_of(far);

	return coll && coll->groups[far->group].is_used ? &coll->groups[far->group] : NULL;
}

/* Who has come, but is stopped, or far too slow. */
static void break_unfinished(struct coll *coll, struct coll_group *group, uint32_t member,
                             uint32_t sequence)
{
	struct zi_text text = { "" };
	struct zi_board_post post;
	struct coll_call call;

	(void)coll_look(group, member, sequence, &call); /* It has come; hearsay at worst. */
	zi_board_look(&group->board[member].posts[sequence % ZI_BOARD_SLOTS], &post);
	coll_append_call(&text, group, &call, true);
	zi_text_append(&text, ": ");
	coll_append_rank(&text, coll, group->ranks[member]);
	zi_text_append(&text, " came, but did not do its part within %.4g s",
	               (double)post.call.target / 1e3);
	coll_break(coll, group, -ETIMEDOUT, group->ranks[member], &text);
}

/* Nobody is in it any more, by what the boards say: they were written over, or their ranks are
 * gone. The worker tells of a call once, so it ends here. */
static void break_unseen(struct coll *coll, struct coll_group *group, uint32_t sequence)
{
	struct zi_text text;

	zi_text_set(&text,
	            "call #%u of group %u was not complete on this node in time, and none of its "
	            "ranks is in it any more",
	            sequence, group->number);
	coll_break(coll, group, -ETIMEDOUT, COLL_NOBODY, &text);
}

/* Documented in far_private.h, as are the others. */
void far_call_late(void *arg, uint32_t sequence, uint32_t member)
{
	struct coll *coll = coll_of(arg);
	struct coll_group *group = group_of(arg);
	struct zi_coll_fail report = { .group = group ? group->number : 0,
		                       .sequence = sequence,
		                       .error = -ETIMEDOUT,
		                       .culprit = COLL_NOBODY };
	struct zi_board_post post;
	struct coll_call call;
	struct zi_text text;

	if (!group || group->error)
		return; /* It is known, or nobody's any more. */
	if (member < group->member_count) {
		break_unfinished(coll, group, member, sequence);
		return;
	}
	for (uint32_t i = 0; i < group->member_count; i++) {
		if (!coll_look(group, i, sequence, &call) || group->left_mask >> i & 1)
			continue;
		zi_board_look(&group->board[i].posts[sequence % ZI_BOARD_SLOTS], &post);
		report.timeout_ms = (uint32_t)post.call.target;         /* Hearsay, for people. */
		(void)coll_fail(coll, group->ranks[i], &report, &text); /* Its text is kept. */
		return;
	}
	break_unseen(coll, group, sequence);
}

void far_message_late(void *arg, const struct net_late_message *late)
{
	struct coll_group *group = group_of(arg);
	struct coll_call call = { .operation = late->is_send ? ZI_COLL_SEND : ZI_COLL_RECV,
		                  .dtype = late->dtype,
		                  .element_count = late->element_count,
		                  .root = late->absent };

	if (group)
		coll_fail_message(coll_of(arg), group, late->waiting, &call, late->timeout_ms);
}

void far_call_asked(void *arg, const struct net_asked *asked)
{
	struct coll_group *group = group_of(arg);
	struct coll_call call = { .sequence = asked->sequence,
		                  .operation = asked->operation,
		                  .dtype = asked->dtype,
		                  .reduce_op = asked->reduce_op,
		                  .root = asked->root,
		                  .element_count = asked->element_count };

	if (group)
		coll_fail_absent(coll_of(arg), group, &call, asked->silent, asked->timeout_ms);
}
