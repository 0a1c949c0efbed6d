/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that failed: the daemon, which sees every member, says whose fault it is; see
 * collective.h. Floor 2.
 *
 * Its answer is kept with the group, so that every later call ends with the same words at once.
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/far.h"
#include "common/wire/meet.h"
#include "libclient/coll/collective.h"

/* The daemon answers at once, for everybody it could ask is in its books: this long after a
 * deadline at most a call returns. */
#define BLAME_ANSWER_NS ZI_NS_PER_S

/* As zi_client_request(), but that the training group broke is no answer: groups without the rank
 * that died go on. It is short, and not interrupted. -EBUSY: another request is pending. */
int zi_client_coll_request(struct zinf *zinf, struct zi_message_header *request,
                           enum zi_message_type type, uint32_t bytes,
                           enum zi_message_type reply_type,
                           const struct zi_message_header **ret_reply)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(BLAME_ANSWER_NS);
	bool was_over, held = zinf->holds_interrupts;
	int r = zi_client_check_pending(zinf);

	if (r)
		return err_trace(r);
	zinf->holds_interrupts = true;
	zi_message_init(request, type, bytes, ++zinf->sequence);
	r = zi_client_send(zinf, request, deadline_ns);
	while (!r) {
		was_over = zinf->over;
		r = zi_client_receive(zinf, reply_type, deadline_ns, ret_reply, NULL, 0);
		if (r != -EPIPE || was_over || zinf->over != -EPIPE)
			break;
		r = 0;
	}
	zinf->holds_interrupts = held;
	return err_trace(r);
}

/* By what the group was over first: that need not be the call which is told of it. */
static void describe(struct zi_coll_fail *request, const struct zi_client_group *group)
{
	const struct zi_node_failure *failure = &group->node.failure;

	request->sequence = failure->sequence;
	request->culprit = failure->culprit;
	request->timeout_ms = (uint32_t)ZI_MIN(failure->timeout_ns / ZI_NS_PER_MS, UINT32_MAX);
	request->operation = (uint8_t)failure->operation;
	request->dtype = (uint8_t)failure->dtype;
	request->reduce_op = (uint8_t)failure->reduce_op;
	request->element_count = failure->element_count;
	request->root = failure->root;
}

/* The daemon's words, or why there are none. Return: what the group's error is. */
static int ask_why(struct zinf *zinf, struct zi_client_group *group, struct zi_coll_fail *request,
                   int error)
{
	const struct zi_message_header *reply;
	const struct zi_error_message *why;
	int r = zi_client_coll_request(zinf, &request->header, ZI_MESSAGE_COLL_FAIL,
	                               sizeof(*request), ZI_MESSAGE_ERROR, &reply);

	if (r && zinf->over && zinf->over != -EPIPE)
		return err_trace(r);
	if (r) {
		zi_text_set(&group->text, "group %u broke (%s), and zinfd at %s does not say why",
		            group->number, strerror(-error), zinf->path);
		return error;
	}
	why = (const struct zi_error_message *)reply;
	if (why->error >= 0)
		return err_trace(zi_client_breach(zinf, "an invalid error"));
	group->text = why->text;
	return why->error;
}

/* Of a group that spans nodes zinf-net says whose fault it is, a margin before the ranks'
 * deadline; where the machine has stalled since, a moment behind it. A daemon, which sees its own
 * ranks alone, could but say that they wait for others. */
static void await_hearsay(struct zi_client_group *group)
{
	struct zi_meet *meet = &group->node.meet;
	uint64_t deadline_ns =
		zi_clock_deadline_ns(zi_far_margin_ns(group->node.failure.timeout_ns));
	struct zi_meet_wants wants;
	int r;

	zi_meet_wants_clear(&wants);
	zi_meet_want(&wants, meet, &meet->verdict->value, 1);
	do
		r = zi_meet_wait(&wants, NULL, deadline_ns);
	while (!r && !zi_meet_verdict(meet));
}

int zi_client_group_fail(struct zinf *zinf, struct zi_client_group *group, int error)
{
	struct zi_coll_fail request = {
		.group = group->number,
		.error = error,
		.culprit = ZI_NODE_NOBODY,
	};
	uint32_t verdict;
	int r;

	if (group->error) {
		zinf->text = group->text;
		return err_origin(group->error);
	}
	if (error == -ETIMEDOUT && group->node.far)
		await_hearsay(group);
	verdict = zi_line_load(group->node.meet.verdict);
	if (verdict) {
		request.error = 0;
		error = -(int)ZI_MIN(verdict, (uint32_t)INT16_MAX);
	} else if (error == -ESTALE) {
		return err_trace(zi_client_gone(zinf));
	}
	if (group->node.failure.operation)
		describe(&request, group);
	r = ask_why(zinf, group, &request, error);
	if (zinf->over && zinf->over != -EPIPE)
		return err_trace(r);
	group->error = r;
	zinf->text = group->text;
	return err_origin(r);
}

void zi_client_coll_stay_out(struct zinf *zinf, uint32_t group)
{
	struct zi_coll_fail request = {
		.group = group,
		.error = -EIO,
		.culprit = ZI_NODE_NOBODY,
	};
	const struct zi_message_header *reply;

	/* A session that ended tells the others as well. */
	(void)zi_client_coll_request(zinf, &request.header, ZI_MESSAGE_COLL_FAIL, sizeof(request),
	                             ZI_MESSAGE_ERROR, &reply);
}

int zi_client_group_look(struct zinf *zinf, struct zi_client_group *group)
{
	if (!group->error && !zi_line_load(group->node.meet.verdict))
		return 0;
	return err_trace(zi_client_group_fail(zinf, group, -EPIPE));
}
