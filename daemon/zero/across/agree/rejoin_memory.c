/* SPDX-License-Identifier: Apache-2.0 */
/* Where state in memory alone goes on; see rejoin_memory.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/rejoin_memory.h"

#include "common/base/err.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/agree/names.h"
#include "daemon/zero/job/job.h"

static struct zi_text say_name(const struct zero_job *job, const struct round *round, uint32_t node)
{
	struct commit_name name = names_at(round, node).names[0];
	struct zi_text text;

	if (name.step < 0)
		zi_text_set(&text, "%.70s has nothing of it", across_name(job, node).chars);
	else
		zi_text_set(&text, "%.70s is at step %lld", across_name(job, node).chars,
		            (long long)name.step);
	return text;
}

/* Documented in the header, as are the others. */
int memory_rejoin_refuse(const struct zero_job *job, const struct round *round, uint32_t node_count,
                         struct zi_text *ret_text)
{
	uint32_t newest = names_newest(round, node_count), other = 0;
	struct commit_name name = names_at(round, newest).names[0];

	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_name mine = names_at(round, i).names[0];

		if (!names_are_one(&mine, &name))
			other = i;
	}
	return err_origin(zi_text_error(
		ret_text, -ENODATA,
		"job '%.40s' has no commit that is on all nodes: %.100s, but %.100s: zctl delete "
		"it there, as state only in memory cannot go back, or take another name",
		job->name, say_name(job, round, newest).chars, say_name(job, round, other).chars));
}

int memory_rejoin(const struct zero_job *job, const struct round *round, uint32_t node_count,
                  const struct commit_name *commit, struct chosen *ret_chosen,
                  struct zi_text *ret_text)
{
	struct commit_name newest = names_at(round, names_newest(round, node_count)).names[0];

	for (uint32_t i = 0; i < node_count && commit->step >= 0; i++)
		if (names_at(round, i).names[0].step != newest.step)
			return err_trace(memory_rejoin_refuse(job, round, node_count, ret_text));
	*ret_chosen = chosen_by_name(commit, newest.number, newest.line);
	return 0;
}

void memory_take(struct zero_job *job, const struct chosen *chosen)
{
	struct commit_name present = names_of(job->committed_step, &job->committed);

	if (chosen->commit.step < 0) {
		former_forget(job, chosen->next);
		return;
	}
	/* Of two commits of one step the former one's blobs are those of all. */
	if (!names_are_one(&present, &chosen->commit) && job->former.step == job->committed_step)
		job->blob_index = job->committed.blob_index = job->former.marks.blob_index;
	job->committed.number = chosen->next;
	job->committed.line = chosen->next_line;
}
