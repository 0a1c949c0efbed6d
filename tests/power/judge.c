/* SPDX-License-Identifier: Apache-2.0 */
/* What is found on a disk (judge.h). */
#include "tests/power/judge.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/base/fd.h"
#include "daemon/catalog/mark.h"
#include "kernels/hash.h"

struct judge {
	const struct life *life;
	enum judge_trial trial;
	uint64_t cut;
	struct node node;
	struct zi_text *text;
	enum judge_verdict verdict;
};

/* The worst that was found, with its sentence. @is_wrong: it must not be, whatever the words. */
static void find(struct judge *judge, bool is_wrong, const char *name, const char *what,
                 const char *why)
{
	enum judge_verdict verdict = is_wrong ? JUDGE_WRONG : JUDGE_NAMED;

	if (verdict <= judge->verdict)
		return;
	judge->verdict = verdict;
	zi_text_set(judge->text, "%s: %s: %.180s", name, what, why);
}

/* Whether nothing may be lost or damaged. */
static bool is_promised(const struct judge *judge, uint32_t name)
{
	return judge->trial == JUDGE_HONEST && life_is_power(judge->life, name);
}

/* Whether @name may stand at the point that has @kind and @serial: the last acknowledged one, or
 * the one that had begun behind it; without durability, any that had begun. */
static bool is_allowed(const struct judge *judge, uint32_t name, int32_t kind, uint32_t serial)
{
	const struct life *life = judge->life;

	for (uint32_t i = life->point_count[name]; i-- > 0;) {
		const struct life_point *point = &life->points[name][i];

		if (i && point->begun >= judge->cut)
			continue;
		if (point->kind == kind && (kind < 0 || point->serial == serial))
			return true;
		if (judge->trial != JUDGE_LOG_DAMAGED && life_is_power(life, name) &&
		    point->acknowledged < judge->cut)
			return false;
	}
	return false;
}

/* Which life of the job lies there: their layouts differ. */
static int32_t kind_of(const struct zero_job *job, uint32_t name)
{
	for (uint32_t kind = 0; kind < LIFE_KINDS; kind++)
		if (life_name_of_kind[kind] == name && job->layout.unit_count &&
		    job->layout.params[1].shape[0] == life_kinds[kind].unit_elements[1] &&
		    job->layout.params[0].shape[0] == life_kinds[kind].unit_elements[0])
			return (int32_t)kind;
	return -1;
}

/* From its commit on, until a step has used all of its state. */
static void carry_on(struct judge *judge, struct job *job, uint32_t serial, bool is_safe)
{
	const struct life *life = judge->life;
	const char *operations = job->kind->operations;
	bool is_over = false;

	while (!is_over && operations[++serial]) {
		uint64_t hash = 0;
		int r = job_do(job, serial);

		if (!r)
			r = job_hash(job, &hash);
		if (r) {
			find(judge, is_safe || !job->text.chars[0], job->kind->name,
			     "the next step fails", job->text.chars);
			return;
		}
		if (hash != life->hashes[job->kind->number][serial]) {
			find(judge, true, job->kind->name, "trains on to other bits", "");
			return;
		}
		is_over = operations[serial] == 'S' || operations[serial] == 'E';
	}
}

static void judge_open(struct judge *judge, struct job *job, uint32_t name)
{
	const struct life *life = judge->life;
	uint32_t kind = job->kind->number;
	int64_t serial = -1;
	uint64_t hash = 0;
	int r;

	if (!job_serial(job, &serial) || serial < 0) {
		find(judge, true, job->kind->name, "blobs of no commit, or of two", "");
		return;
	}
	if (!is_allowed(judge, name, (int32_t)kind, (uint32_t)serial)) {
		find(judge, true, job->kind->name, "stands at a commit it must not stand at", "");
		return;
	}
	r = job_hash(job, &hash);
	if (r)
		find(judge, is_promised(judge, name), job->kind->name, "cannot be read",
		     job->text.chars);
	else if (hash != life->hashes[kind][serial] ||
	         job->memory[0].committed_step != life->steps[kind][serial])
		find(judge, true, job->kind->name, "has other parameters than its commit", "");
	else
		carry_on(judge, job, (uint32_t)serial, is_promised(judge, name));
}

static void judge_name(struct judge *judge, uint32_t name)
{
	const char *words = life_kinds[name].name;
	bool is_safe = is_promised(judge, name);
	const struct zero_job *stored = job_find(judge->node.zero, words);
	int32_t kind;
	struct job job;
	int r;

	if (!stored) {
		if (!is_allowed(judge, name, -1, 0))
			find(judge, true, words, "is gone", "");
		return;
	}
	kind = kind_of(stored, name);
	if (kind < 0) {
		find(judge, is_safe || !stored->refusal, words, "has another layout",
		     stored->refusal_text.chars);
		return;
	}
	r = job_open(&job, &judge->node, &life_kinds[kind],
	             life_durability_of(judge->life, (uint32_t)kind), NULL);
	if (r) {
		find(judge, is_safe || !job.text.chars[0], words, "cannot be opened",
		     job.text.chars);
		return;
	}
	judge_open(judge, &job, name);
	job_close(&job);
}

static void take_report(void *arg, const struct zero_snapshot_report *report)
{
	struct zi_text *refusal = arg;

	/* Not NULL: it is there. */
	zi_text_set(refusal, "%s", report->refusal ? report->refusal : "sound");
}

/* A new job that begins with it has the kept parameters, and trains on as that commit did. */
static void judge_loaded(struct judge *judge, uint32_t serial)
{
	const struct life *life = judge->life;
	bool is_safe = is_promised(judge, LIFE_SNAPSHOT);
	struct job_kind kind = life_kinds[0];
	uint64_t hash = 0;
	struct job job;
	int r;

	kind.name = "zeta";
	r = job_open(&job, &judge->node, &kind, life_durability_of(life, 0),
	             "alpha/" LIFE_SNAPSHOT_NAME);
	if (r) {
		find(judge, is_safe || !job.text.chars[0], LIFE_SNAPSHOT_NAME, "cannot be loaded",
		     job.text.chars);
		return;
	}
	r = job_hash(&job, &hash);
	if (r)
		find(judge, is_safe, LIFE_SNAPSHOT_NAME, "cannot be read", job.text.chars);
	else if (hash != life->hashes[0][serial])
		find(judge, true, LIFE_SNAPSHOT_NAME, "has other parameters than its commit", "");
	else
		carry_on(judge, &job, serial, is_safe);
	job_close(&job);
}

static void judge_snapshot(struct judge *judge)
{
	const struct life_point *made = &judge->life->points[LIFE_SNAPSHOT][1];
	struct zi_text state = { "" };

	zero_snapshot_each(judge->node.zero, life_kinds[0].name, take_report, &state);
	if (!state.chars[0]) {
		if (!is_allowed(judge, LIFE_SNAPSHOT, -1, 0))
			find(judge, true, LIFE_SNAPSHOT_NAME, "is gone", "");
	} else if (!is_allowed(judge, LIFE_SNAPSHOT, 0, made->serial)) {
		/* An old page of the catalog may show a row of a removed one: it is refused. */
		bool is_refused = strcmp(state.chars, "sound") != 0;

		find(judge, judge->trial == JUDGE_HONEST || !is_refused, LIFE_SNAPSHOT_NAME,
		     "is there", state.chars);
	} else if (strcmp(state.chars, "sound") != 0) {
		find(judge, is_promised(judge, LIFE_SNAPSHOT), LIFE_SNAPSHOT_NAME, "is refused",
		     state.chars);
	} else {
		judge_loaded(judge, made->serial);
	}
}

/* Who starts it next does so in another boot of the machine. */
static void change_boot(const char *directory)
{
	struct catalog_mark mark;
	char path[300];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/catalog.db-mark", directory); /* Fits. */
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && !zi_pread_all(fd, &mark, sizeof(mark), 0) && mark.boot[0]) {
		mark.boot[0] ^= 1;
		mark.checksum = kern_hash(&mark, offsetof(struct catalog_mark, checksum));
		(void)zi_pwrite_all(fd, &mark, sizeof(mark), 0); /* Else it does not check. */
	}
	(void)zi_close(fd);
}

/* A daemon must start after every power failure, whatever its jobs ask for: only what a job has
 * committed last may be lost. On damage it may refuse to. */
enum judge_verdict judge_disk(const struct life *life, enum judge_trial trial,
                              const char *directory, uint64_t cut, struct zi_text *text)
{
	struct judge judge = { .life = life, .trial = trial, .cut = cut, .text = text };
	struct zi_text why;

	text->chars[0] = '\0';
	change_boot(directory);
	if (node_start(&judge.node, directory, LIFE_STORE_BYTES, &why)) {
		find(&judge, trial == JUDGE_HONEST || !why.chars[0], "the daemon", "does not start",
		     why.chars);
		return judge.verdict;
	}
	node_settle(&judge.node); /* What was never committed is deleted. */
	for (uint32_t name = 0; name < LIFE_JOBS; name++)
		judge_name(&judge, name);
	judge_snapshot(&judge);
	node_stop(&judge.node);
	return judge.verdict;
}
