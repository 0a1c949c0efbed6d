/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks that attach forward only see the parameters that training made, bit by bit, from
 * wherever these lie, and hold neither gradients nor state; no call of a step is theirs, and what
 * trains is as it was when they leave. A job that was made so has no state for good, and nobody
 * trains on it by mistake. Method: a job beside the plain computation, used by others in between,
 * as itself and as a snapshot; every place for its planes, and the node started anew.
 */
#include "common/wire/plan.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/commit.h"
#include "tests/unit/zero/kept.h"

TestSuite(zero_forward, .timeout = 120);

static struct node node;
static struct actor actors[4], others[4];
static struct plain plain;
static struct kept kept;
static struct zero_job_report report;

static const struct zi_job_training forward = { .flags = ZI_TRAINING_FORWARD_ONLY };

/* Where the planes of a job may lie. */
static const struct place {
	uint32_t optimizer, param;
	uint64_t resident_bytes;
} places[] = {
	{ ZI_OFFLOAD_NONE, ZI_OFFLOAD_NONE, 0 },
	{ ZI_OFFLOAD_NVME, ZI_OFFLOAD_NONE, 0 },
	{ ZI_OFFLOAD_NVME, ZI_OFFLOAD_CPU, 2 * MIB },
	{ ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME, 0 },
};

static struct zi_job_config config_of(uint32_t dtype, const struct place *place)
{
	struct zi_job_config config = model_config(dtype, place->optimizer);

	config.offload_param = place->param;
	config.resident_bytes = place->resident_bytes;
	return config;
}

static void begin(void)
{
	node_init(&node);
	node.store_bytes = 128 * MIB;
	node.staging_bytes = 16 * MIB;
	node_start(&node);
}

static void leave(void)
{
	actors_leave(actors, 4, true);
	actors_leave(others, 4, true);
	node_settle(&node);
}

static void end(void)
{
	leave();
	node_check_space(&node);
	node_deinit(&node);
}

static void restart(void)
{
	leave();
	node_stop(&node);
	node_start(&node);
}

static void take_report(void *arg, const struct zero_job_report *given)
{
	(void)arg;
	report = *given;
}

static void look_at(const char *job)
{
	cr_assert(zero_report(node.zero, job, take_report, NULL));
}

static void snapshot(const char *job, const char *name)
{
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, job, name), 0, "%s",
	             kept.op.text.chars);
}

/* @count ranks of @job, forward only; with @load they begin with that snapshot of "train". */
static int use(const char *job, const struct zi_job_config *config, uint32_t count,
               const char *load)
{
	model_attach(
		&node, others, count,
		&(struct attach_options){ .job = job, .config = *config, .training = forward });
	for (uint32_t i = 0; i < count && load; i++)
		cr_assert_eq(zero_load(others[i].rank, "train", load, &others[i].text), 0, "%s",
		             others[i].text.chars);
	return model_materialize(others, count);
}

static void expect_refused(struct actor *actor, const char *word, int error, int got)
{
	cr_expect_eq(got, error, "%d: %s", got, actor->text.chars);
	cr_expect_not_null(strstr(actor->text.chars, word), "'%s' is not in '%s'", word,
	                   actor->text.chars);
	cr_expect_lt(strlen(actor->text.chars), ZI_TEXT_BYTES - 1, "cut: %s", actor->text.chars);
}

static void expect_no_steps(struct actor *actor)
{
	struct zi_step_options options = model_options();

	expect_refused(actor, "zinf_step_begin: job", -EPERM,
	               actor_call(actor, zero_step_begin, &(struct zero_op){ .options = options }));
	expect_refused(actor, "zinf_grad_acquire: job", -EPERM,
	               actor_unit(actor, zero_grad_acquire, 0));
	expect_refused(actor, "zinf_reduce: job", -EPERM, actor_unit(actor, zero_reduce, 0));
	expect_refused(actor, "zinf_reduce: job", -EPERM, actor_unit(actor, zero_grad_unused, 0));
	expect_refused(actor, "zinf_step: job", -EPERM, actor_call(actor, zero_step, NULL));
	expect_refused(actor, "zinf_step_with: job", -EPERM,
	               actor_call(actor, zero_step_options, NULL));
	expect_refused(actor, "zinf_grad_norm: job", -EPERM,
	               actor_call(actor, zero_grad_norm, NULL));
	expect_refused(actor, "zinf_step_discard: job", -EPERM,
	               actor_call(actor, zero_step_discard, NULL));
}

/* Of the job that @others use. */
static void expect_light(const char *job)
{
	look_at(job);
	cr_expect_eq(report.grad_cpu_bytes, 0);
	cr_expect_eq(report.accum_cpu_bytes, 0);
	cr_expect_null(others[0].memory.grad);
	cr_expect_eq(report.logical[0].grad + report.logical[0].accum + report.logical[0].state, 0);
	cr_expect_gt(report.logical[0].param, 0);
}

static void expect_stateless(const char *job, bool is_nvme)
{
	expect_light(job);
	cr_expect(report.is_stateless);
	cr_expect_eq(report.state_cpu_bytes, 0);
	cr_expect_eq(report.state_nvme_bytes, 0);
	cr_expect_eq(report.reserved_nvme_bytes, 2 * report.param_nvme_bytes);
	cr_expect_eq(report.param_nvme_bytes > 0, is_nvme);
}

static void train(uint32_t dtype, const struct place *place)
{
	struct zi_job_config config = config_of(dtype, place);

	plain_init(&plain, &config, 2);
	model_begin(&node, actors, 2, &(struct attach_options){ .config = config });
	model_train(actors, 2, 1, 2);
	plain_train(&plain, 1, 2);
}

/* ---- a job that trains ---- */

static void expect_no_changes(struct actor *actor)
{
	expect_refused(actor, "zinf_param_write_begin: job 'train' has optimizer state", -EPERM,
	               actor_unit(actor, zero_param_write_begin, 0));
	expect_refused(actor, "zinf_param_write_end: job 'train'", -EPERM,
	               actor_unit(actor, zero_param_write_end, 0));
	expect_refused(actor, "zinf_commit: job 'train'", -EPERM,
	               actor_call(actor, zero_commit, NULL));
}

/* It is used from another place for its parameters, then by itself, and goes on. */
static void use_between(uint32_t dtype, const struct place *place)
{
	struct zi_job_config config = config_of(dtype, place), other = config;

	begin();
	train(dtype, place);
	leave();
	if (place->optimizer == ZI_OFFLOAD_NVME)
		other.offload_param =
			place->param == ZI_OFFLOAD_NVME ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME;
	/* What these say nobody asks for: the job keeps its own. */
	other.optimizer = ZI_OPTIMIZER_SGD;
	other.grad_dtype = ZI_DTYPE_F32;
	other.schedule = ZI_SCHEDULE_SHARDED;
	other.commit_interval = 3;
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(use("train", i ? &config : &other, 1 + 2 * i, NULL), 0, "%s",
		             others[0].text.chars);
		cr_expect(plain_equals(&plain, &others[0]));
		expect_light("train");
		cr_expect_not(report.is_stateless);
		cr_expect_eq(report.committed_step, 2);
		cr_expect_eq(report.staging_cpu_bytes, 0);
		cr_expect_eq(report.state_cpu_bytes > 0, place->optimizer != ZI_OFFLOAD_NVME);
		expect_no_steps(&others[0]);
		expect_no_changes(&others[0]);
		snapshot("train", i ? "second" : "first");
		leave();
	}
	model_attach(&node, actors, 2, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", actors[0].text.chars);
	look_at("train");
	cr_expect_gt(report.grad_cpu_bytes, 0);
	model_train(actors, 2, 3, 4);
	plain_train(&plain, 3, 4);
	cr_expect(plain_equals(&plain, &actors[0]));
	plain_deinit(&plain);
	end();
}

Test(zero_forward, what_trains_is_used_as_it_stands_and_goes_on_with_the_same_bits)
{
	for (size_t i = 0; i < ZI_COUNT_OF(places); i++)
		use_between(i % 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32, &places[i]);
	use_between(ZI_DTYPE_F16, &places[3]);
}

Test(zero_forward, what_has_nothing_yet_is_not_used)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	begin();
	model_attach(&node, actors, 1,
	             &(struct attach_options){ .config = config, .incarnation = "one" });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	expect_refused(&others[0], "trains and has committed nothing yet", -EINVAL,
	               actor_attach(&node, &others[0],
	                            &(struct attach_options){ .world = 1,
	                                                      .config = config,
	                                                      .training = forward,
	                                                      .incarnation = "two" }));
	end();
}

/* ---- a job of its own ---- */

/* Of a snapshot of what trained there, with the planes here. */
static void load_from(const struct place *from, const struct place *to, uint32_t dtype)
{
	struct zi_job_config config = config_of(dtype, to);

	begin();
	train(dtype, from);
	snapshot("train", "a");
	config.optimizer = ZI_OPTIMIZER_LION; /* Whatever it is. */
	cr_assert_eq(use("look", &config, 2, "a"), 0, "%s", others[0].text.chars);
	cr_expect(plain_equals(&plain, &others[1]));
	expect_stateless("look", to->optimizer == ZI_OFFLOAD_NVME);
	cr_expect_eq(report.committed_step, 2);
	cr_expect_eq(others[0].memory.committed_step, 2);
	cr_expect_eq(others[0].memory.update_count, 0, "nothing of an optimizer is there");
	expect_no_steps(&others[0]);
	if (to->optimizer == ZI_OFFLOAD_NVME) {
		restart();
		look_at("look");
		cr_expect(report.is_stateless);
		cr_assert_eq(use("look", &config, 1, NULL), 0, "%s", others[0].text.chars);
		cr_expect(plain_equals(&plain, &others[0]));
		expect_stateless("look", true);
	}
	plain_deinit(&plain);
	end();
}

Test(zero_forward, parameters_of_a_snapshot_from_anywhere_to_anywhere)
{
	for (size_t from = 0; from < ZI_COUNT_OF(places); from++)
		for (size_t to = 0; to < ZI_COUNT_OF(places); to++)
			load_from(&places[from], &places[to],
			          1 + (from + to) % (_ZI_DTYPE_FLOAT_COUNT - 1));
}

/* Values that are given, committed, given anew. */
static void write_own(const struct place *place, uint32_t strategy)
{
	struct zi_job_config config = config_of(ZI_DTYPE_BF16, place);
	struct zi_job_training training = { .strategy = strategy,
		                            .flags = ZI_TRAINING_FORWARD_ONLY };
	bool is_nvme = place->optimizer == ZI_OFFLOAD_NVME;

	begin();
	plain_init(&plain, &config, 2);
	model_begin(
		&node, others, 2,
		&(struct attach_options){ .job = "look", .config = config, .training = training });
	cr_expect(plain_equals(&plain, &others[1]));
	expect_stateless("look", is_nvme);
	expect_no_steps(&others[1]);
	model_write_unit(others, 2, 1, 70);
	fill(plain.param[1], 71, model_elements[1], ZI_DTYPE_BF16);
	cr_assert_eq(all_call(others, 2, zero_commit, NULL), 0, "%s", others[0].text.chars);
	cr_expect(plain_equals(&plain, &others[0]));
	snapshot("look", "own");
	look_at("look");
	cr_expect_eq(kept.op.held_bytes,
	             is_nvme ? report.reserved_nvme_bytes / 2 : 2 * report.padded_count);
	if (is_nvme)
		restart();
	else
		leave();
	training.strategy = ZI_STRATEGY_DDP;
	model_attach(
		&node, others, 1,
		&(struct attach_options){ .job = "look", .config = config, .training = training });
	cr_assert_eq(model_materialize(others, 1), 0, "%s", others[0].text.chars);
	cr_expect(plain_equals(&plain, &others[0]));
	expect_stateless("look", is_nvme);
	plain_deinit(&plain);
	end();
}

Test(zero_forward, values_that_are_given_stay_with_every_strategy)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(places); i++)
		for (uint32_t strategy = 0; strategy < _ZI_STRATEGY_COUNT; strategy++)
			write_own(&places[i], strategy);
}

/* ---- nobody trains on it by mistake ---- */

Test(zero_forward, without_state_nobody_trains)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	begin();
	plain_init(&plain, &config, 1);
	model_begin(
		&node, others, 1,
		&(struct attach_options){ .job = "look", .config = config, .training = forward });
	snapshot("look", "a");
	leave();
	for (int i = 0; i < 2; i++) {
		expect_refused(&actors[0], "job 'look' was created with is_forward_only", -EINVAL,
		               actor_attach(&node, &actors[0],
		                            &(struct attach_options){
						    .job = "look", .world = 1, .config = config }));
		model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
		expect_refused(&actors[0], "'look/a' is a snapshot of a forward-only job", -EINVAL,
		               zero_load(actors[0].rank, "look", "a", &actors[0].text));
		restart();
	}
	/* Those that train nothing begin with it. */
	model_attach(
		&node, others, 1,
		&(struct attach_options){ .job = "again", .config = config, .training = forward });
	cr_assert_eq(zero_load(others[0].rank, "look", "a", &others[0].text), 0, "%s",
	             others[0].text.chars);
	cr_assert_eq(model_materialize(others, 1), 0, "%s", others[0].text.chars);
	cr_expect(plain_equals(&plain, &others[0]));
	expect_stateless("again", true);
	plain_deinit(&plain);
	end();
}

static int restore(const char *job, const char *name, const char *as)
{
	int r;

	cr_assert_eq(zi_copy_name(kept.op.as, sizeof(kept.op.as), as), 0);
	r = kept_call(&node, &kept, zero_snapshot_restore, job, name);
	kept.op.as[0] = '\0';
	return r;
}

Test(zero_forward, a_job_is_put_back_to_what_is_of_its_kind)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	begin();
	train(ZI_DTYPE_BF16, &places[1]);
	snapshot("train", "trained");
	actor_leave(&actors[1], true);
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0, "%s", actors[0].text.chars);
	actors[0].rank = NULL;
	node_settle(&node);
	/* One of the same name, without state. */
	cr_assert_eq(use("train", &config, 1, "trained"), 0, "%s", others[0].text.chars);
	snapshot("train", "used");
	model_write_unit(others, 1, 2, 5);
	cr_assert_eq(all_call(others, 1, zero_commit, NULL), 0, "%s", others[0].text.chars);
	cr_expect_not(plain_equals(&plain, &others[0]));
	leave();
	cr_expect_eq(restore("train", "trained", ""), -EINVAL);
	cr_expect_not_null(strstr(kept.op.text.chars, "is forward only and has no optimizer state"),
	                   "%s", kept.op.text.chars);
	cr_assert_eq(restore("train", "used", ""), 0, "%s", kept.op.text.chars);
	cr_assert_eq(restore("train", "used", "copy"), 0, "%s", kept.op.text.chars);
	for (int i = 0; i < 2; i++) {
		static const char *const names[] = { "train", "copy" };

		cr_assert_eq(use(names[i], &config, 1, NULL), 0, "%s", others[0].text.chars);
		cr_expect(plain_equals(&plain, &others[0]));
		expect_stateless(names[i], true);
		restart();
	}
	cr_assert_eq(restore("train", "trained", "trains"), 0, "%s", kept.op.text.chars);
	model_attach(&node, actors, 2,
	             &(struct attach_options){ .job = "trains", .config = config });
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", actors[0].text.chars);
	model_train(actors, 2, 3, 3);
	plain_train(&plain, 3, 3);
	cr_expect(plain_equals(&plain, &actors[0]));
	leave();
	/* What trains is not put back to what has no state. */
	cr_assert_eq(use("train", &config, 1, NULL), 0, "%s", others[0].text.chars);
	cr_assert_eq(actor_call(&others[0], zero_job_destroy, NULL), 0, "%s", others[0].text.chars);
	others[0].rank = NULL;
	node_settle(&node);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	leave();
	cr_expect_eq(restore("train", "used", ""), -EINVAL);
	cr_expect_not_null(strstr(kept.op.text.chars, "is a snapshot of a forward-only job"), "%s",
	                   kept.op.text.chars);
	plain_deinit(&plain);
	end();
}

/* ---- what is not there ---- */

Test(zero_forward, ranks_differ_by_name)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	begin();
	cr_assert_eq(actor_attach(&node, &others[0],
	                          &(struct attach_options){
					  .world = 2, .config = config, .training = forward }),
	             0);
	expect_refused(
		&others[1], "is_forward_only is false, but true in the other ranks", -EINVAL,
		actor_attach(&node, &others[1],
	                     &(struct attach_options){ .rank = 1, .world = 2, .config = config }));
	end();
}

Test(zero_forward, what_has_no_room_is_refused_with_figures_and_leaves_nothing)
{
	struct zi_job_config config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NONE);

	node_init(&node);
	node.cpu_bytes = 2 * MIB;
	node_start(&node);
	expect_refused(&others[0], "parameters of job 'look' with 1 rank take 2.1 MiB", -ENOSPC,
	               use("look", &config, 1, NULL));
	leave();
	node_stop(&node);
	node.cpu_bytes = 16 * MIB;
	node_start(&node);
	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME);
	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = 2200 << 10;
	config.staging_bytes = 2 * MIB;
	expect_refused(&others[0],
	               "staging_bytes is 2 MiB: writing parameters needs 3 slots of 1 MiB", -EINVAL,
	               use("look", &config, 1, NULL));
	end();
}
