/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the tensor calls of libzinf say what they should, copy what they should and only then, keep
 * each ticket's own error, deadline and cancel, and believe no place outside their memory. Method:
 * the fake daemon, where each tensor lies at its id times 4096.
 */
#include "tests/fake/fake_job.h"

#define BUDGET (64u << 10)

static struct fake_job begin(const struct fake_daemon_options *daemon)
{
	struct fake_daemon_options able = *daemon;
	struct fake_job job;

	able.features = UINT64_MAX;
	job = fake_job_attach(&able);
	fake_job_materialize(&job);
	cr_assert_eq(zinf_tensor_open(job.zinf, BUDGET), 0, "%s", zinf_error_text(job.zinf));
	return job;
}

static const struct fake_daemon_options honest = { 0 };

Test(tensor, bytes_go_and_come_back)
{
	struct fake_job job = begin(&honest);
	char sent[5000], got[5000] = "";
	zinf_ticket ticket = 0;
	const void *place;
	bool is_done = false;
	size_t bytes;

	memset(sent, 7, sizeof(sent));
	cr_assert_eq(zinf_tensor_put(job.zinf, 3, sent, sizeof(sent), &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), -EINVAL, "waited for once");
	cr_assert_eq(zinf_tensor_prefetch(job.zinf, 3, &ticket), 0);
	cr_assert_eq(zinf_wait_for(job.zinf, ticket, 20000, NULL), 0);
	cr_assert_eq(zinf_tensor_get(job.zinf, 3, got, sizeof(got), &ticket), 0);
	while (!is_done)
		cr_assert_eq(zinf_test(job.zinf, ticket, &is_done), 0);
	cr_assert_eq(got[0], 0, "nothing before it is waited for");
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_assert_eq(memcmp(sent, got, sizeof(sent)), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_TENSOR_RELEASE)), 1);
	cr_assert_eq(zinf_tensor_map(job.zinf, 3, &place, &bytes), 0);
	cr_assert_eq(bytes, sizeof(sent));
	cr_assert_eq(memcmp(sent, place, bytes), 0);
	cr_assert_eq(zinf_tensor_unmap(job.zinf, 3), 0);
	cr_assert_eq(zinf_tensor_free(job.zinf, 3), 0);
	fake_job_leave(&job);
}

Test(tensor, what_is_written_in_place_is_put_without_a_copy)
{
	struct fake_job job = begin(&honest);
	zinf_ticket ticket;
	const void *mapped;
	void *place = NULL;
	size_t bytes;

	cr_assert_eq(zinf_tensor_alloc(job.zinf, 2, 100, &place), 0);
	memset(place, 9, 100);
	cr_assert_eq(zinf_tensor_put(job.zinf, 2, NULL, 100, &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_TENSOR_ALLOC)), 1);
	cr_assert_eq(zinf_tensor_map(job.zinf, 2, &mapped, &bytes), 0);
	cr_assert_eq(mapped, place);
	fake_job_leave(&job);
}

Test(tensor, wrong_calls_are_refused_here)
{
	struct fake_daemon_options able = { .features = UINT64_MAX };
	struct fake_job job = fake_job_attach(&able);
	zinf_ticket ticket;
	char byte = 1;

	cr_assert_eq(zinf_tensor_open(job.zinf, BUDGET), -EINVAL);
	expect_text(job.zinf, "call zinf_materialize() first");
	fake_job_materialize(&job);
	cr_assert_eq(zinf_tensor_put(job.zinf, 1, &byte, 1, &ticket), -EINVAL);
	expect_text(job.zinf, "call zinf_tensor_open() first");
	cr_assert_eq(zinf_tensor_free(job.zinf, 1), -EINVAL);
	cr_assert_eq(zinf_tensor_open(job.zinf, BUDGET), 0);
	cr_assert_eq(zinf_tensor_open(job.zinf, BUDGET), -EALREADY);
	cr_assert_eq(zinf_tensor_get(job.zinf, 1, NULL, 1, &ticket), -EINVAL);
	expect_text(job.zinf, "zinf_tensor_map()");
	cr_assert_eq(zinf_cancel(job.zinf, 12345), -EINVAL);
	cr_assert_eq(zinf_wait_for(job.zinf, 12345, 0, NULL), -EINVAL);
	expect_text(job.zinf, "0 ms");
	fake_job_leave(&job);
}

Test(tensor, an_older_daemon_is_told_by_name)
{
	struct fake_job job = fake_job_attach(&honest);

	fake_job_materialize(&job);
	cr_assert_eq(zinf_tensor_open(job.zinf, BUDGET), -EOPNOTSUPP);
	expect_text(job.zinf, "knows no tensors");
	fake_job_leave(&job);
}

Test(tensor, a_buffer_of_another_length_stays_untouched_and_the_tensor_is_released)
{
	struct fake_job job = begin(&honest);
	char sent[100] = "sent", got[99] = "mine";
	zinf_ticket ticket;

	cr_assert_eq(zinf_tensor_put(job.zinf, 1, sent, sizeof(sent), &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_assert_eq(zinf_tensor_get(job.zinf, 1, got, sizeof(got), &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), -EINVAL);
	expect_text(job.zinf, "has 100 bytes, the buffer 99");
	cr_assert_str_eq(got, "mine");
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_TENSOR_RELEASE)), 1);
	fake_job_leave(&job);
}

Test(tensor, a_ticket_has_its_own_error)
{
	struct fake_job job =
		begin(&(struct fake_daemon_options){ .fail_on = FAKE_ON_OP(ZI_OP_TENSOR_PUT),
	                                             .fail_error = -EIO,
	                                             .fail_text = "offset 5" });
	zinf_ticket put, prefetch;
	char byte = 1;

	cr_assert_eq(zinf_tensor_put(job.zinf, 1, &byte, 1, &put), 0);
	cr_assert_eq(zinf_tensor_prefetch(job.zinf, 1, &prefetch), 0);
	cr_assert_eq(zinf_wait(job.zinf, prefetch, NULL), 0);
	cr_assert_eq(zinf_wait(job.zinf, put, NULL), -EIO);
	expect_text(job.zinf, "offset 5");
	fake_job_leave(&job);
}

Test(tensor, a_deadline_leaves_the_ticket_and_cancel_reaches_the_daemon)
{
	struct fake_job job = begin(
		&(struct fake_daemon_options){ .silent_on = FAKE_ON_OP(ZI_OP_TENSOR_PREFETCH) });
	zinf_ticket ticket, done;
	bool is_done = true;
	char byte = 1;

	cr_assert_eq(zinf_tensor_prefetch(job.zinf, 1, &ticket), 0);
	cr_assert_eq(zinf_wait_for(job.zinf, ticket, 10, NULL), -ETIMEDOUT);
	expect_text(job.zinf, "within 10 ms");
	cr_assert_eq(zinf_test(job.zinf, ticket, &is_done), 0);
	cr_assert_not(is_done);
	cr_assert_eq(zinf_cancel(job.zinf, ticket), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_CANCEL)), 1);
	cr_assert_eq(zinf_tensor_put(job.zinf, 1, &byte, 1, &done), 0);
	cr_assert_eq(zinf_ping(job.zinf), 0); /* What came before has completed. */
	cr_assert_eq(zinf_cancel(job.zinf, done), -EALREADY);
	cr_assert_eq(zinf_wait(job.zinf, done, NULL), 0);
	fake_job_leave(&job);
}

Test(tensor, a_step_is_not_cancelled)
{
	struct fake_job job = begin(&honest);
	zinf_ticket ticket;

	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_cancel(job.zinf, ticket), -EBUSY);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}

Test(tensor, no_place_outside_the_memory_is_believed)
{
	for (int way = 0; way < 3; way++) {
		struct fake_job job =
			begin(&(struct fake_daemon_options){ .lie = FAKE_LIE_TENSOR_OUTSIDE });
		zinf_ticket ticket;
		const void *mapped;
		char bytes[5000];
		void *place;
		size_t count;

		/* The fake takes the length from a put; this one needs no place. */
		cr_assert_eq(zinf_tensor_put(job.zinf, 1, NULL, sizeof(bytes), &ticket), 0);
		cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
		if (way == 0) {
			cr_assert_eq(zinf_tensor_alloc(job.zinf, 1, 5000, &place), -EPROTO);
		} else if (way == 1) {
			cr_assert_eq(zinf_tensor_map(job.zinf, 1, &mapped, &count), -EPROTO);
		} else {
			cr_assert_eq(zinf_tensor_get(job.zinf, 1, bytes, 5000, &ticket), 0);
			cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), -EPROTO);
		}
		expect_text(job.zinf, "outside its memory");
		fake_job_leave(&job);
	}
}

Test(tensor, memory_shorter_than_asked_for_is_not_believed)
{
	struct fake_daemon_options options = { .features = UINT64_MAX,
		                               .lie = FAKE_LIE_TENSOR_SHORT };
	struct fake_job job = fake_job_attach(&options);

	fake_job_materialize(&job);
	cr_assert_eq(zinf_tensor_open(job.zinf, BUDGET), -EPROTO);
	fake_job_leave(&job);
}
