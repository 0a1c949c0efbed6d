/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: each node keeps what ranks of all nodes gave with a commit, of whatever length, in its
 * catalog too; of a node that says or gives what cannot be nothing is taken, and all hear of it.
 * Method: as in test_across_train.c, with blobs of drawn lengths, and a network that changes what
 * comes from one node.
 */
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/across_train.h"

TestSuite(across_blobs, .timeout = 300);

static struct zero_job *job_at(uint32_t place)
{
	return node_job(&net.nodes[place], "train");
}

/* ---- what ranks give ---- */

static const uint32_t lengths[] = { 17, ZI_BLOB_BYTES, 0, 4096, 1, 5000, ZI_BLOB_BYTES - 1 };

static uint32_t bytes_of(uint64_t step, uint32_t rank)
{
	return lengths[(3 * step + rank) % ZI_COUNT_OF(lengths)];
}

static const char *blob_of(uint64_t step, uint32_t rank)
{
	static char blobs[8][ZI_BLOB_BYTES];

	for (uint32_t i = 0; i < ZI_BLOB_BYTES; i++)
		blobs[rank][i] = (char)(i * 31 + i / 256 + step * 7 + rank);
	return blobs[rank];
}

static int give(call_fn function, uint64_t step)
{
	for (uint32_t i = 0; i < ranks.world; i++)
		actor_start(&ranks.actors[i], 0, function,
		            &(struct zero_op){ .blob = blob_of(step, i),
		                               .blob_bytes = bytes_of(step, i) });
	return train_step_end();
}

/* Of all ranks, in force on every node. */
static void check_kept(uint64_t step)
{
	for (uint32_t place = 0; place < net.count; place++) {
		const struct zero_job *job = job_at(place);

		cr_assert_eq(job->committed_step, (int64_t)step);
		for (uint32_t i = 0; i < ranks.world; i++) {
			const struct zero_blob *blob = &job->blobs[job->committed.blob_index][i];

			cr_assert_eq(blob->byte_count, bytes_of(step, i),
			             "node %u: rank %u's of step %llu", place, i,
			             (unsigned long long)step);
			cr_assert(!blob->byte_count ||
			                  !memcmp(blob->bytes, blob_of(step, i), blob->byte_count),
			          "node %u: rank %u's of step %llu", place, i,
			          (unsigned long long)step);
		}
	}
}

static void come(const struct train *what, uint64_t seed)
{
	train_init(what, seed);
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
}

static void make_step(uint64_t step)
{
	cr_assert_eq(train_gradients(step), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(give(zero_step, step), 0, "%s", ranks.actors[0].text.chars);
}

/* ---- kept ---- */

Test(across_blobs, each_node_keeps_those_of_all)
{
	static const char *const places[] = { "01", "0012", "012", "0101" };

	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct train what = wanted(places[seed % ZI_COUNT_OF(places)], ZI_OFFLOAD_NVME);

		what.training.strategy = strategy_of(seed);
		come(&what, seed);
		cr_assert_eq(give(zero_commit, 0), 0, "%s", ranks.actors[0].text.chars);
		check_kept(0);
		for (uint64_t step = 1; step <= 3; step++) {
			make_step(step);
			check_kept(step);
		}
		train_leave(true);
		for (uint32_t i = 0; i < net.count; i++) {
			node_stop(&net.nodes[i]);
			node_start(&net.nodes[i]);
		}
		check_kept(3);
		end_train();
	}
}

/* Longer than a slot. */
Test(across_blobs, they_come_in_pieces)
{
	struct train what = wanted("0012", ZI_OFFLOAD_NVME);

	come(&what, 5);
	for (uint32_t i = 0; i < net.count; i++)
		cr_assert_eq(pull_divide(job_at(i)->across, 4096), 0);
	cr_assert_eq(give(zero_commit, 0), 0, "%s", ranks.actors[0].text.chars);
	check_kept(0);
	end_train();
}

/* With steps that are not committed the blobs are those of the one that is. */
Test(across_blobs, those_of_the_step_that_is_committed)
{
	struct train what = wanted("011", ZI_OFFLOAD_NVME);

	what.config.commit_interval = 2;
	come(&what, 6);
	cr_assert_eq(give(zero_commit, 0), 0, "%s", ranks.actors[0].text.chars);
	make_step(1);
	check_kept(0);
	make_step(2);
	check_kept(2);
	/* Ranks leave one step ahead, which is committed then. */
	make_step(3);
	train_leave(true);
	check_kept(3);
	train_deinit();
}

/* State in memory alone is not healed: each node has those of its own ranks. */
Test(across_blobs, of_state_in_memory_none_are_pulled)
{
	struct train what = wanted("01", ZI_OFFLOAD_CPU);

	come(&what, 7);
	cr_assert_eq(give(zero_commit, 0), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_null(job_at(0)->across->blobs);
	cr_assert_eq(job_at(0)->blobs[job_at(0)->blob_index][1].byte_count, 0);
	end_train();
}

/* ---- lies ---- */

static struct {
	uint32_t at, value; /* of the table that node 0 gives; or of what it says */
	uint32_t count;     /* how often it was done */
} lie;

static void spoil_table(struct net_worker *worker, uint32_t from, struct talk_entry *entry)
{
	/* What was asked for is known by its length: table and blobs of ranks 0 and 1. */
	if (from != 0 || entry->kind != TALK_CAME || worker->place != 1 ||
	    entry->bytes != 256 + bytes_of(0, 0) + bytes_of(0, 1))
		return;
	memcpy(worker->slab + entry->offset_bytes + lie.at * sizeof(lie.value), &lie.value,
	       sizeof(lie.value));
	lie.count++;
}

static void spoil_vote(struct net_worker *worker, uint32_t from, struct talk_entry *entry)
{
	(void)worker;
	if (from != 0 || entry->kind != TALK_ROUND || entry->what != ROUND_COMMIT)
		return;
	memcpy(entry->data + 16, &lie.value, sizeof(lie.value));
	lie.count++;
}

typedef void (*spoil_fn)(struct net_worker *worker, uint32_t from, struct talk_entry *entry);

static void lied(uint64_t seed, spoil_fn spoil, const char *words)
{
	struct train what = wanted("0011", ZI_OFFLOAD_NVME);

	lie.count = 0;
	come(&what, seed);
	net.spoil = spoil;
	cr_expect_neq(give(zero_commit, 0), 0);
	all_hear(-EPROTO, words);
	cr_assert_gt(lie.count, 0);
	for (uint32_t i = 0; i < net.count; i++)
		cr_expect_eq(job_at(i)->committed_step, -1);
	train_leave(false);
	net.spoil = NULL;
	train_deinit();
}

Test(across_blobs, a_table_that_cannot_be_is_not_taken)
{
	static const struct {
		uint32_t at, value;
	} bad[] = {
		{ 0, UINT32_MAX },        /* longer than any */
		{ 0, ZI_BLOB_BYTES + 1 }, /* by one */
		{ 0, 16 },                /* not what it said in all */
		{ 2, 1 },                 /* of a rank of this node */
		{ 4, 1 },                 /* of none */
		{ ZI_WORLD_MAX - 1, 1 },  /* nor of this one */
		{ 1, 0 },                 /* one is left out */
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		lie.at = bad[i].at;
		lie.value = bad[i].value;
		lied(i + 1, spoil_table, "gives resume blobs that are none");
	}
}

Test(across_blobs, a_vote_that_cannot_be_breaks_the_group)
{
	static const uint32_t bad[] = { 1, 256, 257 + 2 * ZI_BLOB_BYTES, UINT32_MAX };

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		lie.value = bad[i];
		lied(i + 1, spoil_vote, "comes to commit with resume blobs of");
	}
}

/* What node 0 would ask of node 1. */
static void ask(struct talk_entry entry)
{
	entry.kind = TALK_PULL;
	entry.what = PULL_BLOBS;
	nodes_say(0, 1, entry);
}

Test(across_blobs, nothing_is_given_but_what_was_agreed_on)
{
	uint32_t whole = 256 + lengths[1] + lengths[2]; /* of ranks 1 and 2, at the first commit */
	const struct talk_entry bad[] = {
		{ .micro = 0, .bytes = whole },                  /* of none */
		{ .micro = 3, .bytes = whole },                  /* of the next but one */
		{ .micro = UINT32_MAX, .bytes = whole },         /* long ago */
		{ .micro = 1, .bytes = whole - 1 },              /* too few */
		{ .micro = 1, .bytes = whole + 1 },              /* too many */
		{ .micro = 1, .bytes = whole, .piece = 1 },      /* behind it */
		{ .micro = 1, .bytes = 1, .piece = UINT32_MAX }, /* far behind */
		{ .micro = 1, .bytes = 0 },                      /* nothing */
		{ .micro = 2, .bytes = 1ull << 40 },             /* more than a slot, of the next */
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		struct train what = wanted("011", ZI_OFFLOAD_NVME);

		come(&what, i + 1);
		cr_assert_eq(give(zero_commit, 0), 0, "%s", ranks.actors[0].text.chars);
		ask(bad[i]);
		all_hear(-EPROTO, "node 0 asks for");
		train_leave(false);
		train_deinit();
	}
}
