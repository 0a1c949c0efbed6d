/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what goes wrong with one job's data is not another job's affair. Method: "train" and
 * "other" lie on a path each, of one engine with few places; the path of the former does not
 * answer, while the latter trains on in the bits of the plain computation.
 */
#include "daemon/tier/drain.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/nvme/gate.h"
#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[2]; /* "train", "other" */
static struct plain plains[2];
static struct zi_job_config config;
static struct gate *gate;

static void make_gate(struct node *made)
{
	gate = gate_new(made->engine);
}

static void turn_off(uint32_t index, bool is_off)
{
	struct zi_text text;

	cr_assert_eq(tier_member_drain(&node.nvme.members[index], is_off, &text), 0, "%s",
	             text.chars);
}

/* The next steps of one of them; they must be what the plain computation gives. */
static void train(uint32_t index, uint64_t step_count)
{
	struct zi_step_options options = model_options();
	struct actor *actor = &actors[index];

	for (uint64_t i = 0; i < step_count; i++) {
		uint64_t step = (uint64_t)actor->rank->job->committed_step + 1;

		cr_assert_eq(model_step(actor, 1, step, &options), 0, "step %llu: %s",
		             (unsigned long long)step, actor->text.chars);
		plain_step(&plains[index], step, &options);
	}
	cr_assert(plain_equals(&plains[index], actor));
}

static void begin_job(uint32_t index, const char *name)
{
	plain_init(&plains[index], &config, 1);
	cr_assert_eq(
		actor_attach(&node, &actors[index],
	                     &(struct attach_options){ .config = config, .world = 1, .job = name }),
		0, "%s", actors[index].text.chars);
	cr_assert_eq(model_materialize(&actors[index], 1), 0, "%s", actors[index].text.chars);
	model_write(&actors[index], 1);
	train(index, 1); /* From here on there is state to be read. */
}

/* Both jobs hold step 1, "train" on path t, "other" on t1. */
static void begin_apart(void)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node.store_count = 2;
	node.store_bytes = 64 * MIB; /* Of each: both jobs find room on one. */
	/* Less than what a job has in flight: places would be what they wait for. */
	node.depth = 4;
	node.engine_made = make_gate;
	node_start(&node);
	turn_off(1, true);
	begin_job(0, "train");
	turn_off(1, false);
	turn_off(0, true);
	begin_job(1, "other");
}

static void end_both(void)
{
	for (uint32_t i = 0; i < 2; i++) {
		actor_leave(&actors[i], true);
		plain_deinit(&plains[i]);
	}
	node_deinit(&node);
}

Test(zero_neighbour, path_that_does_not_answer_holds_up_nobody_elsewhere)
{
	struct zi_step_options options = model_options();

	begin_apart();
	gate_shut(gate, node.store);
	/* The step of "train" reads from there. */
	actor_start(&actors[0], 0, zero_step_begin, &(struct zero_op){ .options = options });
	node_turn(&node);
	train(1, 4);
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	for (uint32_t unit = UNITS; unit-- > 0;) {
		cr_assert_eq(actor_unit(&actors[0], zero_grad_acquire, unit), 0);
		model_fill_grad(&actors[0], 2, 0, unit);
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	}
	actor_start(&actors[0], 0, zero_step, &(struct zero_op){ .blob = "2", .blob_bytes = 1 });
	train(1, 4);
	cr_assert_not(actors[0].calls[0].is_done, "it waits for its path");
	cr_assert_gt(gate->held_count, 0);
	gate_open(gate);
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	plain_step(&plains[0], 2, &options);
	cr_assert(plain_equals(&plains[0], &actors[0]));
	end_both();
}
