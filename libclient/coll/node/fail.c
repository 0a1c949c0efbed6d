/* SPDX-License-Identifier: Apache-2.0 */
/* How a group ends; see fail.h. Floor 2. */
#include "libclient/coll/node/fail.h"

#include <errno.h>

#include "common/base/err.h"
#include "common/wire/call_words.h"
#include "libclient/coll/node/posts.h"

/* The first one counts: whoever's call is over reads it, while others' still end. */
bool zi_node_set_over(struct zi_node_group *group, int error)
{
	if (group->over)
		return false;
	group->over = error;
	zi_cma_withdraw(group); /* Calls return from here on, and peers may still be reading. */
	return true;
}

int zi_node_check_group(struct zi_node_group *group, struct zi_text *text)
{
	int r = group->over ? group->over : zi_meet_verdict(&group->meet);

	if (!r)
		return 0;
	(void)zi_node_set_over(group, r); /* or it is so already */
	return err_origin(zi_text_error(text, r, "group %u is broken (%s): make another one",
	                                group->number, zi_err_name(r)));
}

static int end_group(struct zi_node_group *group, int error, const struct zi_node_failure *failure)
{
	if (zi_node_set_over(group, error))
		group->failure = *failure;
	return err_trace(error);
}

int zi_node_over_by_call(struct zi_node_group *group, int error, uint64_t timeout_ns)
{
	const struct zi_node_call *call = &group->run.call;

	return err_trace(end_group(group, error,
	                           &(struct zi_node_failure){ .sequence = zi_node_awaited(group),
	                                                      .culprit = group->culprit,
	                                                      .operation = call->operation,
	                                                      .dtype = call->dtype,
	                                                      .reduce_op = call->reduce_op,
	                                                      .root = call->root,
	                                                      .element_count = call->element_count,
	                                                      .timeout_ns = timeout_ns }));
}

int zi_node_over_by_message(struct zi_node_group *group, const struct zi_node_p2p *p2p, int error,
                            uint64_t timeout_ns)
{
	return err_trace(end_group(group, error,
	                           &(struct zi_node_failure){
					   .culprit = group->culprit,
					   .operation = p2p->is_send ? ZI_COLL_SEND : ZI_COLL_RECV,
					   .dtype = p2p->dtype,
					   .root = p2p->peer,
					   .element_count = p2p->element_count,
					   .timeout_ns = timeout_ns,
				   }));
}

static int say_broken(const struct zi_node_group *group, int error, struct zi_text *text)
{
	return err_origin(zi_text_error(text, error, "group %u is broken (%s)", group->number,
	                                zi_err_name(error)));
}

int zi_node_fail_call(struct zi_node_group *group, int error, uint64_t timeout_ns,
                      struct zi_text *text)
{
	const struct zi_node_run *run = &group->run;
	uint32_t sequence = zi_node_awaited(group);
	bool is_late = run->phase == ZI_NODE_CATCH_UP || run->phase == ZI_NODE_MEETING;
	struct zi_board_call said = *zi_node_said(group, sequence);

	/* Who waits for another node's ranks does not know which. */
	if (error == -ETIMEDOUT && !group->far)
		group->culprit = run->member;
	(void)zi_node_over_by_call(group, error, timeout_ns); /* It is @error. */
	if (error != -ETIMEDOUT)
		return err_trace(say_broken(group, error, text));
	if (group->far)
		return err_origin(zi_text_error(text, error,
		                                "call %u, %s: members on this node or another did "
		                                "not come in time",
		                                sequence, zi_call_words_of(&said).chars));
	return err_origin(zi_text_error(text, error, "call %u, %s: member %u %s in time", sequence,
	                                zi_call_words_of(&said).chars, run->member,
	                                is_late ? "did not come" : "did not do its part"));
}

int zi_node_fail_message(struct zi_node_group *group, const struct zi_node_p2p *late, int error,
                         uint64_t timeout_ns, struct zi_text *text)
{
	if (error == -ETIMEDOUT)
		group->culprit = late->peer;
	(void)zi_node_over_by_message(group, late, error, timeout_ns); /* It is @error. */
	if (error != -ETIMEDOUT)
		return err_trace(say_broken(group, error, text));
	return err_origin(zi_text_error(
		text, error, "%s of %llu × %s: member %u did not %s it in time",
		late->is_send ? "send" : "recv", (unsigned long long)late->element_count,
		zi_dtype_name(late->dtype), late->peer, late->is_send ? "take" : "send"));
}
