/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the whole model on a GPU has the losses and gradients of the CPU, bit by bit in f32; no
 * gradient that was not computed is handed over. Method: the same tiny model twice over the
 * reference backend, once on a fake GPU with a fake cuBLAS.
 */
#include <errno.h>

#include "examples/gpt/layers_gpu.h"
#include "examples/gpt/product_bf16.h"
#include "tests/unit/gpt/fixture.h"
#include "tests/unit/gpt/gpu.h"

static const struct gpt_config tiny = {
	.layer_count = 3, .head_count = 2, .channel_count = 8, .sequence_count = 6, .batch_count = 3
};

static double micro_batch(struct fixture *f, uint32_t index, uint32_t count)
{
	double loss = NAN;

	f->units.place = (struct gpt_units_place){ .micro_index = index, .micro_count = count };
	cr_assert_eq(gpt_forward(&f->units, &f->acts, f->inputs[index], f->targets[index], &loss),
	             0);
	cr_assert_eq(gpt_backward(&f->units, &f->acts, f->inputs[index], f->targets[index]), 0);
	return loss;
}

/* Two micro-batches in one buffer. */
static void expect_same(const char *order, const char *flag, const char *other_flag)
{
	static struct fixture cpu, gpu;
	struct gpt_device *device = open_gpu(order);

	set_up(&cpu, &tiny, flag, other_flag);
	set_up_on(&gpu, device, &tiny, flag, other_flag);
	for (uint32_t index = 0; index < 2; index++) {
		double on_cpu = micro_batch(&cpu, index, 2), on_gpu = micro_batch(&gpu, index, 2);

		cr_expect_eq(on_cpu, on_gpu, "%.17g and %.17g", on_cpu, on_gpu);
	}
	for (uint32_t p = 0; p < cpu.model.param_count; p++) {
		size_t bytes = cpu.model.params[p].element_count *
		               (gpt_grad_dtype(&cpu.args) == ZINF_F32 ? 4 : 2);

		cr_expect_eq(memcmp(cpu.backend->ops->grad(cpu.backend, 0, p),
		                    gpu.backend->ops->grad(gpu.backend, 0, p), bytes),
		             0, "%s", cpu.model.params[p].name);
	}
	tear_down(&gpu);
	tear_down(&cpu);
	gpt_device_close(device);
}

Test(gpu_model, is_the_cpus_in_the_order_eager)
{
	expect_same("order=eager", NULL, NULL);
}

Test(gpu_model, is_the_cpus_in_the_order_late)
{
	expect_same("order=late", NULL, NULL);
}

Test(gpu_model, is_the_cpus_in_orders_that_are_drawn)
{
	expect_same("order=shuffled:3", NULL, NULL);
}

Test(gpu_model, is_the_cpus_where_blocks_are_computed_again)
{
	expect_same("order=late", "--activations=recompute", "--checkpoint-every=2");
}

/* Where the CPU multiplies in bf16, the fake cuBLAS does it as well. */
Test(gpu_model, is_the_cpus_in_bf16_where_the_cpu_has_it)
{
	if (!gpt_bf16_is_there())
		cr_skip_test("this CPU has no AVX512-BF16");
	expect_same("order=shuffled:5", "--bf16", NULL);
	expect_same("order=shuffled:5", "--bf16", "--f32-grads");
}

/* Rounding of factors costs less than 1e-2 of the loss. */
Test(gpu_model, is_near_the_f32_model_in_bf16)
{
	static struct fixture wide, narrow;
	struct gpt_device *device = open_gpu("");
	double in_f32, in_bf16;

	set_up(&wide, &tiny, NULL, NULL);
	set_up_on(&narrow, device, &tiny, "--bf16", NULL);
	in_f32 = micro_batch(&wide, 0, 1);
	in_bf16 = micro_batch(&narrow, 0, 1);
	cr_expect_float_eq(in_f32, in_bf16, 1e-2 * in_f32, "%g, %g", in_f32, in_bf16);
	tear_down(&narrow);
	tear_down(&wide);
	gpt_device_close(device);
}

/* What a run meets when something fails; the sentence is the GPU's. */
static void expect_failure(const char *words, int error, const char *sentence)
{
	static struct fixture f;
	struct gpt_device *device = open_gpu(words);
	struct gpt_problem problem = { "" };
	double loss = 0;
	int r;

	set_up_on(&f, device, &tiny, NULL, NULL);
	f.units.place = (struct gpt_units_place){ .micro_count = 1 };
	r = gpt_forward(&f.units, &f.acts, f.inputs[0], f.targets[0], &loss);
	if (!r)
		r = gpt_backward(&f.units, &f.acts, f.inputs[0], f.targets[0]);
	cr_expect_eq(r, error, "%d", r);
	cr_expect_eq(gpt_backend_problem(f.backend, r, &problem), error);
	cr_expect(strstr(problem.chars, sentence), "%s", problem.chars);
	tear_down(&f);
	gpt_device_close(device);
}

Test(gpu_model, a_launch_that_fails_ends_the_forward)
{
	expect_failure("fail=cuLaunchKernel:3:719", -EIO,
	               "gpt_kernel_fill_rows failed with code "
	               "719");
}

Test(gpu_model, a_kernel_that_fails_later_ends_the_forward)
{
	expect_failure("order=late,fail=kernel:2:700", -EIO, "failed with code 700");
}

Test(gpu_model, a_copy_to_the_gpu_that_fails_ends_the_run)
{
	expect_failure("fail=cuMemcpyHtoDAsync:3:999", -EIO,
	               "a copy to the GPU failed with code 999");
}

Test(gpu_model, a_copy_from_the_gpu_that_fails_ends_the_run)
{
	expect_failure("fail=cuMemcpyDtoHAsync:1:999", -EIO,
	               "a copy from the GPU failed with code 999");
}

Test(gpu_model, a_copy_in_gpu_memory_that_fails_ends_the_backward)
{
	expect_failure("fail=cuMemcpyDtoDAsync:1:999", -EIO,
	               "a copy in GPU memory failed with code 999");
}

Test(gpu_model, memory_that_is_not_zeroed_ends_the_backward)
{
	expect_failure("fail=cuMemsetD8Async:1:1", -EIO, "zeroing GPU memory failed with code 1");
}

Test(gpu_model, a_product_that_fails_ends_the_forward)
{
	cr_assert_eq(setenv("ZINF_FAKE_CUBLAS", "cublasGemmEx:2:13", 1), 0);
	expect_failure("", -EIO,
	               "cuBLAS: a matrix product failed with status 13 (EXECUTION_FAILED)");
}

Test(gpu_model, a_batch_of_products_that_fails_ends_the_run)
{
	cr_assert_eq(setenv("ZINF_FAKE_CUBLAS", "cublasGemmBatchedEx:8:3", 1), 0);
	expect_failure("", -ENOMEM, "cuBLAS: a matrix product failed with status 3 (ALLOC_FAILED)");
}

/* Backward's first gradients are those of the last layer norm. */
Test(gpu_model, hands_over_no_gradient_behind_an_error)
{
	static struct fixture f;
	struct gpt_device *device = open_gpu("");
	double loss = 0;
	uint32_t final;

	set_up_on(&f, device, &tiny, NULL, NULL);
	final = f.model.units[gpt_model_final_unit(&f.model)].param_index;
	f.units.place = (struct gpt_units_place){ .micro_count = 1 };
	cr_assert_eq(gpt_forward(&f.units, &f.acts, f.inputs[0], f.targets[0], &loss), 0);
	f.units.layers->error = -EIO;
	cr_expect_eq(gpt_units_grads_end(&f.units, gpt_model_final_unit(&f.model)), -EIO);
	cr_expect_eq(((float *)f.backend->ops->grad(f.backend, 0, final))[0], 0);
	f.units.layers->error = 0;
	tear_down(&f);
	gpt_device_close(device);
}

/* Of a GPU with 2 MiB pages, so many as the layers need are not there. */
Test(gpu_model, a_gpu_that_is_full_is_told)
{
	static struct fixture f;
	struct gpt_device *device = open_gpu("bytes=4M");
	struct gpt_problem problem = { "" };

	cr_assert_eq(gpt_model_init(&f.model, &tiny, &problem), 0);
	cr_expect_null(gpt_layers_gpu_new(device, &tiny, false));
	cr_expect_eq(gpt_device_error(device), -ENOMEM);
	cr_expect(strstr(gpt_device_error_text(device), "memory of the GPU failed with code 2"));
	gpt_model_deinit(&f.model);
	gpt_device_close(device);
}

Test(gpu_model, parameters_that_do_not_fit_leave_the_backend_as_it_was)
{
	const char *const argv[] = { "zinf-gpt" };
	struct gpt_device *device = open_gpu("bytes=2M");
	struct gpt_problem problem = { "" };
	struct gpt_model model = { 0 };
	struct gpt_backend *backend;
	struct gpt_args args;

	cr_assert_eq(gpt_args_parse(&args, 1, argv, &problem), 0);
	args.world_count = 1;
	cr_assert_eq(gpt_model_init(&model, &tiny, &problem), 0);
	backend = gpt_reference_open(&args, &model, &problem);
	cr_assert(backend);
	cr_expect_eq(gpt_staged_wrap(backend, &args, &model, device, &problem), -ENOMEM);
	cr_expect(strstr(problem.chars, "no room on the GPU for"), "%s", problem.chars);
	cr_expect_null(backend->device);
	backend->ops->close(backend);
	gpt_model_deinit(&model);
	gpt_device_close(device);
}
