/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what the calls of collectives say before ranks meet: order of calls, options, groups,
 * buffers out of reach, a daemon that lies. Method: the fake daemon, which serves one rank whose
 * peers never come; a job of one rank has none.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "libclient/coll/collective.h"
#include "tests/unit/libclient/coll.h"

Test(coll, a_rank_alone_has_its_own_values_back)
{
	struct fake_job job = begin(&honest, 0, 1);
	float source[3] = { 1, 2, 3 }, target[3] = { 0 };

	cr_assert_eq(zinf_coll_all_reduce(job.zinf, source, target, 3, ZINF_F32, ZINF_SUM, NULL), 0,
	             "%s", zinf_error_text(job.zinf));
	cr_assert_eq(memcmp(source, target, sizeof(source)), 0);
	cr_assert_eq(zinf_coll_barrier(job.zinf, NULL), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_FAIL)), 0);
	fake_job_leave(&job);
}

Test(coll, open_comes_first_and_once)
{
	struct fake_job job = attach(&honest, 0, 1);
	zinf_group group;
	void *data = NULL;

	cr_assert_eq(zinf_coll_barrier(job.zinf, NULL), -ENOTCONN);
	expect_text(job.zinf, "call zinf_coll_open() first");
	cr_assert_eq(zinf_coll_alloc(job.zinf, 1, &data), -ENOTCONN);
	cr_assert_eq(zinf_coll_free(job.zinf, NULL), -ENOTCONN);
	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0 }, 1, NULL, &group), -ENOTCONN);
	cr_assert_eq(zinf_coll_group_free(job.zinf, 1), -ENOTCONN);
	cr_assert_eq(zinf_coll_send(job.zinf, NULL, 0, ZINF_F32, 0, NULL), -ENOTCONN);
	cr_assert_eq(zinf_wait(job.zinf, 1ull << 63, NULL), -EINVAL);
	cr_assert_eq(zinf_coll_open(job.zinf, UINT64_MAX), -EOVERFLOW);
	cr_assert_eq(fake_daemon_coll_refusal(job.fake)->error, -EOVERFLOW);
	cr_assert_str_eq(fake_daemon_coll_refusal(job.fake)->reason,
	                 "an arena of 18446744073709551615 bytes");
	cr_assert_eq(zinf_coll_open(job.zinf, ARENA), 0);
	cr_assert_eq(zinf_coll_open(job.zinf, ARENA), -EALREADY);
	fake_job_leave(&job);
}

Test(coll, a_threshold_that_is_no_number_is_told_to_all_and_changes_nothing_later)
{
	struct fake_job job = attach(&honest, 0, 1);

	cr_assert_eq(setenv("ZINF_COLL_CMA_BYTES", "some", 1), 0);
	cr_assert_eq(zinf_coll_open(job.zinf, ARENA), -EINVAL);
	expect_text(job.zinf, "ZINF_COLL_CMA_BYTES");
	cr_assert_eq(fake_daemon_coll_refusal(job.fake)->error, -EINVAL);
	cr_assert_str_eq(fake_daemon_coll_refusal(job.fake)->reason, zinf_error_text(job.zinf));
	cr_assert_eq(setenv("ZINF_COLL_CMA_BYTES", "4711", 1), 0);
	cr_assert_eq(zinf_coll_open(job.zinf, ARENA), 0);
	cr_assert_eq(job.zinf->coll_cma_bytes, 4711);
	/* Groups that are made later go by what counted when collectives were opened. */
	cr_assert_eq(setenv("ZINF_COLL_CMA_BYTES", "5", 1), 0);
	cr_assert_eq(zinf_coll_open(job.zinf, ARENA), -EALREADY);
	cr_assert_eq(job.zinf->coll_cma_bytes, 4711);
	cr_assert_eq(unsetenv("ZINF_COLL_CMA_BYTES"), 0);
	fake_job_leave(&job);
}

/* Of the two bytes of its last character one would fit. */
Test(coll, a_reason_that_is_too_long_is_cut_behind_a_whole_character)
{
	struct zi_coll_group request = { 0 };
	char words[ZI_REASON_BYTES + 10];

	memset(words, 'x', sizeof(words));
	memcpy(words + ZI_REASON_BYTES - 2, "×", 2);
	words[sizeof(words) - 1] = '\0';
	zi_client_coll_words(request.reason, sizeof(request.reason), words);
	cr_assert_eq(strlen(request.reason), ZI_REASON_BYTES - 2);
}

Test(coll, an_older_daemon_is_told_by_name)
{
	struct fake_job job =
		attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TENSORS }, 0, 1);

	cr_assert_eq(zinf_coll_open(job.zinf, ARENA), -EOPNOTSUPP);
	expect_text(job.zinf, "knows no collectives");
	fake_job_leave(&job);
}

Test(coll, a_daemon_of_another_version_is_told_with_both)
{
	static const struct fake_daemon_options daemons[] = {
		{ .features = ZI_FEATURE_COLLECTIVES },
		{ .features = ZI_FEATURE_COLLECTIVES | ZI_FEATURE_COLL_VERSION,
		  .coll_version = ZI_COLL_VERSION + 1 },
	};
	static const uint32_t versions[] = { 1, ZI_COLL_VERSION + 1 };

	for (size_t i = 0; i < ZI_COUNT_OF(daemons); i++) {
		struct fake_job job = attach(&daemons[i], 0, 1);
		struct zi_text words;

		cr_assert_eq(zinf_coll_open(job.zinf, ARENA), -EPROTONOSUPPORT);
		zi_text_set(&words, "makes collectives by version %u, libzinf %s by version %u",
		            versions[i], zinf_version(), ZI_COLL_VERSION);
		expect_text(job.zinf, words.chars);
		/* The first version takes one of another length for a breach. */
		cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_OPEN)), i);
		/* All else goes on. */
		cr_assert_eq(zinf_coll_barrier(job.zinf, NULL), -ENOTCONN);
		fake_job_leave(&job);
	}
}

Test(coll, memory_that_is_not_what_was_asked_for_ends_the_session)
{
	static const enum fake_lie lies[] = { FAKE_LIE_COLL_ARENA, FAKE_LIE_COLL_VERDICT,
		                              FAKE_LIE_COLL_BOARD, FAKE_LIE_COLL_MEMBERS };

	for (size_t i = 0; i < ZI_COUNT_OF(lies); i++) {
		struct fake_job job = attach(&(struct fake_daemon_options){ .lie = lies[i] }, 1, 2);

		cr_assert_eq(zinf_coll_open(job.zinf, ARENA), -EPROTO, "lie %zu", i);
		cr_assert_eq(zinf_coll_barrier(job.zinf, NULL), -EPROTO);
		fake_job_leave(&job);
	}
}

Test(coll, an_arena_gives_whole_pages_and_says_when_it_is_full)
{
	struct fake_job job = begin(&honest, 1, 2);
	void *first = NULL, *second = NULL;
	char outside;

	cr_assert_eq(zinf_coll_alloc(job.zinf, ARENA - 4096, &first), 0);
	cr_assert_eq((uintptr_t)first % 4096, 0);
	memset(first, 1, ARENA - 4096);
	cr_assert_eq(zinf_coll_alloc(job.zinf, 4097, &second), -ENOSPC);
	expect_text(job.zinf, "8 KiB are asked for, but of this rank's arena of 2 MiB only 4 KiB");
	cr_assert_eq(zinf_coll_alloc(job.zinf, 0, &second), -EINVAL);
	cr_assert_null(second);
	cr_assert_eq(zinf_coll_alloc(job.zinf, 4096, &second), 0);
	cr_assert_eq(zinf_coll_free(job.zinf, &outside), -EINVAL);
	expect_text(job.zinf, "not given out");
	cr_assert_eq(zinf_coll_free(job.zinf, (char *)first + 4096), -EINVAL);
	cr_assert_eq(zinf_coll_free(job.zinf, first), 0);
	cr_assert_eq(zinf_coll_free(job.zinf, first), -EINVAL);
	cr_assert_eq(zinf_coll_free(job.zinf, NULL), 0);
	fake_job_leave(&job);
}

/* ---- options and groups ---- */

Test(coll, options_of_another_time_are_refused)
{
	struct fake_job job = begin(&honest, 0, 1);
	struct {
		struct zinf_coll_options known;
		uint64_t later;
	} options = { .known = ZINF_COLL_OPTIONS_INIT };

	options.known.bytes--;
	cr_assert_eq(zinf_coll_barrier(job.zinf, &options.known), -EINVAL);
	expect_text(job.zinf, "ZINF_COLL_OPTIONS_INIT");
	options.known.bytes = 1u << 20;
	cr_assert_eq(zinf_coll_barrier(job.zinf, &options.known), -EINVAL);
	options.known.bytes = sizeof(options);
	cr_assert_eq(zinf_coll_barrier(job.zinf, &options.known), 0);
	options.later = 1;
	cr_assert_eq(zinf_coll_barrier(job.zinf, &options.known), -EINVAL);
	expect_text(job.zinf, "later libzinf");
	options.later = 0;
	options.known.reserved[3] = 1;
	cr_assert_eq(zinf_coll_barrier(job.zinf, &options.known), -EINVAL);
	options.known.reserved[3] = 0;
	options.known.reserved0 = 1;
	cr_assert_eq(zinf_coll_barrier(job.zinf, &options.known), -EINVAL);
	fake_job_leave(&job);
}

Test(coll, members_of_a_group_are_in_the_order_of_their_ranks)
{
	struct fake_job job = begin(&honest, 2, 4);
	const uint32_t ranks[] = { 3, 2, 0 };
	struct zinf_group_options options = ZINF_GROUP_OPTIONS_INIT;
	zinf_group group = 77;
	int32_t member;
	uint32_t count;

	options.timeout_ms = 5;
	cr_assert_eq(zinf_coll_group(job.zinf, ranks, 3, &options, &group), 0, "%s",
	             zinf_error_text(job.zinf));
	cr_assert_eq(zinf_coll_group_rank(job.zinf, group, &member), 0);
	cr_assert_eq(member, 1);
	cr_assert_eq(zinf_coll_group_size(job.zinf, group, &count), 0);
	cr_assert_eq(count, 3);
	cr_assert_eq(zinf_coll_group_rank(job.zinf, ZINF_GROUP_WORLD, &member), 0);
	cr_assert_eq(member, 2);
	cr_assert_eq(all_reduce(job.zinf, group, 0), -ETIMEDOUT, "the group's own deadline");
	cr_assert_eq(fake_daemon_coll_fail(job.fake)->timeout_ms, 5);
	cr_assert_eq(fake_daemon_coll_fail(job.fake)->group, group);
	cr_assert_eq(zinf_coll_group_free(job.zinf, group), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_GROUP_FREE)), 1);
	cr_assert_eq(all_reduce(job.zinf, group, 0), -EINVAL);
	expect_text(job.zinf, "has been freed");
	cr_assert_eq(zinf_coll_group_free(job.zinf, group), -EINVAL);
	fake_job_leave(&job);
}

Test(coll, who_is_no_member_is_told_so)
{
	struct fake_job job = begin(&honest, 2, 3);
	zinf_group group = 77;
	int32_t member = 5;
	uint32_t count;

	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0, 1 }, 2, NULL, &group), 0);
	cr_assert_eq(group, ZINF_GROUP_NONE);
	cr_assert_eq(all_reduce(job.zinf, group, 0), -EPERM);
	expect_text(job.zinf, "rank 2 is not a member");
	cr_assert_eq(zinf_coll_group_rank(job.zinf, group, &member), 0);
	cr_assert_eq(member, -1);
	cr_assert_eq(zinf_coll_group_size(job.zinf, group, &count), -EPERM);
	cr_assert_eq(zinf_coll_group_free(job.zinf, group), 0);
	fake_job_leave(&job);
}

Test(coll, groups_that_cannot_be_are_refused_here)
{
	struct fake_job job = begin(&honest, 0, 3);
	struct {
		struct zinf_group_options known;
		uint64_t later;
	} later = { .known = ZINF_GROUP_OPTIONS_INIT };
	zinf_group group = 77;

	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 1, 0, 1 }, 3, NULL, &group), -EINVAL);
	expect_text(job.zinf, "ranks[2]: rank 1 is named twice");
	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0, 3 }, 2, NULL, &group), -EINVAL);
	expect_text(job.zinf, "ranks[1] is 3: the job has ranks 0 to 2");
	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0 }, 0, NULL, &group), -EINVAL);
	cr_assert_eq(zinf_coll_group(job.zinf, NULL, 1, NULL, &group), -EINVAL);
	expect_text(job.zinf, "a group of 1 ranks: ranks is NULL");
	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0, 1, 2, 0 }, 4, NULL, &group),
	             -EINVAL);
	expect_text(job.zinf, "1 to 3 are there");
	later.known.bytes = 4;
	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0 }, 1, &later.known, &group),
	             -EINVAL);
	expect_text(job.zinf, "options of 4 bytes: begin with ZINF_GROUP_OPTIONS_INIT");
	later.known.bytes = 1u << 20;
	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0 }, 1, &later.known, &group),
	             -EINVAL);
	later.known.bytes = sizeof(later);
	later.known.reserved[0] = 1;
	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0 }, 1, &later.known, &group),
	             -EINVAL);
	later.known.reserved[0] = 0;
	later.later = 1;
	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0 }, 1, &later.known, &group),
	             -EINVAL);
	expect_text(job.zinf, "later libzinf");
	/* The other ranks wait for each of them, and are told. */
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_GROUP)), 9);
	cr_assert_eq(fake_daemon_coll_refusal(job.fake)->error, -EINVAL);
	cr_assert(strstr(fake_daemon_coll_refusal(job.fake)->reason, "later libzinf"));
	cr_assert_eq(zinf_coll_group_free(job.zinf, ZINF_GROUP_WORLD), -EINVAL);
	expect_text(job.zinf, "zinf_detach()");
	cr_assert_eq(all_reduce(job.zinf, 64, 0), -EINVAL);
	expect_text(job.zinf, "group 64");
	cr_assert_eq(group, 77);
	fake_job_leave(&job);
}

Test(coll, a_group_with_a_name_asks_its_members_alone)
{
	struct fake_job job = begin(&honest, 1, 3);
	zinf_group group = 77;
	int32_t member;

	cr_assert_eq(zinf_coll_group_named(job.zinf, "tp", (uint32_t[]){ 2, 1 }, 2, NULL, &group),
	             0, "%s", zinf_error_text(job.zinf));
	cr_assert_str_eq(fake_daemon_coll_name(job.fake), "tp");
	cr_assert_eq(zinf_coll_group_rank(job.zinf, group, &member), 0);
	cr_assert_eq(member, 0);
	group = 77;
	cr_assert_eq(zinf_coll_group_named(job.zinf, "", (uint32_t[]){ 1 }, 1, NULL, &group),
	             -EINVAL);
	expect_text(job.zinf, "a group with an empty name");
	cr_assert_eq(zinf_coll_group_named(job.zinf, "a name of more than thirty-one bytes",
	                                   (uint32_t[]){ 1 }, 1, NULL, &group),
	             -EINVAL);
	expect_text(job.zinf, "is longer than 31 bytes");
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_GROUP)), 1,
	             "nobody waits for a call without a name");
	cr_assert_eq(zinf_coll_group_named(job.zinf, "tp", (uint32_t[]){ 0, 2 }, 2, NULL, &group),
	             -EINVAL);
	expect_text(job.zinf, "group 'tp' does not name this rank, 1");
	cr_assert_eq(zinf_coll_group_named(job.zinf, "tp", (uint32_t[]){ 1, 9 }, 2, NULL, &group),
	             -EINVAL);
	expect_text(job.zinf, "ranks[1] is 9");
	cr_assert_eq(fake_daemon_coll_refusal(job.fake)->error, -EINVAL);
	cr_assert_str_eq(fake_daemon_coll_name(job.fake), "tp", "the members are told");
	cr_assert_eq(group, 77);
	fake_job_leave(&job);
}

Test(coll, a_group_that_was_not_asked_for_ends_the_session)
{
	static const enum fake_lie lies[] = { FAKE_LIE_GROUP_NUMBER, FAKE_LIE_GROUP_SELF };

	for (size_t i = 0; i < ZI_COUNT_OF(lies); i++) {
		struct fake_job job = begin(&(struct fake_daemon_options){ .lie = lies[i] }, 1, 2);
		zinf_group group;

		cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0, 1 }, 2, NULL, &group),
		             -EPROTO);
		fake_job_leave(&job);
	}
}

/* ---- buffers ---- */

Test(coll, a_target_that_cannot_be_written_is_refused)
{
	struct fake_job job = begin(&honest, 0, 1);
	char *pages =
		mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char source[4096] = { 0 };
	int r;

	cr_assert_neq(pages, MAP_FAILED);
	cr_assert_eq(mprotect(pages + 4096, 4096, PROT_READ), 0);
	cr_assert_eq(zinf_coll_all_gather(job.zinf, source, pages, 4096, ZINF_U8, NULL), 0, "%s",
	             zinf_error_text(job.zinf));
	r = zinf_coll_all_gather(job.zinf, source, pages + 1, 4096, ZINF_U8, NULL);
	cr_assert_eq(r, -EACCES, "its last byte");
	expect_text(job.zinf, "all_gather: the target is not writable");
	r = zinf_coll_all_gather(job.zinf, source, pages + 8191, 4096, ZINF_U8, NULL);
	cr_assert_eq(r, -EACCES, "its first byte");
	cr_assert_eq(zinf_coll_all_gather(job.zinf, pages + 4096, pages, 4096, ZINF_U8, NULL), 0,
	             "a source is only read");
	cr_assert_eq(zinf_coll_recv(job.zinf, pages + 4096, 1, ZINF_U8, 0, NULL), -EACCES);
	cr_assert_eq(munmap(pages, 3 * 4096), 0);
	fake_job_leave(&job);
}

/* Memory of which the kernel makes no pages beforehand, as of a device's: MADV_POPULATE_WRITE says
 * -EINVAL there, as of memory that is only read. */
Test(coll, a_target_that_cannot_be_asked_for_beforehand_is_no_mistake)
{
	struct fake_job job;
	char source[4096] = { 7 }, *secret, *read_only;
	int fd = (int)syscall(SYS_memfd_secret, 0);

	if (fd < 0) {
		cr_skip_test("no memfd_secret(2) here: %s", strerror(errno));
		return;
	}
	cr_assert_eq(ftruncate(fd, 8192), 0);
	secret = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	read_only = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	if (secret == MAP_FAILED || read_only == MAP_FAILED) {
		cr_skip_test("no room for secret memory (RLIMIT_MEMLOCK): %s", strerror(errno));
		return;
	}
	job = begin(&honest, 0, 1);
	cr_assert_eq(madvise(secret, 4096, MADV_POPULATE_WRITE), -1, "else it shows nothing");
	for (int i = 0; i < 2; i++) { /* the second time without a look */
		cr_assert_eq(
			zinf_coll_all_gather(job.zinf, source, secret + 100, 4096, ZINF_U8, NULL),
			0, "%s", zinf_error_text(job.zinf));
		cr_assert_eq(secret[100], 7);
	}
	cr_assert_eq(zinf_coll_all_gather(job.zinf, source, read_only, 4096, ZINF_U8, NULL),
	             -EACCES);
	expect_text(job.zinf, "not writable");
	cr_assert_eq(munmap(secret, 8192), 0);
	cr_assert_eq(munmap(read_only, 8192), 0);
	(void)close(fd);
	fake_job_leave(&job);
}

Test(coll, a_parameter_is_refused_with_a_hint)
{
	struct fake_job job = attach(&honest, 0, 1);
	float *param;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_coll_open(job.zinf, 0), 0, "%s", zinf_error_text(job.zinf));
	param = (float *)zinf_param_data(job.zinf, job.param[0]);
	cr_assert_eq(zinf_coll_broadcast(job.zinf, param, 15, ZINF_F32, 0, NULL), 0,
	             "the root only reads");
	cr_assert_eq(zinf_coll_all_reduce(job.zinf, param, param, 15, ZINF_F32, ZINF_AVG, NULL),
	             -EACCES);
	expect_text(job.zinf, "zinf_param_write_begin()");
	cr_assert_eq(zinf_param_write_begin(job.zinf, job.unit[0]), 0);
	cr_assert_eq(zinf_coll_all_reduce(job.zinf, param, param, 15, ZINF_F32, ZINF_AVG, NULL), 0,
	             "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_param_write_end(job.zinf, job.unit[0], 0), 0);
	cr_assert_eq(zinf_coll_all_reduce(job.zinf, param, param, 15, ZINF_F32, ZINF_AVG, NULL),
	             -EACCES, "read-only again");
	fake_job_leave(&job);
}

/* Each in a job of its own: who refuses a call waits for the others before it makes the next. */
Test(coll, memory_of_another_rank_is_refused)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;

	/* zinf_detach() waits so long for rank 0, which never comes, to hear of the refusal. */
	options.timeout_ms = 50;
	for (int way = 0; way < 3; way++) {
		struct fake_job job = begin(&honest, 1, 2);
		float *data, *end;
		void *own = NULL;
		int r;

		cr_assert_eq(zinf_coll_alloc(job.zinf, ARENA, &own), 0);
		data = own;
		end = data + ARENA / sizeof(*data);
		if (way == 0) { /* the staging part */
			r = zinf_coll_all_reduce(job.zinf, data - 4, data, 4, ZINF_F32, ZINF_SUM,
			                         &options);
			expect_text(job.zinf, "all_reduce: the source");
		} else if (way == 1) { /* beyond the end */
			r = zinf_coll_all_reduce(job.zinf, data, end - 3, 4, ZINF_F32, ZINF_SUM,
			                         &options);
			expect_text(job.zinf, "all_reduce: the target");
		} else { /* rank 0's */
			r = zinf_coll_send(job.zinf, data - (6u << 20), 4, ZINF_F32, 0, &options);
			expect_text(job.zinf, "send: the source");
		}
		cr_assert_eq(r, -EINVAL);
		expect_text(job.zinf, "outside this rank's allocations");
		fake_job_leave(&job);
	}
}
