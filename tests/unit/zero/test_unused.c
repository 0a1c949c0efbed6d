/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what no rank has a gradient of in a step comes out as if it were frozen in that step, and
 * nothing else does; names are of the next gradient alone; what cannot be is refused. Method: units
 * cut into drawn parameters, more than a slot names, with drawn names; beside the job another one
 * whose ranks come anew for each step and freeze what nobody used: test_groups.c has shown that
 * what is frozen stays as it is.
 */
#include "daemon/zero/step/unused.h"
#include "tests/unit/zero/world.h"

#define PARAMS_MAX 700u
#define WORLD      3u

static struct {
	uint64_t elements[UNITS][PARAMS_MAX];
	bool is_frozen[UNITS][PARAMS_MAX];
	bool is_unused[WORLD][UNITS][PARAMS_MAX]; /* in this step */
	uint32_t count[UNITS];
} cut;
static uint64_t seed;
static struct zi_job_config config;
static struct actor others[WORLD]; /* of the job beside it */

static uint64_t draw(uint64_t below)
{
	return test_noise(++seed * 0x9e3779b97f4a7c15ull) % below;
}

static void cut_units(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t left = model_elements[unit];
		uint32_t count = 0;

		while (left) {
			uint64_t elements = count + 1 == PARAMS_MAX ? left : 1 + draw(1000);

			elements = ZI_MIN(elements, left);
			cut.elements[unit][count] = elements;
			cut.is_frozen[unit][count++] = draw(8) == 0;
			left -= elements;
		}
		cut.count[unit] = count;
	}
	cr_assert_gt(cut.count[1], ZI_UNUSED_BITS);
}

static bool is_still(uint32_t unit, uint32_t param, uint32_t world)
{
	bool is_used = false;

	for (uint32_t i = 0; i < world; i++)
		is_used |= !cut.is_unused[i][unit][param];
	return cut.is_frozen[unit][param] || !is_used;
}

/* @freezes: what nobody uses, too. */
static void stream(struct actor *actor, uint32_t world, bool freezes)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "u%u", unit);
		layout_unit(actor, name);
		for (uint32_t i = 0; i < cut.count[unit]; i++) {
			bool is_frozen =
				freezes ? is_still(unit, i, world) : cut.is_frozen[unit][i];
			struct zi_layout_entry entry = {
				.kind = ZI_LAYOUT_PARAM,
				.dim_count = 1,
				.group = is_frozen ? ZI_LAYOUT_FROZEN : 0,
				.shape = { cut.elements[unit][i] },
			};

			(void)snprintf(entry.name, sizeof(entry.name), "u%u.p%u", unit, i);
			cr_assert_eq(zero_layout_add(actor->rank, &entry, &actor->text), 0, "%s",
			             actor->text.chars);
		}
	}
}

static int attach(struct actor *ranks, uint32_t world, const char *job, bool finds)
{
	int r;

	model_attach(&node, ranks, world,
	             &(struct attach_options){
			     .job = job,
			     .config = config,
			     .training = { .flags = finds ? ZI_TRAINING_FIND_UNUSED : 0 } });
	for (uint32_t i = 0; i < world; i++)
		stream(&ranks[i], world, !finds);
	r = all_call(ranks, world, zero_materialize, NULL);
	for (uint32_t i = 0; i < world && !r; i++)
		zero_materialized(ranks[i].rank, &ranks[i].memory);
	return r;
}

static void start(void)
{
	node_init(&node);
	node.staging_bytes = 12 * MIB;
	node.store_bytes = 64 * MIB;
	node.params_max = UNITS * PARAMS_MAX;
	node_start(&node);
	cut_units();
}

static void begin_jobs(uint32_t world)
{
	start();
	cr_assert_eq(attach(actors, world, "train", true), 0, "%s", actors[0].text.chars);
	model_write(actors, world);
	cr_assert_eq(attach(others, world, "other", false), 0, "%s", others[0].text.chars);
	model_write(others, world);
	actors_leave(others, world, true);
}

static void end_job(uint32_t world)
{
	actors_leave(actors, world, true);
	node_deinit(&node);
}

static void draw_unused(uint32_t world)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		/* Now and then nothing, or all, of a unit. */
		uint64_t most = draw(4);

		for (uint32_t i = 0; i < cut.count[unit]; i++)
			for (uint32_t rank = 0; rank < world; rank++)
				cut.is_unused[rank][unit][i] = most == 3 || draw(3) < most;
	}
}

static int name_slot(struct actor *actor, uint32_t unit, uint64_t first, const uint64_t *bits)
{
	return actor_call(actor, zero_grad_unused,
	                  &(struct zero_op){ .unit = unit, .id = first, .unused = bits });
}

static void name_unused(struct actor *actor, uint32_t unit)
{
	for (uint32_t first = 0; first < cut.count[unit]; first += ZI_UNUSED_BITS) {
		uint64_t bits[ZI_UNUSED_BITS / 64] = { 0 };

		for (uint32_t i = first; i < cut.count[unit] && i < first + ZI_UNUSED_BITS; i++)
			if (cut.is_unused[actor->number][unit][i])
				bits[(i - first) / 64] |= 1ull << (i - first) % 64;
		cr_assert_eq(name_slot(actor, unit, first, bits), 0, "%s", actor->text.chars);
	}
}

/* As libzinf does; what is frozen may be anything. */
static void clear_unused(struct actor *actor, uint32_t unit)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)config.grad_dtype);
	char *grad = unit_of(actor, actor->memory.grad, unit);

	for (uint32_t i = 0; i < cut.count[unit]; i++) {
		uint64_t bytes = cut.elements[unit][i] * width;

		if (cut.is_unused[actor->number][unit][i])
			memset(grad, 0, bytes);
		grad += bytes;
	}
}

static void step(struct actor *ranks, uint32_t world, uint64_t number, bool names,
                 const struct zi_step_options *options)
{
	cr_assert_eq(
		all_call(ranks, world, zero_step_begin, &(struct zero_op){ .options = *options }),
		0, "%s", ranks[0].text.chars);
	for (uint32_t micro = 0; micro < options->micro_batches; micro++)
		for (uint32_t unit = UNITS; unit-- > 0;)
			for (uint32_t i = 0; i < world; i++) {
				if (ranks[i].rank->job->units[unit].is_frozen)
					continue;
				cr_assert_eq(actor_unit(&ranks[i], zero_grad_acquire, unit), 0);
				model_fill_grad(&ranks[i], number, micro, unit);
				clear_unused(&ranks[i], unit);
				if (names)
					name_unused(&ranks[i], unit);
				cr_assert_eq(actor_unit(&ranks[i], zero_reduce, unit), 0, "%s",
				             ranks[i].text.chars);
			}
	cr_assert_eq(all_call(ranks, world, zero_step, NULL), 0, "%s", ranks[0].text.chars);
}

static uint32_t still_count(uint32_t world)
{
	uint32_t count = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < cut.count[unit]; i++)
			count += is_still(unit, i, world) && !cut.is_frozen[unit][i];
	return count;
}

static void compare(uint64_t number)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)config.param_dtype);

	for (uint32_t unit = 0; unit < UNITS; unit++)
		cr_assert_eq(memcmp(unit_of(&actors[0], actors[0].memory.param, unit),
		                    unit_of(&others[0], others[0].memory.param, unit),
		                    model_elements[unit] * width),
		             0, "unit %u, step %llu, seed %llu", unit, (unsigned long long)number,
		             (unsigned long long)seed);
}

static void train(uint32_t world, const struct zi_step_options *options)
{
	begin_jobs(world);
	for (uint64_t number = 1; number <= 4; number++) {
		draw_unused(world);
		step(actors, world, number, true, options);
		cr_assert_eq(actors[0].calls[0].op.unused_count, still_count(world));
		cr_assert_eq(attach(others, world, "other", false), 0, "%s", others[0].text.chars);
		step(others, world, number, false, options);
		cr_assert_eq(others[0].calls[0].op.unused_count, 0);
		compare(number);
		cr_assert_eq(memcmp(&actors[0].calls[0].op.stats.norm,
		                    &others[0].calls[0].op.stats.norm, sizeof(double)),
		             0);
		actors_leave(others, world, true);
		node_settle(&node);
	}
	end_job(world);
}

Test(zero_unused, what_nobody_used_is_as_if_it_were_frozen, .timeout = 120)
{
	for (uint32_t row = 0; row < 8; row++) {
		struct zi_step_options options = model_options();

		config = model_config(row % 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
		                      row % 3 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);
		config.schedule = row / 2 % 2 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL;
		options.micro_batches = row / 2 % 2 ? 2 : 1;
		options.max_norm = row / 4 ? 0.5 : 0;
		options.flags = row % 2 ? ZI_STEP_UPDATE_EARLY : 0;
		train(1 + row % WORLD, &options);
	}
}

Test(zero_unused, names_that_cannot_be_are_refused)
{
	const uint64_t none[ZI_UNUSED_BITS / 64] = { 0 }, first[ZI_UNUSED_BITS / 64] = { 1 };
	uint64_t behind[ZI_UNUSED_BITS / 64] = { 0 };

	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_CPU);
	start();
	cr_assert_eq(attach(actors, 2, "train", true), 0, "%s", actors[0].text.chars);
	refused(&actors[0], -EINVAL, "unit 3: the job has 3",
	        name_slot(&actors[0], UNITS, 0, none));
	cr_assert_eq(name_slot(&actors[0], 0, UINT64_MAX, none), 0, "nothing is nothing");
	refused(&actors[0], -EINVAL, "parameter 1 + 0 of unit 'u0' has no gradient",
	        name_slot(&actors[0], 0, 1, first));
	refused(&actors[0], -EINVAL, "parameter 18446744073709551552 + 0 of unit 'u0'",
	        name_slot(&actors[0], 0, UINT64_MAX - 63, first));
	behind[cut.count[0] / 64] |= 1ull << cut.count[0] % 64;
	refused(&actors[0], -EINVAL, "but the unit has", name_slot(&actors[0], 0, 0, behind));
	end_job(2);
	start();
	cr_assert_eq(attach(actors, 2, "train", false), 0, "%s", actors[0].text.chars);
	refused(&actors[0], -EINVAL, "but finds_unused is false",
	        name_slot(&actors[0], 0, 0, first));
	end_job(2);
}

Test(zero_unused, a_rank_names_nothing_of_a_unit_of_others)
{
	static const struct model_set sets[UNITS] = { { "all", 3 }, { "one", 2 }, { "all", 3 } };
	const uint64_t first[ZI_UNUSED_BITS / 64] = { 1 };

	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_CPU);
	model_sets = sets;
	node_init(&node);
	node_start(&node);
	model_begin(&node, actors, 2,
	            &(struct attach_options){ .config = config,
	                                      .training = { .flags = ZI_TRAINING_FIND_UNUSED } });
	refused(&actors[0], -EPERM, "rank 0 has no gradient there",
	        name_slot(&actors[0], 1, 0, first));
	cr_assert_eq(name_slot(&actors[1], 1, 0, first), 0);
	end_job(2);
}

static void take_grad_bytes(void *arg, const struct zero_job_report *given)
{
	*(uint64_t *)arg = given->param_cpu_bytes + given->grad_cpu_bytes;
}

/* Tables are the job's to pay: a byte less than parameters, gradients and they take is too few. */
Test(zero_unused, tables_are_charged)
{
	uint64_t bytes = 0, with = 0;

	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_CPU);
	for (uint32_t i = 0; i < 3; i++) {
		node_init(&node);
		node.params_max = UNITS * PARAMS_MAX;
		node.uid_cpu_bytes = i == 2 ? with - 1 : node.uid_cpu_bytes;
		node_start(&node);
		cut_units();
		seed = 0; /* The same parameters each time. */
		cut_units();
		if (i == 2) {
			cr_expect_eq(attach(actors, 2, "train", true), -EDQUOT);
			cr_expect_not_null(strstr(actors[0].text.chars, "quota"), "%s",
			                   actors[0].text.chars);
		} else {
			cr_assert_eq(attach(actors, 2, "train", i), 0, "%s", actors[0].text.chars);
			cr_assert(zero_report(node.zero, "train", take_grad_bytes,
			                      i ? &with : &bytes));
		}
		actors_leave(actors, 2, true);
		node_deinit(&node);
	}
	cr_expect_gt(with, bytes + 16 * (cut.count[0] + cut.count[1] + cut.count[2]));
}

/* A gradient that is refused takes its names with it, and the group's end takes all. */
Test(zero_unused, names_are_of_the_next_gradient_alone)
{
	struct zi_step_options options = model_options();

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	begin_jobs(2);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < cut.count[unit]; i++)
			cut.is_unused[0][unit][i] = cut.is_unused[1][unit][i] = i % 2;
	for (uint32_t i = 0; i < 2; i++) {
		name_unused(&actors[i], 1);
		refused(&actors[i], -EINVAL, "before step_begin",
		        actor_unit(&actors[i], zero_reduce, 1));
	}
	memset(cut.is_unused, 0, sizeof(cut.is_unused));
	step(actors, 2, 1, true, &options);
	cr_assert_eq(actors[0].calls[0].op.unused_count, 0);
	cr_assert_eq(all_call(actors, 2, zero_step_begin, &(struct zero_op){ .options = options }),
	             0);
	memset(cut.is_unused[0], true, sizeof(cut.is_unused[0]));
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		cr_assert_eq(actor_unit(&actors[0], zero_grad_acquire, unit), 0);
		name_unused(&actors[0], unit);
		if (unit)
			cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	}
	actor_leave(&actors[1], false);
	actor_leave(&actors[0], false);
	node_settle(&node);
	memset(cut.is_unused, 0, sizeof(cut.is_unused));
	cr_assert_eq(attach(actors, 2, "train", true), 0, "%s", actors[0].text.chars);
	step(actors, 2, 2, true, &options);
	cr_assert_eq(actors[0].calls[0].op.unused_count, 0);
	end_job(2);
}
