/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a node, and its judge (life.h). */
#include "tests/power/life.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/types.h"
#include "tests/power/image.h"
#include "tests/power/record.h"

/* Just room for both jobs, so that freed extents are soon written again. */
#define STORE_BYTES       (2ull << 20)
#define LARGE_STORE_BYTES (3ull << 20)

/* A unit is shorter than a block, or of two tiles, the second one short. An operation more than the
 * life has: what the last commit is carried on to. */
static const struct job_kind life_kinds[LIFE_KINDS] = {
	{ .name = "alpha",
	  .operations = "WSSwSNSSSwSSS",
	  .number = 0,
	  .world = 2,
	  .unit_count = 3,
	  .unit_elements = { 700, 20000, 5000 },
	  .dtype = ZI_DTYPE_BF16,
	  .optimizer = ZI_OPTIMIZER_ADAMW },
	{ .name = "beta",
	  .operations = "WSSwS",
	  .number = 1,
	  .world = 1,
	  .unit_count = 2,
	  .unit_elements = { 4096, 300 },
	  .dtype = ZI_DTYPE_F32,
	  .optimizer = ZI_OPTIMIZER_ADAM },
	{ .name = "beta",
	  .operations = "WSSSSwSSS",
	  .number = 2,
	  .world = 1,
	  .unit_count = 2,
	  .unit_elements = { 300, 9000 },
	  .dtype = ZI_DTYPE_F32,
	  .optimizer = ZI_OPTIMIZER_SGD },
};
static const uint32_t name_of_kind[LIFE_KINDS] = { 0, 1, 1 };

static void must(bool is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "life: %s\n", what);
	abort();
}

static uint32_t durability_of(const struct life *life, uint32_t kind)
{
	bool is_power = life->durability == LIFE_POWER ||
	                (life->durability == LIFE_MIXED && name_of_kind[kind] == 0);

	return is_power ? ZI_DURABILITY_POWER : ZI_DURABILITY_PROCESS;
}

/* ---- the reference ---- */

void life_reference(struct life *life, const char *directory)
{
	for (uint32_t kind = 0; kind < LIFE_KINDS; kind++) {
		const char *operations = life_kinds[kind].operations;
		int64_t step = 0;
		struct zi_text text;
		struct node node;
		struct job job;

		must(!node_start(&node, directory, LARGE_STORE_BYTES, &text), text.chars);
		must(!job_open(&job, &node, &life_kinds[kind], durability_of(life, kind)),
		     job.text.chars);
		for (uint32_t serial = 0; operations[serial]; serial++) {
			must(!job_do(&job, serial), job.text.chars);
			must(!job_hash(&job, &life->hashes[kind][serial]), job.text.chars);
			step += operations[serial] == 'S' || operations[serial] == 'N';
			life->steps[kind][serial] = step;
		}
		job_close(&job);
		node_stop(&node);
		image_clear_directory(directory);
	}
}

/* ---- the life ---- */

static struct life_point *point_add(struct life *life, uint32_t kind, bool is_absent,
                                    uint32_t serial)
{
	uint32_t name = name_of_kind[kind];
	struct life_point *point = &life->points[name][life->point_count[name]++];

	must(life->point_count[name] <= LIFE_POINTS_MAX, "too many points");
	*point = (struct life_point){ .begun = record_now(),
		                      .acknowledged = UINT64_MAX,
		                      .kind = is_absent ? -1 : (int32_t)kind,
		                      .serial = serial };
	return point;
}

/* Each rank is told; the first one counts. */
static void acknowledged(void *arg)
{
	struct life_point *point = arg;

	if (point->acknowledged == UINT64_MAX)
		point->acknowledged = record_now();
}

static void open_job(struct life *life, struct job *job, struct node *node, uint32_t kind)
{
	int r = job_open(job, node, &life_kinds[kind], durability_of(life, kind));

	must(!r, job->text.chars);
	job->acknowledged = acknowledged;
}

static void submit(struct life *life, struct job *job, uint32_t serial)
{
	job->arg = point_add(life, job->kind->number, false, serial);
	job_submit(job, serial);
}

static void check_job(const struct life *life, struct job *job, uint32_t serial)
{
	uint64_t hash;

	must(!job_wait(job), job->text.chars);
	must(!job_hash(job, &hash), job->text.chars);
	must(hash == life->hashes[job->kind->number][serial], "the recorded run trains otherwise");
}

/* The operation @first of one job and @second of the other, whose commits overlap. */
static void round_do(struct life *life, struct job *one, uint32_t first, struct job *other,
                     uint32_t second)
{
	must(!job_prepare(one, first), one->text.chars);
	must(!job_prepare(other, second), other->text.chars);
	submit(life, one, first);
	submit(life, other, second);
	check_job(life, one, first);
	check_job(life, other, second);
}

static void destroy(struct life *life, struct job *job)
{
	job->arg = point_add(life, job->kind->number, true, 0);
	must(!job_destroy(job), job->text.chars);
}

static void start(struct node *node, const char *directory, uint64_t store_bytes)
{
	struct zi_text text;

	must(!node_start(node, directory, store_bytes, &text), text.chars);
}

/* The daemon stops by itself, its jobs at rest. */
static void stop(struct node *node, struct job *one, struct job *other)
{
	job_close(one);
	job_close(other);
	node_stop(node);
}

void life_run(struct life *life, const char *directory)
{
	struct node node;
	struct job alpha, beta;

	for (uint32_t kind = 0; kind < LIFE_NAMES; kind++)
		point_add(life, kind, true, 0)->acknowledged = 0; /* There is nothing yet. */
	start(&node, directory, STORE_BYTES);
	life->made = record_now();
	open_job(life, &alpha, &node, 0);
	open_job(life, &beta, &node, 1);
	for (uint32_t i = 0; i < 4; i++)
		round_do(life, &alpha, i, &beta, i);
	destroy(life, &beta);
	open_job(life, &beta, &node, 2);
	for (uint32_t i = 0; i < 2; i++)
		round_do(life, &alpha, 4 + i, &beta, i);
	stop(&node, &alpha, &beta);

	start(&node, directory, LARGE_STORE_BYTES);
	open_job(life, &alpha, &node, 0);
	open_job(life, &beta, &node, 2);
	for (uint32_t i = 0; i < 3; i++)
		round_do(life, &alpha, 6 + i, &beta, 2 + i);
	stop(&node, &alpha, &beta);

	start(&node, directory, LARGE_STORE_BYTES);
	open_job(life, &beta, &node, 2);
	open_job(life, &alpha, &node, 0);
	for (uint32_t i = 0; i < 3; i++)
		round_do(life, &beta, 5 + i, &alpha, 9 + i);
	stop(&node, &alpha, &beta);
}

/* ---- the judge ---- */

struct judge {
	const struct life *life;
	enum life_trial trial;
	uint64_t cut;
	struct node node;
	struct zi_text *text;
	enum life_verdict verdict;
};

/* The worst that was found, with its sentence. @is_wrong: it must not be, whatever the words. */
static void find(struct judge *judge, bool is_wrong, const char *name, const char *what,
                 const char *why)
{
	enum life_verdict verdict = is_wrong ? LIFE_WRONG : LIFE_NAMED;

	if (verdict <= judge->verdict)
		return;
	judge->verdict = verdict;
	zi_text_set(judge->text, "%s: %s: %.180s", name, what, why);
}

static bool is_power(const struct life *life, uint32_t name)
{
	return life->durability == LIFE_POWER || (life->durability == LIFE_MIXED && name == 0);
}

/* Whether nothing may be lost or damaged. */
static bool is_promised(const struct judge *judge, uint32_t name)
{
	return judge->trial == LIFE_HONEST && is_power(judge->life, name);
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
		if (judge->trial != LIFE_LOG_DAMAGED && is_power(life, name) &&
		    point->acknowledged < judge->cut)
			return false;
	}
	return false;
}

/* Which life of the job lies there: their layouts differ. */
static int32_t kind_of(const struct zero_job *job, uint32_t name)
{
	for (uint32_t kind = 0; kind < LIFE_KINDS; kind++)
		if (name_of_kind[kind] == name && job->layout.unit_count &&
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
		is_over = operations[serial] == 'S';
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
	             durability_of(judge->life, (uint32_t)kind));
	if (r) {
		find(judge, is_safe || !job.text.chars[0], words, "cannot be opened",
		     job.text.chars);
		return;
	}
	judge_open(judge, &job, name);
	job_close(&job);
}

/* A daemon must start after every power failure, whatever its jobs ask for: only what a job has
 * committed last may be lost. On damage it may refuse to. */
enum life_verdict life_judge(const struct life *life, enum life_trial trial, const char *directory,
                             uint64_t cut, struct zi_text *text)
{
	struct judge judge = { .life = life, .trial = trial, .cut = cut, .text = text };
	struct zi_text why;

	text->chars[0] = '\0';
	if (node_start(&judge.node, directory, LARGE_STORE_BYTES, &why)) {
		find(&judge, trial == LIFE_HONEST || !why.chars[0], "the daemon", "does not start",
		     why.chars);
		return judge.verdict;
	}
	node_settle(&judge.node); /* What was never committed is deleted. */
	for (uint32_t name = 0; name < LIFE_NAMES; name++)
		judge_name(&judge, name);
	node_stop(&judge.node);
	return judge.verdict;
}
