/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: who is late, leaves or dies is told by name on all nodes, and nothing is left.
 * Method: several zeros in one process, whose workers are doubles, with what they say carried in
 * drawn orders (nodes.h).
 */
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/bytes/pull.h"
#include "tests/unit/zero/across.h"

Test(across_end, a_death_is_told_on_all_nodes)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		made(3, seed, "0012");
		actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
		actor_start(&ranks.actors[2], 0, zero_barrier, NULL);
		for (uint64_t i = 0; i < seed; i++)
			nodes_turn();
		actor_leave(&ranks.actors[seed % 2 ? 1 : 3], false);
		cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -EPIPE);
		all_hear(-EPIPE, seed % 2 ? "rank 1 (pid" : "rank 3 (pid");
		end(false);
	}
}

Test(across_end, a_rank_that_left_is_told_to_who_needs_it)
{
	made(2, 6, "01");
	actor_leave(&ranks.actors[1], true);
	for (uint32_t i = 0; i < 100; i++)
		nodes_turn();
	cr_expect(!ranks.actors[0].is_broken, "nobody needs it");
	actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -EPIPE);
	all_hear(-EPIPE, "rank 1 (pid");
	end(true);
}

Test(across_end, a_rank_that_leaves_while_it_is_waited_for_ends_the_wait)
{
	made(2, 7, "01");
	actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
	for (uint32_t i = 0; i < 100; i++)
		nodes_turn();
	actor_leave(&ranks.actors[1], true);
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -EPIPE);
	all_hear(-EPIPE, "rank 1 (pid");
	end(true);
}

/* Who has left does not end the others: they may still read what is there. */
Test(across_end, nodes_stay_until_the_last_has_left)
{
	made(3, 11, "012");
	actor_leave(&ranks.actors[0], true);
	actor_leave(&ranks.actors[2], true);
	for (uint32_t i = 0; i < 300; i++)
		nodes_turn();
	cr_expect(!ranks.actors[1].is_broken);
	cr_expect(across_stays(net.nodes[0].zero, "train"));
	actor_leave(&ranks.actors[1], true);
	nodes_settle();
	cr_expect(!across_stays(net.nodes[0].zero, "train"));
	cr_expect_null(net.workers);
	end(true);
}

Test(across_end, a_worker_that_ends_is_told_on_all_nodes)
{
	made(2, 13, "01");
	actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
	nodes_crash(1);
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -EPIPE);
	all_hear(-EPIPE, "");
	cr_expect_not_null(strstr(ranks.actors[1].broken_text.chars, "killed by signal 9"));
	end(false);
}

/* A rank, or its worker, goes at any moment while parameters are pulled. */
Test(across_end, a_death_while_bytes_are_on_their_way_leaves_nothing)
{
	each_draw(seed, 24) {
		made(3, seed, "012");
		cr_assert_eq(actor_unit(&ranks.actors[0], zero_param_write_begin, 1), 0);
		for (uint32_t i = 0; i < 3; i++)
			actor_start(&ranks.actors[i], 0, zero_param_write_end,
			            &(struct zero_op){ .unit = 1 });
		for (uint64_t i = 0; i < 2 * seed; i++)
			nodes_turn();
		if (seed % 3 == 0)
			nodes_crash(seed % 2);
		else
			actor_leave(&ranks.actors[seed % 2], seed % 3 == 1);
		for (uint32_t i = 0; i < 30; i++)
			nodes_turn();
		end(false);
	}
}

/* What rank 3 writes into unit 1 becomes its, and that rank leaves when its own call has ended.
 * @is_held: what node 0 asks its node for comes when it has gone. */
static void write_and_go(bool is_held)
{
	const struct across *across = node_job(&net.nodes[2], "train")->across;

	cr_assert_eq(actor_unit(&ranks.actors[3], zero_param_write_begin, 1), 0);
	for (uint32_t i = 0; i < ranks.world; i++)
		actor_start(&ranks.actors[i], 0, zero_param_write_end,
		            &(struct zero_op){ .unit = 1, .root = 3 });
	while (!across->write_count)
		nodes_turn();
	nodes_hold(0, 2, is_held);
	cr_assert_eq(nodes_wait(&ranks.actors[3], 0), 0);
	actor_leave(&ranks.actors[3], true);
	for (uint32_t i = net_draw(8); i > 0; i--)
		nodes_turn();
	nodes_hold(0, 2, false);
}

/* It is the only rank of its node, and was sooner than those who pull what it has written. */
Test(across_end, who_leaves_with_what_others_have_yet_to_pull_is_named)
{
	uint32_t named_count = 0;

	each_draw(seed, 24) {
		made(3, seed, "0012");
		write_and_go(seed % 2);
		for (uint32_t i = 0; i < 3; i++) {
			const char *text = ranks.actors[i].text.chars;
			int r = nodes_wait(&ranks.actors[i], 0);

			cr_expect(!r || r == -EPIPE, "rank %u: %d", i, r);
			cr_expect(!r || strstr(text, "have left"), "%s", text);
			named_count += strstr(text, "unit 'h.0' are on node 2 (ranks 3") != NULL;
		}
		end(false);
	}
	cr_expect_gt(named_count, draw_share(8), "%u", named_count);
}

/* What nobody may ask for ends the talk, with its figures. */
Test(across_end, a_pull_of_what_is_not_there_is_refused)
{
	static const struct talk_entry bad[] = {
		{ .what = PULL_WRITTEN, .micro = 1, .unit = UNITS, .bytes = 4096 },
		{ .what = PULL_WRITTEN, .micro = 1, .bytes = 0 },
		{ .what = PULL_WRITTEN, .micro = 1, .bytes = PULL_SLOT_BYTES + 1 },
		{ .what = PULL_WRITTEN, .micro = 1, .piece = UINT32_MAX, .bytes = 4096 },
		{ .what = PULL_WRITTEN, .micro = 1, .bytes = 1 << 20 },
		{ .what = PULL_WRITTEN, .micro = 0, .bytes = 4096 },
		{ .what = PULL_WRITTEN, .micro = 7, .bytes = 4096 },
		{ .what = _PULL_WHAT_COUNT, .bytes = 4096 },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		struct talk_entry entry = bad[i];

		made(2, i + 1, "01");
		entry.kind = TALK_PULL;
		nodes_say(0, 1, entry);
		all_hear(-EPROTO, "node 0 asks for");
		end(false);
	}
}

/* A start that does not come to talk fails, and the next one does. */
Test(across_end, a_worker_that_cannot_be_started_fails_the_call_alone)
{
	begin(2, 1, "01");
	model_layout(&ranks.actors[0]);
	net.start_error = -ENOENT;
	cr_expect_eq(actor_call(&ranks.actors[0], zero_materialize, &nodes_place), -ENOENT);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "zinf-net"));
	cr_expect(!ranks.actors[0].is_broken);
	cr_expect_eq(actor_call(&ranks.actors[0], zero_materialize, NULL), -EINVAL);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "MASTER_ADDR"));
	end(true);
}

/* A worker costs its uid descriptors of zinfd: where these are used up there is none. */
Test(across_end, a_worker_without_descriptors_fails_the_call_alone)
{
	static const struct zero_op place = { .bytes = 2 * MIB,
		                              .timeout_ns = 60 * ZI_NS_PER_S,
		                              .rendezvous_host = "first",
		                              .rendezvous_port = 29501,
		                              .interface = "",
		                              .token = "" };
	struct tier_account *account;

	begin(2, 1, "01");
	model_layout(&ranks.actors[0]);
	account = &node_job(&net.nodes[0], "train")->account->account;
	account->limit_fds = account->used_fds;
	cr_expect_eq(actor_call(&ranks.actors[0], zero_materialize, &place), -EDQUOT);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "raise limits.descriptors_per_uid"),
	                   "%s", ranks.actors[0].text.chars);
	cr_expect_eq(actor_call(&ranks.actors[0], zero_coll_open, &place), -EDQUOT);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "raise limits.descriptors_per_uid"),
	                   "%s", ranks.actors[0].text.chars);
	cr_expect(!ranks.actors[0].is_broken);
	cr_expect_eq(account->used_fds, account->limit_fds, "none are counted");
	end(true);
}

/* Memory for collectives is charged again when workers of an earlier start have gone: in vain. */
Test(across_end, arenas_that_have_no_room_are_told_on_all_nodes)
{
	struct zero_op place = nodes_place;

	place.bytes = 512 * MIB;
	begin(2, 5, "01");
	cr_expect_eq(nodes_all(&ranks, zero_coll_open, &place), -ENOSPC, "%s",
	             ranks.actors[0].text.chars);
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_not_null(strstr(ranks.actors[i].text.chars,
		                          "arenas of 1 x 512 MiB for collectives: "),
		                   "rank %u: %s", i, ranks.actors[i].text.chars);
	end(false);
}

Test(across_end, a_port_that_is_none_is_named)
{
	const uint32_t ports[] = { 0, 65536 };

	for (size_t i = 0; i < ZI_COUNT_OF(ports); i++) {
		struct zero_op place = nodes_place;

		place.rendezvous_port = ports[i];
		begin(2, 1, "01");
		nodes_layout(&ranks);
		cr_expect_eq(actor_call(&ranks.actors[0], zero_materialize, &place), -EINVAL);
		cr_expect_not_null(strstr(ranks.actors[0].text.chars, "1 to 65535 are allowed"),
		                   "%s", ranks.actors[0].text.chars);
		end(true);
	}
}

/* Two ranks of a node that were told different things: neither is believed. */
Test(across_end, ranks_of_a_node_that_would_meet_elsewhere_are_told)
{
	static const struct {
		struct zero_op op;
		const char *words;
	} others[] = {
		{ { .rendezvous_host = "second", .rendezvous_port = 29501, .interface = "" },
		  "has first:29501, rank 1 (pid " },
		{ { .rendezvous_host = "first", .rendezvous_port = 29502, .interface = "" },
		  "has first:29501, rank 1 (pid " },
		{ { .rendezvous_host = "first", .rendezvous_port = 29501, .interface = "eth1" },
		  "has '', rank 1 (pid " },
		{ { .rendezvous_host = "first",
		    .rendezvous_port = 29501,
		    .interface = "",
		    .token = "other" },
		  "rank 0 (pid" },
		{ { .rendezvous_host = NULL }, "set the same in all ranks" },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(others); i++) {
		begin(2, i + 1, "001");
		nodes_layout(&ranks);
		actor_start(&ranks.actors[1], 0, zero_materialize, &others[i].op);
		actor_start(&ranks.actors[0], 0, zero_materialize, &nodes_place);
		cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -EINVAL);
		cr_expect_eq(nodes_wait(&ranks.actors[1], 0), -EINVAL);
		cr_expect_not_null(strstr(ranks.actors[1].text.chars, others[i].words), "%s",
		                   ranks.actors[1].text.chars);
		end(false);
	}
}

/* Ranks go while their nodes meet, join, or compare what they have. */
Test(across_end, a_death_at_any_moment_of_the_beginning_leaves_nothing)
{
	each_draw(seed, 30) {
		begin(2, seed, "01");
		nodes_layout(&ranks);
		actor_start(&ranks.actors[0], 0, zero_materialize, &nodes_place);
		actor_start(&ranks.actors[1], 0, zero_materialize, &nodes_place);
		for (uint64_t i = 0; i < seed; i++)
			nodes_turn();
		actor_leave(&ranks.actors[seed % 2], seed % 3 == 0);
		for (uint32_t i = 0; i < 20; i++)
			nodes_turn();
		end(seed % 5 == 0);
	}
}

/* Of three nodes the last one has not come. The others, which wait for it, hear of a rank that goes
 * while they do, wherever it is, alone on its node or not; and the next start meets anew. */
Test(across_end, who_goes_while_nodes_meet_is_told_to_those_who_wait)
{
	static const char *const places[] = { "012", "0012", "0112" };

	for (uint32_t seed = 0; seed < 24; seed++) {
		bool is_clean = seed % 4 == 3;
		uint32_t gone, i;

		begin(3, seed + 1, places[seed % 3]);
		nodes_layout(&ranks);
		gone = seed / 3 % (ranks.world - 1);
		for (i = 0; i + 1 < ranks.world; i++)
			actor_start(&ranks.actors[i], 0, zero_materialize, &nodes_place);
		for (i = 0; i < 40 + seed; i++)
			nodes_turn();
		actor_leave(&ranks.actors[gone], is_clean);
		for (i = 0; i + 1 < ranks.world; i++) {
			const char *text = ranks.actors[i].text.chars;
			int r = i == gone ? 0 : nodes_wait(&ranks.actors[i], 0);

			if (i == gone)
				continue;
			cr_expect_eq(r, is_clean && strstr(text, "have left") ? -ECANCELED : -EPIPE,
			             "rank %u: %d, %s", i, r, text);
			cr_expect(strstr(text, is_clean ? "left" : "died"), "%s", text);
		}
		nodes_leave(&ranks, true);
		nodes_attach(&ranks, places[seed % 3],
		             &(struct attach_options){
				     .incarnation = "run.1",
				     .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) });
		nodes_layout(&ranks);
		cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
		end(true);
	}
}

/* ---- who is late ---- */

static void made_hasty(uint32_t count, uint64_t seed, const char *places)
{
	nodes_init(count, seed);
	nodes_start();
	nodes_attach(
		&ranks, places,
		&(struct attach_options){ .incarnation = "run.0",
	                                  .timeout_ns = patient_ns(400 * ZI_NS_PER_MS),
	                                  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) });
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
}

Test(across_end, a_rank_of_another_node_that_does_not_come_is_named)
{
	made_hasty(3, 17, "0112");
	actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
	actor_start(&ranks.actors[1], 0, zero_barrier, NULL);
	actor_start(&ranks.actors[3], 0, zero_barrier, NULL);
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -ETIMEDOUT);
	all_hear(-ETIMEDOUT, "rank 2 (pid");
	all_hear(-ETIMEDOUT, "its last call was materialize");
	cr_expect_null(strstr(ranks.actors[0].broken_text.chars, ": ;"), "%s",
	               ranks.actors[0].broken_text.chars);
	end(false);
}

/* What a node says that no daemon says ends the group, by a sentence with its number. */
Test(across_end, messages_that_cannot_be_end_the_group)
{
	static const struct {
		struct talk_entry entry;
		uint32_t from;
		const char *words;
	} bad[] = {
		{ { .kind = TALK_BYE, .unit = 1 }, 0, "rank 1 left, but rank 1 is not on node 0" },
		{ { .kind = TALK_BYE, .unit = 77 }, 0, "rank 77 is not on node 0" },
		{ { .kind = _TALK_KIND_COUNT }, 0, "node 0 sent an unexpected message" },
		{ { .kind = TALK_CAME, .tag = 5 }, 0, "answered a pull that nobody asked for" },
		{ { .kind = TALK_GONE, .tag = 5 }, 0, "sent data that was not served" },
		{ { .kind = TALK_ROUND, .what = ROUND_STEP, .tag = 99 },
		  0,
		  "node 0 votes in round 99" },
		{ { .kind = TALK_BYE, .unit = 0 }, 1, "has heard of node 1: there are 2" },
		{ { .kind = TALK_BYE, .unit = 0 }, 7, "has heard of node 7: there are 2" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		struct talk_entry entry = bad[i].entry;

		made(2, i + 1, "01");
		entry.node = (uint16_t)bad[i].from;
		entry.slab = NET_SLAB_TALK;
		net_put(nodes_worker(1), 0,
		        &(struct net_event){ .what = NET_EVENT_ENTRY, .entry = entry });
		all_hear(-EPROTO, bad[i].words);
		end(false);
	}
}

Test(across_end, a_node_that_does_not_say_why_is_named)
{
	made_hasty(2, 19, "01");
	nodes_hold(1, 0, true);
	actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -ETIMEDOUT);
	cr_expect_not_null(strstr(ranks.actors[0].broken_text.chars, "node 1 (ranks 1"), "%s",
	                   ranks.actors[0].broken_text.chars);
	cr_expect_not_null(strstr(ranks.actors[0].broken_text.chars, "does not report what"));
	nodes_hold(1, 0, false);
	all_hear(-ETIMEDOUT, "does not report what");
	end(false);
}

/* Rank 1 may not have come because of it. */
Test(across_end, a_silent_node_is_named_rather_than_a_rank_that_did_not_come)
{
	made_hasty(3, 29, "012");
	nodes_hold(2, 0, true);
	actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -ETIMEDOUT);
	nodes_hold(2, 0, false);
	all_hear(-ETIMEDOUT, ": node 2 (ranks 2");
	end(false);
}

/* Node 0's worker serves the store, in which the others read why it ended: they may yet be at it
 * when all ranks here have heard, and gone. */
Test(across_end, who_serves_the_last_words_stays_a_while)
{
	made(2, 27, "01");
	actor_leave(&ranks.actors[1], false);
	all_hear(-EPIPE, "rank 1 (pid");
	nodes_leave(&ranks, false);
	nodes_settle();
	cr_expect_not(zi_list_is_empty(&net.nodes[0].zero->acrosses));
	cr_expect(container_of(net.nodes[0].zero->acrosses.next, struct across, link)->is_answered);
	cr_expect(zi_list_is_empty(&net.nodes[1].zero->acrosses));
	while (!zi_list_is_empty(&net.nodes[0].zero->acrosses))
		nodes_turn();
	nodes_deinit();
}

/* What keeps it is said on its way to the vote itself: that is over. */
Test(across_end, an_answer_that_comes_too_late_ends_nothing)
{
	struct across *across;

	made_hasty(2, 21, "01");
	across = node_job(&net.nodes[0], "train")->across;
	nodes_hold(1, 0, true);
	actor_start(&ranks.actors[0], 0, zero_barrier, NULL);
	while (!across->late.asked)
		nodes_turn();
	actor_start(&ranks.actors[1], 0, zero_barrier, NULL);
	nodes_hold(1, 0, false);
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
	late_answered(across,
	              &(struct talk_entry){ .kind = TALK_BECAUSE,
	                                    .node = 1,
	                                    .unit = 1,
	                                    .tag = across->late.number,
	                                    .data_bytes = 4,
	                                    .data = "late" },
	              &(struct zi_text){ "" });
	cr_expect_eq(nodes_all(&ranks, zero_barrier, NULL), 0, "%s", ranks.actors[0].text.chars);
	end(true);
}

/* Who takes nothing of what is said to it costs the group, not the daemon. */
Test(across_end, a_node_that_takes_nothing_ends_the_group)
{
	struct across *across;

	made(2, 25, "01");
	across = node_job(&net.nodes[0], "train")->across;
	nodes_hold(0, 1, true);
	net.room = 1;
	for (uint32_t i = 0; i < ACROSS_QUEUE + 8; i++)
		across_say(across, 1,
		           &(struct talk_entry){ .kind = TALK_WHY, .what = ROUND_BARRIER });
	cr_expect_not(ranks.actors[0].is_broken, "from the loop");
	while (!ranks.actors[0].is_broken)
		nodes_turn();
	cr_expect_eq(ranks.actors[0].broken_error, -EPROTO);
	cr_expect_not_null(strstr(ranks.actors[0].broken_text.chars, "node 1 takes nothing: "),
	                   "%s", ranks.actors[0].broken_text.chars);
	net.room = 0;
	nodes_hold(0, 1, false);
	end(false);
}

/* ---- beside collectives ---- */

/* Who has opened collectives has met: training joins through the same store, which then stays. */
Test(across_end, nodes_meet_once)
{
	begin(2, 3, "01");
	for (uint32_t i = 0; i < 2; i++)
		actor_start(&ranks.actors[i], 0, zero_coll_open,
		            &(struct zero_op){ .bytes = 2 * MIB,
		                               .rendezvous_host = "first",
		                               .rendezvous_port = 29501,
		                               .interface = "",
		                               .token = "" });
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
	cr_expect_eq(net.run, 1, "one store");
	cr_expect_eq(net.worker_count, 4);
	cr_expect_eq(nodes_all(&ranks, zero_barrier, NULL), 0);
	actor_leave(&ranks.actors[0], true);
	for (uint64_t due_ns = zi_clock_deadline_ns(1500 * ZI_NS_PER_MS);
	     zi_clock_now_ns() < due_ns;)
		nodes_turn();
	cr_expect(!zi_list_is_empty(&net.nodes[0].zero->fars), "it may serve the store");
	cr_expect(!ranks.actors[1].is_broken || ranks.actors[1].broken_error == -EPIPE);
	actor_leave(&ranks.actors[1], true);
	nodes_settle();
	while (!zi_list_is_empty(&net.nodes[0].zero->fars))
		nodes_turn();
	end(true);
}

Test(across_end, collectives_come_first)
{
	made(2, 3, "01");
	cr_expect_eq(nodes_all(&ranks, zero_coll_open,
	                       &(struct zero_op){ .bytes = 2 * MIB,
	                                          .rendezvous_host = "first",
	                                          .rendezvous_port = 29501,
	                                          .interface = "",
	                                          .token = "" }),
	             -EOPNOTSUPP);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "before zinf_materialize()"));
	end(true);
}

/* ---- a new start ---- */

Test(across_end, a_newer_incarnation_trains_where_the_former_broke)
{
	made(2, 23, "01");
	actor_leave(&ranks.actors[1], false);
	all_hear(-EPIPE, "rank 1");
	nodes_leave(&ranks, false);
	nodes_settle();
	nodes_attach(
		&ranks, "10",
		&(struct attach_options){ .incarnation = "run.1",
	                                  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) });
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
	cr_expect_eq(across_node(node_job(&net.nodes[1], "train")), 0, "rank 0 is there now");
	cr_assert_eq(nodes_all(&ranks, zero_barrier, NULL), 0);
	end(true);
}
