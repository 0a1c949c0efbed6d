/* SPDX-License-Identifier: Apache-2.0 */
/* `snapshot …`, `delete`: asked of zero, answered when done (docs/ANSWERS.md). Floor 6, shard
 * thread. */
#include "daemon/session/admin/answer_snapshots.h"

#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/sess.h"

static bool is_admin(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static json_t *answer_snapshot(const struct zero_snapshot_op *op)
{
	json_t *answer = json_object();

	answer_word(answer, "job", op->job);
	answer_word(answer, "name", op->name);
	if (op->as[0])
		answer_word(answer, "as", op->as);
	answer_put(answer, "step", json_integer(op->step));
	answer_number(answer, "held_bytes", op->held_bytes);
	if (op->node_count > 1) {
		answer_number(answer, "nodes", op->node_count);
		answer_number(answer, "kept_nodes", op->kept_count);
	}
	return answer;
}

static json_t *answer_delete(const struct zero_snapshot_op *op)
{
	json_t *answer = json_object();

	answer_word(answer, "job", op->job);
	answer_put(answer, "step", json_integer(op->step));
	answer_number(answer, "freed_bytes", op->held_bytes);
	answer_put(answer, "is_space_kept", json_boolean(op->is_space_kept));
	return answer;
}

static void op_done(struct zero_snapshot_op *op)
{
	struct sess_inquiry *inquiry = container_of(op, struct sess_inquiry, snapshot_op);

	inquiry->result = op->result;
	inquiry->text = op->text;
	if (!op->result)
		inquiry->answer = inquiry->question == SESS_ASK_DELETE ? answer_delete(op)
		                                                       : answer_snapshot(op);
	sess_answered(container_of(inquiry, struct sess, inquiry));
}

/* Make, remove or go back to one, or end a job: answered by sess_answered(), possibly before this
 * returns. */
void sess_answer_snapshot(struct sess_shard *shard, uid_t uid, struct sess_inquiry *inquiry)
{
	struct zero_snapshot_op *op = &inquiry->snapshot_op;

	*op = (struct zero_snapshot_op){
		.done = op_done,
		.uid = uid,
		.is_admin = is_admin(uid),
		.is_automatic = inquiry->is_automatic,
		.keep_count = inquiry->keep_count,
	};
	(void)zi_copy_name(op->job, sizeof(op->job), inquiry->job); /* As long. */
	(void)zi_copy_name(op->name, sizeof(op->name), inquiry->name);
	(void)zi_copy_name(op->as, sizeof(op->as), inquiry->as);
	if (inquiry->question == SESS_ASK_DELETE) {
		zero_job_delete(shard->zero, op);
	} else if (inquiry->question == SESS_ASK_SNAPSHOT_CREATE) {
		zero_snapshot_create(shard->zero, op);
	} else if (inquiry->question == SESS_ASK_SNAPSHOT_RESTORE) {
		zero_snapshot_restore(shard->zero, op);
	} else {
		zero_snapshot_remove(shard->zero, op);
	}
}

struct snapshot_list {
	json_t *snapshots;
	uid_t uid;
};

static void list_one(void *arg, const struct zero_snapshot_report *report)
{
	struct snapshot_list *list = arg;
	json_t *snapshot;

	if (!is_admin(list->uid) && report->uid != list->uid)
		return;
	snapshot = json_object();
	answer_word(snapshot, "job", report->job);
	answer_word(snapshot, "name", report->name);
	answer_number(snapshot, "uid", report->uid);
	answer_put(snapshot, "step", json_integer(report->step));
	answer_number(snapshot, "created_s", report->created_s);
	answer_number(snapshot, "held_bytes", report->held_bytes);
	answer_number(snapshot, "charged_bytes", report->charged_bytes);
	answer_put(snapshot, "is_automatic", json_boolean(report->is_automatic));
	answer_put(snapshot, "is_in_use", json_boolean(report->is_in_use));
	answer_put(snapshot, "refusal",
	           report->refusal ? json_string(report->refusal) : json_null());
	(void)json_array_append_new(list->snapshots, snapshot);
}

/* Return: an array of those that @uid may see, oldest first; the caller's. */
json_t *sess_answer_snapshot_list(struct sess_shard *shard, uid_t uid,
                                  const struct sess_inquiry *inquiry)
{
	struct snapshot_list list = { .snapshots = json_array(), .uid = uid };

	zero_snapshot_each(shard->zero, inquiry->has_job ? inquiry->job : NULL, list_one, &list);
	return list.snapshots;
}
