/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of a job over several daemons `zctl jobs` shows, on each node, the logical bytes of every
 * rank and the held bytes of every plane that their formulas say (common/wire/plan.h, owner.h), in
 * every strategy and place, also where sums of gradients go to the stores; and `zctl estimate` says
 * what the first node holds, to 2 %. Method:
 * ranks of the made-up trainer, one to a node or several; rank 0 asks all daemons when a step has
 * been committed.
 */
#include "common/base/cleanup.h"
#include "common/wire/geometry.h"
#include "common/wire/plan_part.h"
#include "tests/harness/patience.h"
#include "tests/harness/ranks.h"
#include "tests/system/far_node.h"

#define NODES   3u
#define STAGING (12u << 20)

struct run {
	const char *places; /* the node of each rank */
	const char *strategy;
	uint32_t shard_size;
	enum zinf_offload offload, offload_param;
	uint64_t grad_budget_bytes; /* the model is of even units then */
};

/* Units of which buckets and slots are a small part. */
static const struct trainer_model model_even = {
	.unit_count = 10,
	.unit_params = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 },
	.elements = { 60000, 61440, 57000, 60000, 60000, 61000, 60000, 59000, 60000, 60000 },
};

static struct {
	struct harness harness[NODES];
	const struct run *run;
	uint32_t node_count, world, port;
	char export[300];
} scene;

static char words[1 << 16];

TestSuite(far_held, .timeout = 600);

static const struct trainer_model *model(void)
{
	return scene.run->grad_budget_bytes ? &model_even : &trainer_small;
}

static uint32_t node_of(uint32_t rank)
{
	return (uint32_t)(scene.run->places[rank] - '0');
}

static uint64_t here_mask(uint32_t node)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < scene.world; i++)
		mask |= (uint64_t)(node_of(i) == node) << i;
	return mask;
}

/* ---- the formula ---- */

struct formula {
	uint64_t padded[TRAINER_UNITS_MAX];
	struct zi_plan_model model;
	struct zi_plan_options options;
	struct zi_plan plan;
	struct zi_share shares[ZI_WORLD_MAX];
};

static void fill_model(struct formula *formula)
{
	uint32_t param = 0;

	for (uint32_t i = 0; i < model()->unit_count; i++) {
		uint64_t count = 0;

		for (uint32_t k = 0; k < model()->unit_params[i]; k++)
			count += model()->elements[param++];
		formula->padded[i] = zi_geometry_padded(count);
		formula->model.element_count += count;
		formula->model.padded_count += formula->padded[i];
	}
	formula->model.unit_count = model()->unit_count;
	formula->model.param_count = param;
	formula->model.unit_padded = formula->padded;
}

/* Of what the ranks of the run ask for; @training: as `strategy` and its size mean. */
static int make(struct formula *formula, const struct zinf_options *asked, uint32_t node)
{
	struct zi_text text = { "" };
	int r;

	memset(formula, 0, sizeof(*formula));
	fill_model(formula);
	formula->options = (struct zi_plan_options){
		.config = { .param_dtype = ZI_DTYPE_BF16,
		            .grad_dtype = ZI_DTYPE_BF16,
		            .optimizer = ZI_OPTIMIZER_ADAMW,
		            .schedule = ZI_SCHEDULE_LOCAL,
		            .offload_optimizer = scene.run->offload,
		            .offload_param = scene.run->offload_param,
		            .staging_bytes = asked->staging_bytes },
		.training = { .strategy = asked->strategy,
		              .shard_size = asked->shard_size,
		              .grad_budget_bytes = asked->grad_budget_bytes },
		.here_mask = here_mask(node),
		.local_ranks = (uint32_t)__builtin_popcountll(here_mask(node)),
		.world_size = scene.world,
		.node_count = scene.node_count,
		.wants_huge = true,
	};
	r = zi_plan_make(&formula->model, &formula->options, &formula->plan, &text);
	if (r)
		fprintf(stderr, "no plan: %s\n", text.chars);
	zi_plan_shares(&formula->model, &formula->options, formula->shares);
	if (!r && scene.run->grad_budget_bytes && !formula->plan.grad_nvme_bytes) {
		fprintf(stderr, "no sums go to the store of node %u\n", node);
		r = -1;
	}
	return r;
}

/* ---- what is measured ---- */

static uint64_t number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static bool is_near(const char *what, uint64_t expected, uint64_t measured)
{
	uint64_t apart = expected > measured ? expected - measured : measured - expected;

	if (apart * 50 <= measured)
		return true;
	(void)snprintf(words, sizeof(words), "%s: %llu said, %llu held", what,
	               (unsigned long long)expected, (unsigned long long)measured);
	return false;
}

static bool are_held(const json_t *job, const struct zi_plan *plan)
{
	const struct {
		const char *name;
		uint64_t cpu_bytes, nvme_bytes;
	} planes[] = {
		{ "param", plan->param_cpu_bytes, plan->param_nvme_bytes },
		{ "grad", plan->grad_cpu_bytes, 0 },
		{ "reduced_grad", plan->accum_cpu_bytes, 0 },
		{ "state", plan->state_cpu_bytes, plan->state_nvme_bytes },
		{ "staging", plan->staging_cpu_bytes, 0 },
		{ "collectives", plan->coll_cpu_bytes, 0 },
	};
	const json_t *held = json_object_get(job, "held");

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		const json_t *plane = json_object_get(held, planes[i].name);

		if (!is_near(planes[i].name, planes[i].cpu_bytes, number(plane, "cpu_bytes")) ||
		    !is_near(planes[i].name, planes[i].nvme_bytes, number(plane, "nvme_bytes")))
			return false;
	}
	return is_near("reserved", plan->reserved_nvme_bytes, number(job, "reserved_nvme_bytes"));
}

static bool are_logical(const json_t *job, const struct formula *formula)
{
	const json_t *logical = json_object_get(job, "logical");

	if (json_array_size(logical) != scene.world)
		return false;
	for (uint32_t i = 0; i < scene.world; i++) {
		const json_t *rank = json_array_get(logical, i);
		struct zi_plane_bytes bytes;

		zi_logical_bytes(&formula->shares[i], &formula->options.config,
		                 &formula->options.training, &bytes);
		if (number(rank, "param") != bytes.param || number(rank, "grad") != bytes.grad ||
		    number(rank, "param_live") != bytes.param_live ||
		    number(rank, "grad_buckets") != bytes.grad_buckets ||
		    number(rank, "reduced_grad") != bytes.accum ||
		    number(rank, "state") != bytes.state) {
			(void)snprintf(words, sizeof(words), "logical bytes of rank %u", i);
			return false;
		}
	}
	return true;
}

/* A node lets the commit before go when it hears that all have the new one: that may be a moment
 * after its ranks' next words. */
static bool node_is_right(const struct zinf_options *asked, uint32_t node)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(10 * ZI_NS_PER_S));
	struct formula formula;
	bool is_right = false;

	if (make(&formula, asked, node))
		return false;
	while (!is_right && zi_clock_now_ns() < deadline_ns) {
		json_t *jobs = harness_admin(&scene.harness[node], "jobs held");
		const json_t *job = json_array_get(jobs, 0);

		is_right = are_held(job, &formula.plan) && are_logical(job, &formula);
		json_decref(jobs);
	}
	if (!is_right)
		fprintf(stderr, "'%s' %s, node %u: %s\n", scene.run->places, scene.run->strategy,
		        node, words);
	return is_right;
}

/* As many ranks to each node, one behind the other: what an estimate takes for granted. */
static bool is_even(void)
{
	for (uint32_t i = 0; i < scene.world; i++)
		if (node_of(i) != i * scene.node_count / scene.world)
			return false;
	return scene.world % scene.node_count == 0;
}

/* In the process of rank 0. */
static bool estimate_is_right(void)
{
	static const char *const offloads[] = { "none", "cpu", "nvme" };
	char line[600], shard[40] = "", budget[40] = "";
	json_t *estimate, *jobs;
	bool is_right = true;
	static const char *const planes[] = { "param", "grad", "reduced_grad", "state", "staging" };

	if (scene.run->shard_size)
		(void)snprintf(shard, sizeof(shard), " --shard-size %u", scene.run->shard_size);
	if (scene.run->grad_budget_bytes)
		(void)snprintf(budget, sizeof(budget), " --grad-budget %llu",
		               (unsigned long long)scene.run->grad_budget_bytes);
	(void)snprintf(line, sizeof(line),
	               "estimate %s --ranks %u --nodes %u --strategy %s --offload-optimizer %s "
	               "--offload-param %s --staging %u%s%s",
	               scene.export, (uint32_t)__builtin_popcountll(here_mask(0)), scene.node_count,
	               scene.run->strategy, offloads[scene.run->offload],
	               offloads[scene.run->offload_param],
	               scene.run->offload == ZINF_OFFLOAD_NVME ? STAGING : 0, shard, budget);
	estimate = harness_admin(&scene.harness[0], line);
	jobs = harness_admin(&scene.harness[0], "jobs held");
	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		const json_t *said = json_object_get(json_object_get(estimate, "held"), planes[i]);
		const json_t *is = json_object_get(json_object_get(json_array_get(jobs, 0), "held"),
		                                   planes[i]);

		is_right &= is_near(planes[i], number(said, "cpu_bytes"), number(is, "cpu_bytes"));
		is_right &=
			is_near(planes[i], number(said, "nvme_bytes"), number(is, "nvme_bytes"));
	}
	is_right &= json_equal(json_object_get(estimate, "logical"),
	                       json_object_get(json_array_get(jobs, 0), "logical"));
	if (!is_right)
		fprintf(stderr, "%s: %s\n", line, words);
	json_decref(estimate);
	json_decref(jobs);
	return is_right;
}

/* ---- ranks ---- */

/* A rank learns where it is as launchers tell it. */
static void at_point(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	uint32_t node = node_of(trainer->rank);
	bool is_right = true;

	(void)arg;
	if (point == TRAINER_BORN)
		far_set_place(&scene.harness[node], scene.port,
		              (uint32_t)__builtin_popcountll(here_mask(node)));
	if (point != TRAINER_WAITED || trainer->step != 2 || trainer->rank)
		return;
	for (uint32_t i = 0; i < scene.node_count; i++)
		is_right &= node_is_right(&trainer->settings->options, i);
	if (is_even())
		is_right &= estimate_is_right();
	if (!is_right)
		_exit(3);
}

static struct trainer_settings settings_of(const struct run *run)
{
	struct trainer_settings settings = ranks_settings(&scene.harness[0], "held", scene.world);
	struct zinf_options *options = &settings.options;

	options->socket_path = NULL;
	options->incarnation = "first";
	options->param_dtype = options->grad_dtype = ZINF_BF16;
	options->offload_optimizer = run->offload;
	options->offload_param = run->offload_param;
	options->staging_bytes = run->offload == ZINF_OFFLOAD_NVME ? STAGING : 0;
	cr_assert_eq(zinf_strategy_by_name(run->strategy, options), 0);
	options->shard_size = run->shard_size;
	options->grad_budget_bytes = run->grad_budget_bytes;
	settings.model = model();
	settings.steps = 3;
	settings.hook = at_point;
	return settings;
}

/* What zctl estimate reads: the model, as a job of one rank exports it. */
static void export_model(const struct run *run)
{
	const struct run whole = { .places = "0", .strategy = "ddp" };
	struct trainer_settings settings;
	struct ranks ranks;

	scene.run = &whole;
	scene.world = 1;
	settings = settings_of(&whole);
	settings.options.job = "whole";
	settings.model = run->grad_budget_bytes ? &model_even : &trainer_small;
	settings.steps = 1;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
	(void)snprintf(scene.export, sizeof(scene.export), "%s/whole.safetensors",
	               scene.harness[0].directory);
	cr_assert_eq(harness_zctl(scene.harness[0].socket_path,
	                          (const char *const[]){ "export", "whole", scene.export, NULL },
	                          words, sizeof(words)),
	             0, "%s", words);
}

static void train(const struct run *run)
{
	struct trainer_settings settings;
	struct ranks ranks;

	memset(&scene, 0, sizeof(scene));
	for (const char *place = run->places; *place; place++)
		scene.node_count = ZI_MAX(scene.node_count, (uint32_t)(*place - '0') + 1);
	for (uint32_t i = 0; i < scene.node_count; i++)
		system_start(&scene.harness[i], &(struct harness_options){ .nvme_size = "32M" });
	scene.port = harness_free_port();
	export_model(run);
	scene.run = run;
	scene.world = (uint32_t)strlen(run->places);
	settings = settings_of(run);
	cr_assert_eq(ranks_train(&ranks, &settings), 0, "'%s' %s", run->places, run->strategy);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	cr_assert_eq(unlink(scene.export), 0);
	for (uint32_t i = 0; i < scene.node_count; i++)
		cr_assert_eq(harness_stop(&scene.harness[i]), 0, "node %u", i);
}

static void train_everywhere(const char *places, uint32_t shard_size)
{
	static const char *const strategies[] = { "ddp", "zero1", "zero2", "zero3" };
	static const enum zinf_offload offloads[] = { ZINF_OFFLOAD_NONE, ZINF_OFFLOAD_CPU,
		                                      ZINF_OFFLOAD_NVME };

	far_need_net();
	for (uint32_t i = shard_size ? 1 : 0; i < ZI_COUNT_OF(strategies); i++)
		for (uint32_t k = 0; k < ZI_COUNT_OF(offloads); k++)
			train(&(struct run){ .places = places,
			                     .strategy = strategies[i],
			                     .shard_size = shard_size,
			                     .offload = offloads[k] });
	/* zero1 and zero2 have all parameters on each store, ddp as well. */
	for (uint32_t i = shard_size ? 1 : 0; i < ZI_COUNT_OF(strategies); i++)
		train(&(struct run){ .places = places,
		                     .strategy = strategies[i],
		                     .shard_size = shard_size,
		                     .offload = ZINF_OFFLOAD_NVME,
		                     .offload_param = ZINF_OFFLOAD_NVME });
}

/* Little more than one unit a rank: sums go to each node's store, and come from there. */
Test(far_held, sums_of_gradients_on_the_stores)
{
	static const struct run runs[] = {
		{ "01", "zero2", 0, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_CPU, 140 << 10 },
		{ "01", "zero2", 0, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_NVME, 140 << 10 },
		{ "01", "zero3", 0, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_NVME, 140 << 10 },
		{ "0011", "zero2", 2, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_CPU, 300 << 10 },
		{ "0101", "zero3", 2, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_CPU, 140 << 10 },
		{ "001122", "zero3", 2, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_NVME, 140 << 10 },
	};

	far_need_net();
	for (size_t i = 0; i < ZI_COUNT_OF(runs); i++)
		train(&runs[i]);
}

Test(far_held, one_rank_to_a_node)
{
	train_everywhere("01", 0);
}

Test(far_held, ranks_in_one_place_and_another)
{
	train_everywhere("001", 0);
}

Test(far_held, replicas_over_nodes)
{
	train_everywhere("0011", 2);
}
