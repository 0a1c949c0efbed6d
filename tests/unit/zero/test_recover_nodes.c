/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of a job that several nodes committed a node holds, after a start, what was its own then
 * and nothing else; what is missing of that, or should not be there, is damage; and a node alone
 * does not train on with a part. Method: the catalog of a job of two ranks is made that of the node
 * of one of them, by the rule of owners alone.
 */
#include "common/wire/owner.h"
#include "tests/unit/catalog/reseal.h"
#include "tests/unit/zero/voted.h"

#define WORLD 2u

static struct kept kept;

static void sql(const char *statement)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/catalog.db", node.directory);
	change_file(path, statement, true);
}

/* What member @owner of two owns; else the other's. */
static bool is_owned(uint32_t owner, uint32_t unit, uint32_t subgroup)
{
	struct zi_owners owners;
	uint32_t found = WORLD;

	zi_owners_init(&owners, WORLD);
	for (uint32_t u = 0; u < UNITS && found == WORLD; u++) {
		uint64_t padded = zi_geometry_padded(model_elements[u]);

		for (uint32_t s = 0; s < zi_geometry_subgroup_count(padded); s++) {
			uint32_t one =
				zi_owners_deal(&owners, zi_geometry_subgroup_elements(padded, s));

			if (u == unit && s == subgroup)
				found = one;
		}
	}
	return found == owner;
}

/* The job of two nodes, with zero1, as the node of rank @rank has it. */
static void begin_part(uint32_t rank)
{
	char statement[256];

	votes_begin_nvme(WORLD);
	step(WORLD, 1);
	leave_all(WORLD);
	node_stop(&node);
	ballots_forget();
	(void)snprintf(statement, sizeof(statement),
	               "DELETE FROM stand WHERE step = 0;"
	               "DELETE FROM extent WHERE slot NOT IN (SELECT slot FROM stand);"
	               "DELETE FROM blob WHERE slot NOT IN (SELECT slot FROM stand);"
	               "UPDATE stand SET strategy = %u, node_count = 2, nodes = x'0001%02x'",
	               (unsigned)ZI_STRATEGY_ZERO1, rank);
	sql(statement);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t padded = zi_geometry_padded(model_elements[unit]);

		for (uint32_t i = 0; i < zi_geometry_subgroup_count(padded); i++) {
			if (is_owned(rank, unit, i))
				continue;
			(void)snprintf(statement, sizeof(statement),
			               "DELETE FROM extent WHERE unit = %u AND subgroup = %u", unit,
			               i);
			sql(statement);
		}
	}
}

static void start_and_refused(uint32_t rank, const char *statement, const char *word)
{
	begin_part(rank);
	sql(statement);
	node_start(&node);
	cr_assert_eq(job()->refusal, -EUCLEAN, "%s", statement);
	cr_assert_not_null(strstr(job()->refusal_text.chars, word), "%s",
	                   job()->refusal_text.chars);
	end(WORLD);
}

static void holds_its_part(uint32_t rank)
{
	uint64_t elements = 0;

	begin_part(rank);
	node_start(&node);
	cr_assert_eq(job()->refusal, 0, "%s", job()->refusal_text.chars);
	cr_assert_eq(job()->here_mask, 1ull << rank);
	for (uint32_t i = 0; i < job()->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job()->subgroups[i];
		bool is_mine = is_owned(rank, subgroup->unit, subgroup->index);

		cr_assert_eq(subgroup->is_here, is_mine);
		cr_assert_eq(subgroup->places[ZERO_PLANE_STATE].extent.bytes > 0, is_mine);
		elements += is_mine ? subgroup->element_count : 0;
	}
	cr_assert_eq(job()->here_elements, elements);
	cr_assert_lt(elements, job()->padded_count);
	cr_assert_eq(held_bytes(), elements * 12);
	cr_assert_eq(job()->nvme_charge.bytes, 2 * elements * 12);
	model_attach(&node, actors, WORLD, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, WORLD), -ENODATA);
	cr_assert_not_null(strstr(actors[0].text.chars, "had: start that node too"), "%s",
	                   actors[0].text.chars);
	leave_all(WORLD);
	cr_assert_eq(held_bytes(), elements * 12);
	end(WORLD);
}

Test(zero_recover_nodes, node_holds_what_was_its_own)
{
	holds_its_part(0);
	holds_its_part(1);
}

Test(zero_recover_nodes, what_is_missing_or_another_nodes_is_damage)
{
	start_and_refused(0, "DELETE FROM extent WHERE unit = 0 AND plane = 1",
	                  "optimizer state without an extent");
	start_and_refused(0, "DELETE FROM extent WHERE unit = 0 AND plane = 0",
	                  "parameters without an extent");
	start_and_refused(
		1,
		"UPDATE extent SET unit = 0, subgroup = 0 WHERE unit = 1 AND plane = 1 AND "
		"subgroup = 0",
		"what another node holds");
	start_and_refused(1, "DELETE FROM extent WHERE 1", "parameters without an extent");
}

/* A node that went back by itself would be where the others are not. */
Test(zero_recover_nodes, node_alone_does_not_go_back_to_snapshot_of_its_part)
{
	begin_part(1);
	node_start(&node);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "part"), 0, "%s",
	             kept.op.text.chars);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_restore, "train", "part"), -EOPNOTSUPP);
	cr_assert_not_null(strstr(kept.op.text.chars, "runs on 2 nodes"), "%s", kept.op.text.chars);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(job()->refusal, 0, "%s", job()->refusal_text.chars);
		cr_assert_eq(job()->here_mask, 1ull << 1);
		cr_assert_eq(held_bytes(), job()->here_elements * 12);
		node_check_space(&node);
		if (i == 0)
			restart();
	}
	end(WORLD);
}

/* Another job that would begin with it hears what it is, and may begin without. */
Test(zero_recover_nodes, snapshot_of_a_part_is_no_models)
{
	begin_part(1);
	node_start(&node);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "part"), 0, "%s",
	             kept.op.text.chars);
	model_attach(&node, actors, WORLD,
	             &(struct attach_options){ .config = config, .job = "other" });
	for (uint32_t i = 0; i < WORLD; i++)
		cr_assert_eq(zero_load(actors[i].rank, "train", "part", &actors[i].text), 0);
	cr_assert_eq(model_materialize(actors, WORLD), -EOPNOTSUPP, "%s", actors[0].text.chars);
	for (uint32_t i = 0; i < WORLD; i++)
		cr_assert_str_eq(actors[i].calls[0].op.text.chars,
		                 "snapshot 'train/part' is one node's part, of 2 nodes with 2 "
		                 "ranks: export it at each node, and load all parts as one (zctl "
		                 "export, zctl load)");
	leave_all(WORLD);
	model_attach(&node, actors, WORLD,
	             &(struct attach_options){ .config = config, .job = "other" });
	cr_assert_eq(model_materialize(actors, WORLD), 0, "%s", actors[0].text.chars);
	end(WORLD);
}

/* Where planes are not divided a node has all of it. */
Test(zero_recover_nodes, snapshot_of_a_node_that_had_everything_is)
{
	struct zi_job_config drawn = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	votes_begin_in(WORLD, &drawn, 64 * MIB);
	step(WORLD, 1);
	job()->committed.placement.node_count = 2;
	job()->committed.placement.nodes[1] = 1;
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "whole"), 0, "%s",
	             kept.op.text.chars);
	leave_all(WORLD);
	model_attach(&node, actors, WORLD,
	             &(struct attach_options){ .config = config, .job = "other" });
	for (uint32_t i = 0; i < WORLD; i++)
		cr_assert_eq(zero_load(actors[i].rank, "train", "whole", &actors[i].text), 0);
	cr_assert_eq(model_materialize(actors, WORLD), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(WORLD);
}

/* A start that is refused decides nothing between two commits. */
Test(zero_recover_nodes, start_that_is_refused_leaves_both_commits)
{
	votes_begin_nvme(1);
	step(1, 1);
	step_left_open(1, 2);
	job()->committed.placement.node_count = 2;
	job()->subgroups[0].is_here = false;
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), -ENODATA, "%s", actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, "no node here has subgroup 0 of unit"),
	                   "%s", actors[0].text.chars);
	cr_assert(job()->former.is_kept);
	leave_all(1);
	restart();
	cr_assert_eq(job()->committed_step, 2);
	cr_assert(job()->former.is_kept);
	cr_assert_eq(job()->former.step, 1);
	cr_assert_eq(held_bytes(), 2 * state_bytes());
	end(1);
}
