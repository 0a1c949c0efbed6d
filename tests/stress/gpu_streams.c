/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that share one open driver: each one runs pipelines on streams of its own, in the order
 * of $ZINF_FAKE_GPU (eager without it). Under TSan this looks at the table of functions and at the
 * fake driver itself: its mutex, the threads of its streams, and operations that run without the
 * mutex.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/text.h"
#include "tests/gpu/pipeline.h"

#define THREADS 4u
#define ROUNDS  6u

static struct zi_gpu_driver driver;

/* @arg: whether all was right: written. */
static void *run_pipelines(void *arg)
{
	bool *is_right = arg;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct pipeline pipeline = {
			.cuda = &driver.cuda,
			.left_out = PIPELINE_NO_WAIT,
			.polls = round % 2,
		};
		int64_t wrong_count = -1;

		if (!pipeline_start(&pipeline))
			wrong_count = pipeline_run(&pipeline);
		if (pipeline_stop(&pipeline) || wrong_count) {
			(void)fprintf(stderr, "round %u: code %d, %lld words are wrong\n", round,
			              pipeline.code, (long long)wrong_count);
			return NULL;
		}
	}
	*is_right = true;
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	bool are_right[THREADS] = { false };
	struct zi_text text = { "" };
	bool is_right = true;
	char path[FAKE_GPU_PATH_BYTES];

	if (zi_gpu_driver_open(&driver, fake_gpu_path(path, sizeof(path), "libcuda.so.1"), &text)) {
		(void)fprintf(stderr, "%s\n", text.chars);
		return 1;
	}
	for (uint32_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, run_pipelines, &are_right[i]))
			return 1;
	for (uint32_t i = 0; i < THREADS; i++) {
		(void)pthread_join(threads[i], NULL); /* Started above. */
		is_right &= are_right[i];
	}
	zi_gpu_driver_close(&driver);
	return !is_right;
}
