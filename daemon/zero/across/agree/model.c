/* SPDX-License-Identifier: Apache-2.0 */
/* The same model on all nodes; see model.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/model.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/search.h"
#include "daemon/zero/job/attach_config.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/snapshot/load_nodes.h"

/* The first votes. */
struct model_words {
	char host[ZI_NAME_BYTES];
	struct zi_job_config config;
	uint64_t line;    /* node 0's is all nodes' */
	uint32_t rank;    /* one of the node's, that speaks */
	uint32_t version; /* ROUND_VERSION: last, however long the vote is */
};
struct layout_words {
	struct zi_job_training training;
	struct search_sizes sizes;
	uint32_t rank;
	uint64_t digest;
	struct load_words load;
};
static_assert(sizeof(struct model_words) <= TALK_DATA_BYTES, "one vote");
static_assert(offsetof(struct model_words, version) + sizeof(uint32_t) ==
                      sizeof(struct model_words),
              "no padding behind it");
static_assert(sizeof(struct layout_words) <= TALK_DATA_BYTES, "one vote");

static uint32_t first_rank(const struct zero_job *job)
{
	return (uint32_t)__builtin_ctzll(job->group.gather_masks[ZERO_GATHER_MATERIALIZE]);
}

static const struct zero_layout *layout_of(const struct zero_job *job)
{
	return &job->group.ranks[first_rank(job)]->layout;
}

/* ---- the end ---- */

/* Without an outcome: whoever waits is told, if there is anybody. Return: false, there is one. */
static bool is_over(struct zero_job *job, int error, const struct zi_text *text)
{
	if (!error && job->group.phase == ZERO_GROUP_FORMING)
		return false;
	job->model_agreed(job, error ? error : -ECANCELED, text);
	return true;
}

/* @rank: of those that differ. */
static void refuse(struct zero_job *job, int error, uint32_t rank, const struct zi_text *text)
{
	group_break(job, error, rank < job->group.world_size ? rank : UINT32_MAX, text);
	job->model_agreed(job, error, text);
}

/* "rank 2 (on node 1, host)" */
static struct zi_text say_rank(const struct zero_job *job, uint32_t rank, uint32_t node)
{
	struct zi_text text;

	zi_text_set(&text, "rank %u (on %.60s)", rank, across_name(job, node).chars);
	return text;
}

/* ---- where two differ ---- */

static void searched(void *arg, const struct round *round, int error, const struct zi_text *text);

static void search_on(struct zero_job *job)
{
	struct round_vote vote;

	search_vote(&job->across->search, layout_of(job), &vote);
	across_vote(job, ROUND_SEARCH, &vote, searched);
}

static void searched(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct search *search = &job->across->search;
	struct zi_text why, where;

	if (is_over(job, error, text))
		return;
	if (search_narrow(search, round, across_node_count(job))) {
		search_on(job);
		return;
	}
	search_say(search, round, &where);
	zi_text_set(&why, "%.150s in %.40s; all ranks must have the same model", where.chars,
	            across_name(job, search->odd).chars);
	zi_utf8_clean(why.chars); /* Names are other nodes' words. */
	refuse(job, -EINVAL, UINT32_MAX, &why);
}

/* ---- how it trains ---- */

static int compare_layout(const struct zero_job *job, const struct layout_words *words,
                          const struct layout_words *model, uint32_t node, struct zi_text *text)
{
	struct zi_text whose = say_rank(job, model->rank, 0), why;
	int r = zi_training_compare(&words->training, &model->training, &job->group.config,
	                            whose.chars, &why);

	if (r)
		zi_text_set(text, "%.40s: %.190s", say_rank(job, words->rank, node).chars,
		            why.chars);
	return err_trace(r);
}

/* What others say of theirs, which differs: this node counts no further than its own might go. */
static int check_sizes(const struct zero_job *job, const struct search_sizes *most,
                       struct zi_text *text)
{
	const struct zero_options *options = &job->zero->options;

	if (most->set_count <= ZI_SETS_MAX && most->unit_count <= options->units_max &&
	    most->param_count <= options->params_max)
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL,
		"models differ: one has %u data-parallel groups, %u units, %u parameters or less, "
		"and this node "
		"takes %u, %u and %u; all ranks must have the same model",
		most->set_count, most->unit_count, most->param_count, ZI_SETS_MAX,
		options->units_max, options->params_max));
}

/* A job that is new on all nodes begins with the same everywhere; one that some node has goes on
 * from there. */
static int compare_loads(struct zero_job *job, const struct round *round, struct zi_text *text)
{
	uint32_t node_count = across_node_count(job);
	struct layout_words first, other;
	bool is_stored = false;
	int r = 0;

	memcpy(&first, round->votes[0].data, sizeof(first));
	for (uint32_t i = 0; i < node_count; i++) {
		memcpy(&other, round->votes[i].data, sizeof(other));
		is_stored |= other.load.kind == LOAD_STORED;
	}
	if (is_stored) {
		load_words_drop(job);
		return 0;
	}
	for (uint32_t i = 0; i < node_count && !r; i++) {
		memcpy(&other, round->votes[i].data, sizeof(other));
		r = load_words_compare(job, &other.load, &first.load, i, text);
	}
	return err_trace(r);
}

static void layouts_known(void *arg, const struct round *round, int error,
                          const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct layout_words first, other;
	struct search_sizes most = { 0 };
	struct zi_text why;
	bool differs = false;
	int r = 0;

	if (is_over(job, error, text))
		return;
	memcpy(&first, round->votes[0].data, sizeof(first));
	for (uint32_t i = 0; i < across_node_count(job) && !r; i++) {
		memcpy(&other, round->votes[i].data, sizeof(other));
		r = compare_layout(job, &other, &first, i, &why);
		search_widen(&most, &other.sizes);
		differs |= other.digest != first.digest;
	}
	if (r) {
		refuse(job, r, other.rank, &why);
		return;
	}
	if (!differs) {
		r = compare_loads(job, round, &why);
		if (r)
			refuse(job, r, UINT32_MAX, &why);
		else
			job->model_agreed(job, 0, NULL);
		return;
	}
	r = check_sizes(job, &most, &why);
	if (r) {
		refuse(job, r, UINT32_MAX, &why);
		return;
	}
	search_begin(&job->across->search, &most);
	search_on(job);
}

/* ---- what it is ---- */

static uint32_t version_of(const struct round_vote *vote)
{
	uint32_t version = 0;

	if (vote->data_bytes >= sizeof(version))
		memcpy(&version, vote->data + vote->data_bytes - sizeof(version), sizeof(version));
	return version;
}

/* Of a node whose rounds are others nothing else can be read. */
static int compare_builds(const struct zero_job *job, const struct round *round,
                          struct zi_text *text)
{
	const struct round_vote *first = &round->votes[0];

	for (uint32_t i = 1; i < across_node_count(job); i++) {
		const struct round_vote *other = &round->votes[i];

		if (version_of(other) == version_of(first) &&
		    other->data_bytes == first->data_bytes)
			continue;
		zi_text_set(text,
		            "zinfd of %.90s is of another build than that of %.90s (rounds of "
		            "version %u and %u): install the same zinf on all nodes",
		            across_name(job, i).chars, across_name(job, 0).chars, version_of(other),
		            version_of(first));
		return err_origin(-EPROTONOSUPPORT);
	}
	return 0;
}

static int compare_model(const struct zero_job *job, const struct model_words *words,
                         const struct model_words *model, uint32_t node, struct zi_text *text)
{
	struct zi_text whose = say_rank(job, model->rank, 0), why;
	int r = attach_compare(&words->config, &model->config, whose.chars, &why);

	if (r)
		zi_text_set(text, "%.40s: %.190s", say_rank(job, words->rank, node).chars,
		            why.chars);
	return err_trace(r);
}

/* For people, another node's word. */
static void take_host(struct across *across, uint32_t node, const char *host)
{
	char *place = across->peers[node].host;

	memcpy(place, host, ZI_NAME_BYTES - 1);
	zi_utf8_clean(place);
}

static void models_known(void *arg, const struct round *round, int error,
                         const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct model_words first, other;
	struct layout_words words;
	struct round_vote vote = { .data_bytes = sizeof(words) };
	struct zi_text why;
	int r = 0;

	if (is_over(job, error, text))
		return;
	r = compare_builds(job, round, &why);
	if (r) {
		refuse(job, r, UINT32_MAX, &why);
		return;
	}
	memcpy(&first, round->votes[0].data, sizeof(first));
	for (uint32_t i = 0; i < across_node_count(job); i++)
		take_host(job->across, i, (const char *)round->votes[i].data);
	for (uint32_t i = 0; i < across_node_count(job) && !r; i++) {
		memcpy(&other, round->votes[i].data, sizeof(other));
		r = compare_model(job, &other, &first, i, &why);
	}
	if (r) {
		refuse(job, r, other.rank, &why);
		return;
	}
	job->group.line = first.line;
	job->across->line = first.line;
	memset(&words, 0, sizeof(words)); /* All of it is sent. */
	words.training = job->group.training;
	words.rank = first_rank(job);
	words.digest = search_digest(layout_of(job), &words.sizes);
	load_words_make(job, &words.load);
	memcpy(vote.data, &words, sizeof(words));
	across_vote(job, ROUND_LAYOUT, &vote, layouts_known);
}

static void vote_model(struct zero_job *job)
{
	struct model_words words;
	struct round_vote vote = { .data_bytes = sizeof(words) };

	memset(&words, 0, sizeof(words));                      /* All of it is sent. */
	(void)gethostname(words.host, sizeof(words.host) - 1); /* For people. */
	words.config = job->group.config;
	words.line = job->group.line;
	words.rank = first_rank(job);
	words.version = ROUND_VERSION;
	memcpy(vote.data, &words, sizeof(words));
	across_vote(job, ROUND_MODEL, &vote, models_known);
}

static void joined(struct zero_job *job, int error, const struct zi_text *text)
{
	if (!is_over(job, error, text))
		vote_model(job);
}

/* Documented in the header. */
void model_agree(struct zero_job *job, model_agreed_fn agreed)
{
	const struct zero_rank *first = job->group.ranks[first_rank(job)];
	struct zi_text text = { "" };
	int r;

	job->model_agreed = agreed;
	if (across_talks(job)) {
		vote_model(job); /* The last time it came to nothing. */
		return;
	}
	r = across_open(job, first->gathered[ZERO_GATHER_MATERIALIZE], joined, &text);
	if (r)
		agreed(job, r, &text);
}
