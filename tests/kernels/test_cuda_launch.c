/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a process that launches the kernels of kernels/cuda.h through the driver gets the bits of
 * kern_*. Method: the fake driver. Each kernel is found by its name in the module of the image,
 * and launched with the arguments, the check and the grid of cuda.h over GPU memory, in each order
 * of streams; what comes back is compared with what kern_* make of the same memory.
 */
#include <criterion/criterion.h>

#include "kernels/cuda/image.h"
#include "tests/kernels/cuda_case.h"
#include "tests/unit/gpu/fixture.h"

#define CASES           3u /* of each kernel, in each order */
#define MULTIPROCESSORS 2u

static struct zi_gpu_driver driver;
static struct zi_cuda_module *module;
static struct zi_cuda_stream *stream;
static uint64_t base; /* of CASE_BYTES in GPU memory */
static char *expected, *found;

static void start(const char *order)
{
	const struct zi_cuda *cuda = start_gpu(&driver, order);
	/* Where there is no nvcc the fake takes any PTX. */
	const void *image = kern_cuda_image() ? kern_cuda_image() : ".version 8.0\n";
	uint64_t handle;

	static_assert(CASE_BYTES <= 2u << 20, "a chunk");
	cr_assert_eq(cuda->cuModuleLoadData(&module, image), 0);
	cr_assert_eq(cuda->cuStreamCreateWithPriority(&stream, ZI_CUDA_STREAM_NON_BLOCKING, 0), 0);
	base = map_chunks(cuda, 1, &handle);
	expected = case_memory_new();
	found = case_memory_new();
}

static void check_case(enum kern_cuda_kernel kernel, uint64_t seed)
{
	const struct zi_cuda *cuda = &driver.cuda;
	const struct cuda_case c = case_draw(kernel, seed);
	struct kern_cuda_grid grid;
	struct zi_cuda_function *function = NULL;
	struct zi_text text = { "" };
	union cuda_args args;
	void *parameters[] = { &args };

	case_fill(&c, expected, (uintptr_t)expected, &args);
	case_expect(&c, &args);
	case_fill(&c, found, base, &args);
	cr_assert_eq(kern_cuda_check(kernel, &args, &text), 0, "%s", text.chars);
	/* All arguments begin with the number of elements, nodes or tiles. */
	grid = kern_cuda_grid_of(kernel, args.widen.element_count, MULTIPROCESSORS);
	cr_assert_eq(cuda->cuModuleGetFunction(&function, module, kern_cuda_name(kernel)), 0);
	cr_assert_eq(cuda->cuMemcpyHtoDAsync(base, found, CASE_BYTES, stream), 0);
	cr_assert_eq(cuda->cuLaunchKernel(function, grid.block_count, 1, 1, grid.thread_count, 1, 1,
	                                  0, stream, parameters, NULL),
	             0);
	memset(&args, 0, sizeof(args)); /* They were read by the call. */
	cr_assert_eq(cuda->cuMemcpyDtoHAsync(found, base, CASE_BYTES, stream), 0);
	cr_assert_eq(cuda->cuStreamSynchronize(stream), 0);
	case_compare(&c, expected, found);
}

static void check_order(const char *order, uint64_t seed)
{
	start(order);
	for (uint32_t i = 0; i < CASES * _KERN_CUDA_COUNT; i++)
		check_case((enum kern_cuda_kernel)(i % _KERN_CUDA_COUNT), seed + i);
	free(expected);
	free(found);
}

Test(cuda_launch, eager_streams_give_the_bits_of_the_cpu)
{
	check_order("order=eager", 1000);
}

Test(cuda_launch, late_streams_give_the_bits_of_the_cpu)
{
	check_order("order=late", 2000);
}

Test(cuda_launch, shuffled_streams_give_the_bits_of_the_cpu)
{
	check_order("order=shuffled:3", 3000);
}

Test(cuda_launch, an_image_is_a_fatbin_or_there_is_none)
{
	static const uint8_t magic[] = { 0x50, 0xed, 0x55, 0xba };

	if (kern_cuda_image())
		cr_assert_arr_eq(kern_cuda_image(), magic, sizeof(magic));
}
