/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: parameters after several steps are those of docs/ARITHMETIC.md, bit by bit, whatever the
 * number of ranks, the types, the schedule, clipping, and the place of the state. Method: a node
 * whose device completes in a drawn order, beside the plain computation: one array, no subgroups,
 * tiles or fusing.
 */
#include "daemon/tier/stripe.h"
#include "tests/unit/zero/plain.h"

#define STEPS 2u

struct variant {
	struct zi_job_config config;
	struct zi_step_options options;
};

static void train(struct node *node, const struct variant *variant, uint32_t world)
{
	struct actor actors[4] = { 0 };
	struct zi_step_stats stats;
	struct plain plain;

	plain_init(&plain, &variant->config, world);
	model_attach(node, actors, world, &(struct attach_options){ .config = variant->config });
	cr_assert_eq(model_materialize(actors, world), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, -1);
	model_write(actors, world);
	cr_assert(plain_equals(&plain, &actors[world - 1]), "before the first step");
	for (uint64_t step = 1; step <= STEPS; step++) {
		cr_assert_eq(model_step(actors, world, step, &variant->options), 0, "%s",
		             actors[0].text.chars);
		stats = actors[0].calls[0].op.stats;
		plain_step(&plain, step, &variant->options);
		cr_assert(plain_equals(&plain, &actors[world - 1]),
		          "step %llu: world %u, param %s, grad %s, optimizer %s, %s, offload %s, "
		          "resident %llu, param budget %llu, max_norm %g",
		          (unsigned long long)step, world,
		          zi_dtype_name((enum zi_dtype)variant->config.param_dtype),
		          zi_dtype_name((enum zi_dtype)variant->config.grad_dtype),
		          zi_optimizer_name((enum zi_optimizer)variant->config.optimizer),
		          zi_schedule_name((enum zi_schedule)variant->config.schedule),
		          zi_offload_name((enum zi_offload)variant->config.offload_optimizer),
		          (unsigned long long)variant->config.resident_bytes,
		          (unsigned long long)variant->config.param_budget_bytes,
		          variant->options.max_norm);
		cr_assert_eq(stats.step, step);
		if (variant->options.max_norm > 0)
			cr_assert_eq(stats.norm, plain.norm);
		else
			cr_assert(isnan(stats.norm));
	}
	for (uint32_t i = 1; i < world; i++)
		actor_leave(&actors[i], true);
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0, "%s", actors[0].text.chars);
	plain_deinit(&plain);
	node_settle(node);
	cr_assert_eq(node->nvme.used_bytes, 0);
	cr_assert_eq(tier_extent_free_bytes(&node->nvme), node->nvme.capacity_bytes);
}

static void train_everywhere(struct node *node, struct variant variant)
{
	static const uint32_t worlds[] = { 1, 2, 4 };
	static const uint64_t residents[] = { 0, 4 * MIB, 64 * MIB };
	bool is_f16 = variant.config.param_dtype == ZI_DTYPE_F16;

	for (size_t i = 0; i < ZI_COUNT_OF(worlds); i++) {
		variant.config.offload_optimizer = ZI_OFFLOAD_CPU;
		variant.config.resident_bytes = 0;
		train(node, &variant, worlds[i]);
		variant.config.offload_optimizer = ZI_OFFLOAD_NVME;
		variant.config.resident_bytes = residents[i % ZI_COUNT_OF(residents)];
		/* The node's own 8 MiB are two slots of f16; with parameters in them they are of
		 * 3.5 MiB. */
		if (is_f16)
			variant.config.staging_bytes = 12 * MIB;
		train(node, &variant, worlds[i]);
		/* Parameters there too: a pool for the largest unit alone, or for some more. */
		variant.config.offload_param = ZI_OFFLOAD_NVME;
		variant.config.staging_bytes = is_f16 ? 12 * MIB : 10 * MIB;
		variant.config.param_budget_bytes =
			(532480 + 16384 * i) *
			zi_dtype_bytes((enum zi_dtype)variant.config.param_dtype);
		train(node, &variant, worlds[i]);
		variant.config.offload_param = ZI_OFFLOAD_NONE;
		variant.config.staging_bytes = 0;
		variant.config.param_budget_bytes = 0;
	}
}

static void run(uint32_t param_dtype, uint32_t grad_dtype, uint32_t schedule, double max_norm,
                uint32_t optimizer, uint32_t flags)
{
	struct variant variant = { .config = model_config(param_dtype, 0),
		                   .options = model_options() };
	struct node node;

	node_init(&node);
	node.seed = param_dtype + 10 * schedule;
	node_start(&node);
	variant.config.grad_dtype = grad_dtype;
	variant.config.schedule = schedule;
	variant.config.optimizer = optimizer;
	variant.options.max_norm = max_norm;
	variant.options.flags = flags;
	variant.options.micro_batches = schedule == ZI_SCHEDULE_SHARDED ? 2 : 1;
	variant.options.lr_decay = optimizer == ZI_OPTIMIZER_ADAGRAD ? 0.5 : 0;
	train_everywhere(&node, variant);
	node_deinit(&node);
}

Test(zero_bits, bf16_local)
{
	run(ZI_DTYPE_BF16, ZI_DTYPE_BF16, ZI_SCHEDULE_LOCAL, 0, ZI_OPTIMIZER_ADAMW, 0);
}

Test(zero_bits, bf16_local_clipped)
{
	run(ZI_DTYPE_BF16, ZI_DTYPE_BF16, ZI_SCHEDULE_LOCAL, 0.25, ZI_OPTIMIZER_ADAMW, 0);
}

Test(zero_bits, bf16_sharded_clipped)
{
	run(ZI_DTYPE_BF16, ZI_DTYPE_BF16, ZI_SCHEDULE_SHARDED, 0.25, ZI_OPTIMIZER_ADAM, 0);
}

Test(zero_bits, bf16_sharded_with_f32_gradients)
{
	run(ZI_DTYPE_BF16, ZI_DTYPE_F32, ZI_SCHEDULE_SHARDED, 0, ZI_OPTIMIZER_ADAMW, 0);
}

Test(zero_bits, f16_local)
{
	run(ZI_DTYPE_F16, ZI_DTYPE_F16, ZI_SCHEDULE_LOCAL, 0, ZI_OPTIMIZER_ADAMW, 0);
}

Test(zero_bits, f16_sharded_clipped)
{
	run(ZI_DTYPE_F16, ZI_DTYPE_F16, ZI_SCHEDULE_SHARDED, 0.25, ZI_OPTIMIZER_ADAM, 0);
}

Test(zero_bits, f16_with_f32_gradients)
{
	run(ZI_DTYPE_F16, ZI_DTYPE_F32, ZI_SCHEDULE_LOCAL, 0, ZI_OPTIMIZER_ADAMW, 0);
}

Test(zero_bits, f16_with_one_moment)
{
	run(ZI_DTYPE_F16, ZI_DTYPE_F16, ZI_SCHEDULE_LOCAL, 0, ZI_OPTIMIZER_SGD, ZI_STEP_NESTEROV);
	run(ZI_DTYPE_F16, ZI_DTYPE_F16, ZI_SCHEDULE_SHARDED, 0.25, ZI_OPTIMIZER_LION, 0);
}

Test(zero_bits, f32_local_summed)
{
	run(ZI_DTYPE_F32, ZI_DTYPE_F32, ZI_SCHEDULE_LOCAL, 0, ZI_OPTIMIZER_ADAM, ZI_STEP_SUM);
}

Test(zero_bits, f32_local_clipped)
{
	run(ZI_DTYPE_F32, ZI_DTYPE_F32, ZI_SCHEDULE_LOCAL, 0.25, ZI_OPTIMIZER_ADAMW, 0);
}

Test(zero_bits, f32_sharded)
{
	run(ZI_DTYPE_F32, ZI_DTYPE_F32, ZI_SCHEDULE_SHARDED, 0, ZI_OPTIMIZER_ADAMW, 0);
}

Test(zero_bits, bf16_sgd_with_nesterov_momentum)
{
	run(ZI_DTYPE_BF16, ZI_DTYPE_BF16, ZI_SCHEDULE_LOCAL, 0, ZI_OPTIMIZER_SGD, ZI_STEP_NESTEROV);
}

/* The same on the threads of a real pool: whatever runs at once, in whatever order it ends. */
Test(zero_bits, bf16_on_pool_threads)
{
	struct variant variant = { .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME),
		                   .options = model_options() };
	struct node node;

	node_init(&node);
	node.thread_count = 3;
	node_start(&node);
	variant.config.schedule = ZI_SCHEDULE_SHARDED;
	variant.options.max_norm = 0.25;
	variant.options.micro_batches = 2;
	train_everywhere(&node, variant);
	node_deinit(&node);
}

Test(zero_bits, f32_sgd)
{
	run(ZI_DTYPE_F32, ZI_DTYPE_F32, ZI_SCHEDULE_SHARDED, 0.25, ZI_OPTIMIZER_SGD, 0);
}

Test(zero_bits, bf16_adagrad)
{
	run(ZI_DTYPE_BF16, ZI_DTYPE_BF16, ZI_SCHEDULE_SHARDED, 0, ZI_OPTIMIZER_ADAGRAD, 0);
}

Test(zero_bits, f32_adagrad_clipped)
{
	run(ZI_DTYPE_F32, ZI_DTYPE_F32, ZI_SCHEDULE_LOCAL, 0.25, ZI_OPTIMIZER_ADAGRAD, 0);
}

Test(zero_bits, f32_adamw_without_bias_correction)
{
	run(ZI_DTYPE_F32, ZI_DTYPE_F32, ZI_SCHEDULE_LOCAL, 0, ZI_OPTIMIZER_ADAMW,
	    ZI_STEP_NO_BIAS_CORRECTION);
}

Test(zero_bits, bf16_lion_clipped)
{
	run(ZI_DTYPE_BF16, ZI_DTYPE_BF16, ZI_SCHEDULE_LOCAL, 0.25, ZI_OPTIMIZER_LION, 0);
}

Test(zero_bits, f32_lion)
{
	run(ZI_DTYPE_F32, ZI_DTYPE_F32, ZI_SCHEDULE_SHARDED, 0, ZI_OPTIMIZER_LION, 0);
}
