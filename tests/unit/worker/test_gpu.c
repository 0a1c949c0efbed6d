/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: through zinf-gpu the daemon gets chunks of a GPU, all or none, and gives them back. What
 * goes wrong in the driver (refusal, hang, death) fails the request with the GPU and the reason,
 * and leaves neither memory nor descriptors. Method: the program zinf-gpu on the fake driver.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "common/gpu/driver.h"
#include "tests/unit/worker/gpu_real.h"

/* Descriptors of a zinf-gpu without chunks: standard ones and the socket. */
#define OWN_FDS 4u

static void expect_line(pid_t pid, const char *line)
{
	char path[64], buffer[256];
	bool is_there = false;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	cr_assert(file);
	while (fgets(buffer, sizeof(buffer), file))
		is_there |= !strncmp(buffer, line, strlen(line));
	(void)fclose(file);
	cr_expect(is_there, "%s", line);
}

/* ---- the greeting ---- */

Test(gpu, the_greeting_tells_what_the_gpu_is)
{
	struct gpu_test test = { .options.device = FAKE_GPU_UUID_1 };
	const struct gpu_facts *facts;

	gpu_real_init(&test, "gpus=3,bytes=256M,mode=exclusive,cuda=12040");
	cr_expect(!gpu_worker_facts(test.worker));
	cr_expect_eq(gpu_worker_life(test.worker), 0);
	gpu_test_start(&test);
	gpu_test_start(&test); /* It is STARTING: nothing to do. */
	gpu_test_await(&test, GPU_WORKER_UP);
	facts = gpu_worker_facts(test.worker);
	cr_assert(facts);
	cr_expect_str_eq(facts->uuid, FAKE_GPU_UUID_1);
	cr_expect(strstr(facts->name, "FAKE GPU 1"), "%s", facts->name);
	cr_expect_str_eq(facts->pci, "fa4e:a1:00.0");
	cr_expect_eq(facts->bytes, 256u << 20);
	cr_expect_eq(facts->granularity_bytes, 2u << 20);
	cr_expect_eq(facts->index, 1);
	cr_expect_eq(facts->count, 3);
	cr_expect_eq(test.seen_count, 3);
	cr_expect_eq(facts->driver_version, 12040);
	cr_expect_eq(facts->capability, 90);
	cr_expect_eq(facts->compute_mode, ZI_CUDA_MODE_EXCLUSIVE);
	cr_expect_eq(facts->host_numa, 0);
	cr_expect(facts->has_vmm);
	cr_expect(facts->has_posix_fds);
	cr_expect(!facts->is_mig);
	cr_expect_eq(gpu_worker_life(test.worker), 1);
	cr_expect_eq(gpu_real_fds(gpu_worker_pid(test.worker)), OWN_FDS);
	expect_line(gpu_worker_pid(test.worker), "NoNewPrivs:\t1");
	gpu_test_deinit(&test);
}

Test(gpu, an_instance_and_an_older_driver_are_told_as_such)
{
	struct gpu_test test = { .options.device = "1" };

	gpu_real_init(&test, "mig,cuda=11040");
	gpu_test_start(&test);
	gpu_test_await(&test, GPU_WORKER_UP);
	cr_expect_eq(strncmp(gpu_worker_facts(test.worker)->uuid, "MIG-", 4), 0);
	cr_expect(gpu_worker_facts(test.worker)->is_mig);
	cr_expect_eq(gpu_worker_facts(test.worker)->host_numa, -1);
	cr_expect_eq(gpu_worker_facts(test.worker)->index, 1);
	gpu_test_deinit(&test);
}

static void expect_no_gpu(const char *words, const char *device, const char *driver, int error,
                          const char *says)
{
	struct gpu_test test = { .options = { .device = device, .driver = driver } };

	gpu_real_init(&test, words);
	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), error, "%s %s: %d, %s", words,
	             device, test.request.error, test.request.text.chars);
	gpu_test_expect_text(test.request.text, "zinf-gpu of ");
	gpu_test_expect_text(test.request.text, device);
	gpu_test_expect_text(test.request.text, says);
	cr_expect(!gpu_worker_facts(test.worker));
	gpu_test_deinit(&test);
}

Test(gpu, a_gpu_that_cannot_be_used_is_told_with_the_reason)
{
	expect_no_gpu("", "0", "libm.so.6", -ELIBBAD, "is no CUDA driver");
	expect_no_gpu("", "0", "/nowhere/libcuda.so.1", -ENODEV, "/nowhere/libcuda.so.1");
	expect_no_gpu("", "0", "/bin/true", -ENODEV, "/bin/true");
	expect_no_gpu("gpus=0", "0", NULL, -ENODEV, "");
	expect_no_gpu("cuda=11030", "0", NULL, -ENOTSUP, "11.3");
	expect_no_gpu("missing=cuMemCreate", "0", NULL, -ENOTSUP, "cuMemCreate");
	expect_no_gpu("no=vmm", "0", NULL, -ENOTSUP, "virtual memory management");
	expect_no_gpu("no=fds", "0", NULL, -ENOTSUP, "file descriptors");
	expect_no_gpu("mode=prohibited", "0", NULL, -ENOTSUP, "PROHIBITED");
	expect_no_gpu("gpus=2", "2", NULL, -ENODEV, "there is no GPU 2: the driver shows 2");
	expect_no_gpu("gpus=2", "1x", NULL, -EINVAL, "no number of a GPU");
	expect_no_gpu("gpus=2,broken=1:999", "1", NULL, -EIO, "describing GPU 1");
	expect_no_gpu("gpus=1", FAKE_GPU_UUID_1, NULL, -ENODEV, "among the 1");
}

Test(gpu, the_number_of_gpus_is_told_before_the_gpu_is_opened)
{
	struct gpu_test test = { .options.device = "1" };

	gpu_real_init(&test, "gpus=3,stuck=1");
	gpu_test_start(&test);
	while (!test.seen_count)
		cr_assert_eq(zi_loop_run(test.loop), 0);
	cr_expect_eq(test.seen_count, 3);
	cr_expect_eq(gpu_worker_state(test.worker), GPU_WORKER_STARTING);
	gpu_test_deinit(&test);
}

/* By the UUID and the number that it had, which may be another one's now. */
Test(gpu, a_worker_that_starts_again_asks_no_other_gpu)
{
	static const struct zi_text reason = { "the test ends it" };
	struct gpu_test test = { .options.device = "1" };

	gpu_real_init(&test, "gpus=3");
	gpu_test_start(&test);
	gpu_test_await(&test, GPU_WORKER_UP);
	gpu_worker_kill(test.worker, &reason);
	gpu_real_set("gpus=3,broken=0:46,stuck=2");
	gpu_test_start(&test);
	gpu_test_await(&test, GPU_WORKER_UP);
	cr_expect_eq(test.greeted_count, 2);
	cr_expect_str_eq(gpu_worker_facts(test.worker)->uuid, FAKE_GPU_UUID_1);
	gpu_test_deinit(&test);
}

/* ---- chunks ---- */

/* Each descriptor is another chunk of @bytes, that a rank can import. */
static void expect_importable(const struct gpu_test *test, uint32_t count, uint64_t bytes)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text;

	cr_assert_eq(zi_gpu_driver_open(&driver, gpu_real_driver, &text), 0, "%s", text.chars);
	for (uint32_t i = 0; i < count; i++) {
		void *shared = (void *)(intptr_t)test->chunks[i].fd;
		uint64_t handle;
		struct stat status;

		cr_assert_eq(fstat(test->chunks[i].fd, &status), 0);
		cr_expect_eq((uint64_t)status.st_size, bytes);
		cr_assert_eq(driver.cuda.cuMemImportFromShareableHandle(&handle, shared,
		                                                        ZI_CUDA_HANDLE_POSIX_FD),
		             0);
		cr_assert_eq(driver.cuda.cuMemRelease(handle), 0);
		for (uint32_t k = 0; k < i; k++) {
			struct stat other;

			cr_assert_eq(fstat(test->chunks[k].fd, &other), 0);
			cr_expect_neq(other.st_ino, status.st_ino);
		}
	}
	zi_gpu_driver_close(&driver);
}

Test(gpu, chunks_are_made_exported_and_released)
{
	struct gpu_test test = { .loop = NULL };
	uint64_t bytes = 2 * GPU_TEST_CHUNK;
	pid_t pid;

	gpu_real_init(&test, "");
	cr_assert_eq(gpu_test_create(&test, 20, bytes), 0, "%s", test.request.text.chars);
	pid = gpu_worker_pid(test.worker);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 20 * bytes);
	expect_importable(&test, 20, bytes);
	for (uint32_t i = 0; i < 20; i++)
		cr_expect_eq(test.chunks[i].id, i + 1);
	/* The fake has a descriptor for each chunk; of the exported ones none is left there. */
	cr_expect_eq(gpu_real_fds(pid), OWN_FDS + 20);
	cr_expect_eq(gpu_test_release(&test, 5), 0);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 15 * bytes);
	cr_expect_eq(gpu_real_fds(pid), OWN_FDS + 15);
	gpu_test_close(&test, 5);
	/* Again: zinf-gpu has no such chunks; it goes on. */
	cr_expect_eq(gpu_test_release(&test, 5), -ENOENT);
	gpu_test_expect_text(test.request.text, "no chunk of " FAKE_GPU_UUID_0 " has the id 1");
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 15 * bytes);
	memmove(test.chunks, test.chunks + 5, 15 * sizeof(test.chunks[0]));
	cr_expect_eq(gpu_test_release(&test, 15), 0);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 0);
	gpu_test_close(&test, 15);
	cr_expect_eq(gpu_test_create(&test, 1, GPU_TEST_CHUNK), 0);
	cr_expect_eq(test.chunks[0].id, 21);
	cr_expect_eq(gpu_worker_pid(test.worker), pid);
	gpu_test_close(&test, 1);
	gpu_test_deinit(&test);
}

Test(gpu, whole_batches_and_one_more_come_alike)
{
	static const uint32_t counts[] = { 1, 7, 8, 9, 16, 17 };
	struct gpu_test test = { .loop = NULL };

	gpu_real_init(&test, "");
	for (uint32_t i = 0; i < ZI_COUNT_OF(counts); i++) {
		cr_assert_eq(gpu_test_create(&test, counts[i], GPU_TEST_CHUNK), 0);
		expect_importable(&test, counts[i], GPU_TEST_CHUNK);
		cr_assert_eq(gpu_test_release(&test, counts[i]), 0);
		gpu_test_close(&test, counts[i]);
	}
	gpu_test_deinit(&test);
}

Test(gpu, sizes_that_the_gpu_does_not_take_are_refused)
{
	struct gpu_test test = { .loop = NULL };

	gpu_real_init(&test, "bytes=64M");
	cr_expect_eq(gpu_test_create(&test, 1, 1u << 20), -EINVAL);
	gpu_test_expect_text(test.request.text, "a chunk is a multiple of 2097152 B");
	/* The first request, of which the daemon could not know; then one of which it could. */
	cr_expect_eq(gpu_test_create(&test, 33, GPU_TEST_CHUNK), -ENOSPC);
	gpu_test_expect_text(test.request.text, "64 MiB of 64 MiB are left");
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 0);
	cr_expect_eq(gpu_test_create(&test, 32, GPU_TEST_CHUNK), 0);
	gpu_test_close(&test, 32);
	gpu_test_deinit(&test);
}

/* ---- what the driver does ---- */

/* A request for 20 chunks fails with @error; afterwards 4 of them succeed in the same process. */
static void expect_create_fails(const char *words, int error, const char *says, uint32_t made)
{
	struct gpu_test test = { .loop = NULL };
	char figures[80];
	uint32_t before;

	gpu_real_init(&test, words);
	gpu_test_start(&test);
	gpu_test_await(&test, GPU_WORKER_UP);
	before = gpu_test_fds();
	cr_expect_eq(gpu_test_create(&test, 20, GPU_TEST_CHUNK), error, "%s: %d, %s", words,
	             test.request.error, test.request.text.chars);
	(void)snprintf(figures, sizeof(figures), "%u of 20 chunks were made and released", made);
	gpu_test_expect_text(test.request.text, figures);
	gpu_test_expect_text(test.request.text, says);
	gpu_test_expect_text(test.request.text, FAKE_GPU_UUID_0);
	cr_expect_eq(gpu_test_fds(), before);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 0);
	cr_expect_eq(gpu_real_fds(gpu_worker_pid(test.worker)), OWN_FDS);
	cr_expect_eq(gpu_test_create(&test, 4, GPU_TEST_CHUNK), 0, "%s: %s", words,
	             test.request.text.chars);
	gpu_test_close(&test, 4);
	cr_expect_eq(test.ended_count, 0);
	gpu_test_deinit(&test);
}

Test(gpu, memory_that_others_hold_fails_the_request_whole)
{
	expect_create_fails("bytes=64M,used=32M", -ENOMEM, "cuMemCreate of 2 MiB", 16);
	expect_create_fails("bytes=64M,used=50M", -ENOMEM, "cuMemCreate of 2 MiB", 7);
}

Test(gpu, a_refusal_of_the_driver_fails_the_request_whole)
{
	expect_create_fails("fail=cuMemCreate:1:2", -ENOMEM, "cuMemCreate of 2 MiB", 0);
	expect_create_fails("fail=cuMemCreate:20:2", -ENOMEM, "cuMemCreate of 2 MiB", 19);
	expect_create_fails("fail=cuMemExportToShareableHandle:9:2", -ENOMEM,
	                    "cuMemExportToShareableHandle of 2 MiB", 8);
}

Test(gpu, a_refused_release_is_told_and_the_chunk_is_forgotten)
{
	struct gpu_test test = { .loop = NULL };

	gpu_real_init(&test, "fail=cuMemRelease:2:1");
	cr_assert_eq(gpu_test_create(&test, 3, GPU_TEST_CHUNK), 0);
	gpu_test_close(&test, 3);
	cr_expect_lt(gpu_test_release(&test, 3), 0);
	gpu_test_expect_text(test.request.text, "cuMemRelease of 2 MiB on " FAKE_GPU_UUID_0);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 0);
	gpu_test_deinit(&test);
}

Test(gpu, a_worker_killed_in_the_driver_is_told_and_another_one_serves)
{
	struct gpu_test test = { .loop = NULL };
	uint32_t before;

	gpu_real_init(&test, "kill=cuMemCreate:12");
	gpu_test_start(&test);
	gpu_test_await(&test, GPU_WORKER_UP);
	before = gpu_test_fds();
	cr_expect_eq(gpu_test_create(&test, 20, GPU_TEST_CHUNK), -EIO);
	gpu_test_expect_text(test.request.text, "zinf-gpu of " FAKE_GPU_UUID_0 " (pid ");
	gpu_test_expect_text(test.request.text, "was killed by signal 9 (Killed)");
	cr_expect_lt(gpu_test_fds(), before); /* Those of the worker have gone as well. */
	cr_expect_eq(gpu_test_create(&test, 4, GPU_TEST_CHUNK), 0);
	cr_expect_eq(test.chunks[0].life, 2);
	cr_expect_eq(test.greeted_count, 2);
	gpu_test_close(&test, 4);
	gpu_test_deinit(&test);
}

static void expect_given_up(const char *words, const struct gpu_worker_options *options,
                            const char *says)
{
	struct gpu_test test = { .options = *options };

	gpu_real_init(&test, words);
	cr_expect_eq(gpu_test_create(&test, 3, GPU_TEST_CHUNK), -ETIMEDOUT, "%s: %d", words,
	             test.request.error);
	gpu_test_expect_text(test.request.text, says);
	gpu_test_await(&test, GPU_WORKER_DOWN);
	gpu_test_deinit(&test);
}

/* The limits pass on any machine: the calls never end. */
Test(gpu, a_driver_that_hangs_is_given_up_at_its_deadline)
{
	const struct gpu_worker_options request = { .request_ns = 50 * ZI_NS_PER_MS };
	const struct gpu_worker_options greeting = { .greeting_ns = 50 * ZI_NS_PER_MS };
	const struct gpu_worker_options ping = { .ping_ns = 1, .pong_ns = patient_ns(ZI_NS_PER_S) };

	expect_given_up("hang=cuMemCreate:2", &request, "had no answer past its deadline");
	expect_given_up("hang=cuInit:1", &greeting, "did not answer for 50 ms");
	expect_given_up("hang=cuMemCreate:2", &ping, "did not answer for ");
}

Test(gpu, a_gpu_that_vanishes_fails_what_is_asked_of_it)
{
	struct gpu_test test = { .loop = NULL };

	gpu_real_init(&test, "vanish=cuMemCreate:3");
	cr_expect_lt(gpu_test_create(&test, 5, GPU_TEST_CHUNK), 0);
	gpu_test_expect_text(test.request.text, "2 of 5 chunks were made");
	cr_expect_lt(gpu_test_create(&test, 5, GPU_TEST_CHUNK), 0);
	cr_expect_eq(gpu_worker_held_bytes(test.worker), 0);
	gpu_test_deinit(&test);
}
