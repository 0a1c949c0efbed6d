/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: requests for chunks of a GPU are served one after the other, each ends exactly once, and
 * after the end of their owner none reaches it. Method: a fake owner that keeps one request until
 * the test answers it.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "daemon/device/gpu.h"

#define REQUESTS 4

static struct dev_gpu gpu;
static struct dev_gpu_request requests[REQUESTS];
static struct dev_gpu_chunk chunks[REQUESTS][2];
static struct dev_gpu_request *taken; /* by the fake owner; NULL: none */
static int create_result, release_result;
static uint32_t create_count, release_count;
static uint32_t done_count[REQUESTS];
static struct dev_gpu_request *then; /* is made by the next `done` */

static int fake_create(void *arg, struct dev_gpu_request *request)
{
	cr_assert_eq(arg, requests);
	create_count++;
	cr_assert_null(taken, "one at a time");
	if (create_result)
		return zi_text_error(&request->text, create_result, "the fake refuses");
	taken = request;
	return 0;
}

static int fake_release(void *arg, struct dev_gpu_request *request)
{
	cr_assert_eq(arg, requests);
	release_count++;
	cr_assert_null(taken, "one at a time");
	if (!release_result)
		taken = request;
	return release_result;
}

static const struct dev_gpu_ops fake_ops = { fake_create, fake_release };

static void done(struct dev_gpu_request *request)
{
	struct dev_gpu_request *next = then;

	done_count[request - requests]++;
	then = NULL;
	if (next)
		cr_assert_eq(dev_gpu_create(&gpu, next), 0);
}

static void answer(int error)
{
	static const struct zi_text text = { "the fake's answer" };

	cr_assert(taken);
	taken = NULL;
	dev_gpu_answer(&gpu, error, error ? &text : NULL);
}

static void gpu_open(void)
{
	static const struct dev_gpu_facts facts = { .uuid = "GPU-1",
		                                    .bytes = 1 << 30,
		                                    .granularity_bytes = 4096 };

	dev_gpu_init(&gpu, &facts, &fake_ops, requests);
	for (int i = 0; i < REQUESTS; i++)
		requests[i] = (struct dev_gpu_request){
			.done = done, .count = 2, .chunk_bytes = 4096, .chunks = chunks[i]
		};
	taken = then = NULL;
	create_result = release_result = 0;
	create_count = release_count = 0;
	memset(done_count, 0, sizeof(done_count));
}

static void gpu_close(void)
{
	dev_gpu_deinit(&gpu);
}

TestSuite(gpu, .init = gpu_open, .fini = gpu_close);

Test(gpu, releases_are_served_before_creates_that_wait)
{
	cr_assert_eq(dev_gpu_create(&gpu, &requests[0]), 0);
	cr_assert_eq(dev_gpu_create(&gpu, &requests[1]), 0);
	dev_gpu_release(&gpu, &requests[2]);
	cr_assert_eq(taken, &requests[0]);
	cr_assert_eq(create_count, 1);
	answer(0);
	cr_assert_eq(taken, &requests[2]);
	cr_assert_eq(release_count, 1);
	answer(0);
	cr_assert_eq(taken, &requests[1]);
	answer(-ENOMEM);
	for (int i = 0; i < 3; i++)
		cr_expect_eq(done_count[i], 1, "%d", i);
	cr_expect_eq(requests[0].error, 0);
	cr_expect_eq(requests[1].error, -ENOMEM);
	cr_expect_str_eq(requests[1].text.chars, "the fake's answer");
}

Test(gpu, a_request_that_is_refused_at_once_has_no_done)
{
	create_result = -EAGAIN;
	cr_assert_eq(dev_gpu_create(&gpu, &requests[0]), -EAGAIN);
	cr_expect_str_eq(requests[0].text.chars, "the fake refuses");
	cr_expect_eq(done_count[0], 0);
	create_result = 0;
	cr_assert_eq(dev_gpu_create(&gpu, &requests[0]), 0, "the next one is served");
	answer(0);
}

Test(gpu, a_request_that_waited_is_refused_by_its_done)
{
	cr_assert_eq(dev_gpu_create(&gpu, &requests[0]), 0);
	cr_assert_eq(dev_gpu_create(&gpu, &requests[1]), 0);
	cr_assert_eq(dev_gpu_create(&gpu, &requests[2]), 0);
	create_result = -EAGAIN;
	answer(0);
	cr_expect_eq(done_count[1] + done_count[2], 2);
	cr_expect_eq(requests[2].error, -EAGAIN);
	cr_expect_str_eq(requests[2].text.chars, "the fake refuses");
}

Test(gpu, chunks_that_ended_with_their_process_are_released)
{
	release_result = DEV_GPU_E_GONE;
	dev_gpu_release(&gpu, &requests[0]);
	cr_expect_eq(done_count[0], 1);
	cr_expect_eq(requests[0].error, 0);
	release_result = -EBUSY;
	dev_gpu_release(&gpu, &requests[1]);
	cr_expect_eq(done_count[1], 1);
	cr_expect_eq(requests[1].error, -EBUSY);
}

Test(gpu, a_request_may_be_made_by_the_end_of_another)
{
	cr_assert_eq(dev_gpu_create(&gpu, &requests[0]), 0);
	cr_assert_eq(dev_gpu_create(&gpu, &requests[1]), 0);
	then = &requests[2];
	answer(0);
	cr_assert_eq(taken, &requests[1], "it comes behind those that wait");
	then = &requests[3];
	answer(0);
	cr_assert_eq(taken, &requests[2]);
	answer(0);
	answer(0);
	for (int i = 0; i < REQUESTS; i++)
		cr_expect_eq(done_count[i], 1, "%d", i);
}

Test(gpu, a_request_that_waits_can_be_cancelled_and_one_that_is_served_cannot)
{
	cr_assert_eq(dev_gpu_create(&gpu, &requests[0]), 0);
	cr_assert_eq(dev_gpu_create(&gpu, &requests[1]), 0);
	cr_expect_not(dev_gpu_cancel(&gpu, &requests[0]));
	cr_expect(dev_gpu_cancel(&gpu, &requests[1]));
	answer(0);
	cr_expect_null(taken);
	cr_expect_eq(done_count[0], 1);
	cr_expect_eq(done_count[1], 0);
}

Test(gpu, after_the_end_of_the_owner_nothing_reaches_it)
{
	cr_assert_eq(dev_gpu_create(&gpu, &requests[0]), 0);
	cr_assert_eq(dev_gpu_create(&gpu, &requests[1]), 0);
	dev_gpu_release(&gpu, &requests[2]);
	dev_gpu_close(&gpu);
	cr_expect_eq(done_count[0] + done_count[1] + done_count[2], 0, "one is served");
	answer(-ESHUTDOWN);
	cr_expect_eq(requests[1].error, -ESHUTDOWN);
	cr_expect(strstr(requests[1].text.chars, "stopping"), "%s", requests[1].text.chars);
	cr_expect_eq(requests[2].error, 0, "its chunks have ended");
	for (int i = 0; i < 3; i++)
		cr_expect_eq(done_count[i], 1, "%d", i);
	cr_expect_eq(dev_gpu_create(&gpu, &requests[3]), -ESHUTDOWN);
	dev_gpu_release(&gpu, &requests[3]);
	cr_expect_eq(done_count[3], 1);
	cr_expect_eq(create_count, 1);
	cr_expect_eq(release_count, 0);
}

Test(gpu, says_why_its_process_does_not_run)
{
	const struct zi_text text = { "it was killed" };

	cr_expect(gpu.is_up);
	dev_gpu_set_down(&gpu, &text);
	cr_expect_not(gpu.is_up);
	cr_expect_str_eq(gpu.down.chars, "it was killed");
	dev_gpu_set_up(&gpu);
	cr_expect(gpu.is_up);
	cr_expect_str_empty(gpu.down.chars);
}

/* ---- an owner that was killed and lives on ---- */

Test(gpu, releases_are_parked_until_the_owner_that_is_ending_has_gone)
{
	dev_gpu_release(&gpu, &requests[0]);
	cr_assert_eq(dev_gpu_create(&gpu, &requests[1]), 0);
	dev_gpu_release(&gpu, &requests[2]);
	dev_gpu_set_ending(&gpu, 7, 1);
	cr_expect_eq(gpu.ending_pid, 7);
	/* The owner fails what it has, and knows of the next ones. */
	release_result = DEV_GPU_E_ENDING;
	create_result = -EAGAIN;
	answer(-EIO);
	cr_expect_eq(done_count[0], 0, "the owner still holds them");
	cr_expect_eq(done_count[2], 0);
	cr_expect_eq(release_count, 2);
	cr_expect_eq(requests[1].error, -EAGAIN, "behind the releases, and not parked");
	cr_expect_eq(done_count[1], 1);
	dev_gpu_set_gone(&gpu);
	cr_expect_eq(gpu.ending_pid, 0);
	cr_expect_eq(done_count[0], 1);
	cr_expect_eq(done_count[2], 1);
	cr_expect_eq(requests[0].error, 0);
	cr_expect_eq(requests[2].error, 0);
}

Test(gpu, chunks_of_a_failed_create_are_awaited_while_the_owner_is_ending)
{
	cr_assert_eq(dev_gpu_create(&gpu, &requests[0]), 0);
	answer(-ENOMEM);
	dev_gpu_await_gone(&gpu, &requests[0]);
	cr_expect_eq(done_count[0], 2, "nobody is ending");
	cr_assert_eq(dev_gpu_create(&gpu, &requests[0]), 0);
	dev_gpu_set_ending(&gpu, 7, 1);
	answer(-EIO);
	cr_expect_eq(done_count[0], 3, "it is told at once");
	dev_gpu_await_gone(&gpu, &requests[0]);
	cr_expect_eq(done_count[0], 3);
	/* That process never had this one. */
	cr_assert_eq(dev_gpu_create(&gpu, &requests[1]), 0);
	answer(-EAGAIN);
	dev_gpu_await_gone(&gpu, &requests[1]);
	cr_expect_eq(done_count[1], 2);
	/* A `done` may ask for more. */
	then = &requests[2];
	dev_gpu_set_gone(&gpu);
	cr_expect_eq(done_count[0], 4);
	cr_assert_eq(taken, &requests[2]);
	answer(0);
}

Test(gpu, what_is_parked_ends_with_the_daemon)
{
	dev_gpu_release(&gpu, &requests[0]);
	dev_gpu_set_ending(&gpu, 7, 1);
	answer(-EIO);
	cr_expect_eq(done_count[0], 0);
	cr_assert_eq(dev_gpu_create(&gpu, &requests[1]), 0);
	dev_gpu_close(&gpu);
	cr_expect_eq(done_count[0], 1);
	answer(-ESHUTDOWN);
	dev_gpu_release(&gpu, &requests[2]);
	cr_expect_eq(done_count[2], 1, "not parked any more");
}
