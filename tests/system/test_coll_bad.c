/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: collectives that ranks get wrong are answered by name and figure, on every rank, and the
 * group goes on: other operations, sizes, types; arguments that cannot be, of all ranks or of one
 * alone. Method: ranks as processes of a real zinfd, each wrong in its way, and a barrier after
 * each mistake.
 */
#include "tests/system/coll.h"

TestSuite(coll_bad, .timeout = 120);

static int still_good(struct coll_rank *rank)
{
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	return 0;
}

/* ---- ranks that differ ---- */

static int different_operations(struct coll_rank *rank)
{
	float data[64] = { 0 };
	int r = rank->rank == 1
	                ? zinf_coll_broadcast(rank->zinf, data, 8, ZINF_F32, 0, NULL)
	                : zinf_coll_all_reduce(rank->zinf, data, data, 8, ZINF_F32, ZINF_SUM, NULL);

	coll_check(rank, r == -EINVAL);
	coll_text(rank, "broadcast of 8");
	coll_text(rank, "all_reduce of 8");
	return still_good(rank);
}

static int different_sizes(struct coll_rank *rank)
{
	const uint64_t count = rank->rank == 2 ? 300000 : 300001;
	int64_t *data = calloc(count, sizeof(*data));
	int r = zinf_coll_all_reduce(rank->zinf, data, data, count, ZINF_I64, ZINF_SUM, NULL);

	free(data);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "all_reduce of 300000 ");
	coll_text(rank, "300001");
	return still_good(rank);
}

static int different_dtypes(struct coll_rank *rank)
{
	uint32_t data[64] = { 0 };
	enum zinf_dtype dtype = rank->rank ? ZINF_F32 : ZINF_I32;
	int r = zinf_coll_all_gather(rank->zinf, data, data + 8, 4, dtype, NULL);

	coll_check(rank, r == -EINVAL);
	coll_text(rank, "i32");
	coll_text(rank, "f32");
	return still_good(rank);
}

static int different_ops_and_roots(struct coll_rank *rank)
{
	int32_t data[2] = { 1, 2 };
	enum zinf_reduce_op op = rank->rank ? ZINF_MAX : ZINF_BXOR;
	int r = zinf_coll_all_reduce(rank->zinf, data, data, 2, ZINF_I32, op, NULL);

	coll_check(rank, r == -EINVAL);
	coll_text(rank, "max");
	coll_text(rank, "bxor");
	/* Member 0, a root, is ahead: it is told by its next call, as all are. So may member 1 be,
	 * which agrees with its root and waits for nobody else. */
	r = zinf_coll_broadcast(rank->zinf, data, 2, ZINF_I32, rank->rank == 2, NULL);
	coll_check(rank, r == (rank->rank == 2 ? -EINVAL : 0) || (rank->rank == 1 && r == -EINVAL));
	if (r)
		coll_text(rank, "member 2");
	r = zinf_coll_barrier(rank->zinf, NULL);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "member 2 calls broadcast of 2 × i32, root 1, member 0 broadcast");
	return still_good(rank);
}

static int different_counts_of_all_to_allv(struct coll_rank *rank)
{
	uint64_t source_counts[3] = { 2, 2, 2 }, target_counts[3] = { 2, 2, 2 };
	int32_t source[6] = { 0 }, target[9] = { 0 };
	int r;

	if (rank->rank == 1)
		target_counts[0] = 3; /* than rank 0 sends */
	r = zinf_coll_all_to_allv(rank->zinf, source, source_counts, target, target_counts,
	                          ZINF_I32, NULL);
	coll_check(rank, r == -EINVAL);
	return still_good(rank);
}

static int different_messages(struct coll_rank *rank)
{
	int32_t data[8] = { 0 };
	int r = 0;

	if (rank->rank == 0)
		r = zinf_coll_send(rank->zinf, data, 8, ZINF_I32, 1, NULL);
	if (rank->rank == 1)
		r = zinf_coll_recv(rank->zinf, data, 7, ZINF_I32, 0, NULL);
	coll_check(rank, r == (rank->rank < 2 ? -EINVAL : 0));
	if (rank->rank < 2) {
		coll_text(rank, "8");
		coll_text(rank, "7");
	}
	return still_good(rank);
}

static int different_in_a_group(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	int32_t data[2] = { 0 };
	int r;

	coll_must(rank, 0,
	          zinf_coll_group(rank->zinf, (uint32_t[]){ 2, 1 }, 2, NULL, &options.group));
	if (!rank->rank)
		return still_good(rank);
	r = rank->rank == 1 ? zinf_coll_broadcast(rank->zinf, data, 2, ZINF_I32, 1, &options)
	                    : zinf_coll_barrier(rank->zinf, &options);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "member 1 (rank 2)");
	coll_must(rank, 0, zinf_coll_group_free(rank->zinf, options.group));
	return still_good(rank);
}

static int differ(struct coll_rank *rank)
{
	return different_operations(rank) || different_in_a_group(rank) || different_sizes(rank) ||
	       different_dtypes(rank) || different_ops_and_roots(rank) ||
	       different_counts_of_all_to_allv(rank) || different_messages(rank);
}

Test(coll_bad, ranks_that_call_different_things_are_named_and_the_group_stands)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 3, differ);
	coll_close_scene(&scene);
}

/* ---- arguments that cannot be, of every rank alike ---- */

static int wrong_kinds(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	struct zinf *zinf = rank->zinf;
	float data[8] = { 0 };
	void *any = data;
	zinf_ticket ticket;
	int r = zinf_coll_all_reduce(zinf, any, any, 8, ZINF_I32, ZINF_AVG, NULL);

	coll_check(rank, r == -EINVAL);
	coll_text(rank, "no avg of i32");
	coll_text(rank, "ask for the sum, and divide");
	options.ret_ticket = &ticket; /* begun, and told when it is waited for */
	coll_must(rank, 0, zinf_coll_all_reduce(zinf, any, any, 8, ZINF_I32, ZINF_AVG, &options));
	coll_must(rank, -EINVAL, zinf_wait(zinf, ticket, NULL));
	coll_text(rank, "no avg of i32");
	r = zinf_coll_all_reduce(zinf, any, any, 8, ZINF_F32, ZINF_BAND, NULL);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "band");
	r = zinf_coll_all_reduce(zinf, any, any, 1, (enum zinf_dtype)9, ZINF_SUM, NULL);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "9");
	r = zinf_coll_all_gather(zinf, data, data + 4, 1, (enum zinf_dtype)0, NULL);
	coll_check(rank, r == -EINVAL);
	r = zinf_coll_all_reduce(zinf, any, any, 1, ZINF_F32, (enum zinf_reduce_op)9, NULL);
	coll_check(rank, r == -EINVAL);
	r = zinf_coll_broadcast(zinf, data, 1, ZINF_F32, 2, NULL);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "root");
	return still_good(rank);
}

static int wrong_sizes(struct coll_rank *rank)
{
	struct zinf *zinf = rank->zinf;
	int64_t data[16] = { 0 };
	int r = zinf_coll_all_reduce(zinf, data, data, UINT64_MAX / 4, ZINF_I64, ZINF_SUM, NULL);

	coll_check(rank, r == -EOVERFLOW);
	r = zinf_coll_all_gather(zinf, data, data + 8, UINT64_MAX / 9, ZINF_I64, NULL);
	coll_check(rank, r == -EOVERFLOW); /* one fits, two do not */
	return still_good(rank);
}

static int wrong_buffers(struct coll_rank *rank)
{
	struct zinf *zinf = rank->zinf;
	int64_t data[16] = { 0 };
	char *bytes = (char *)data;
	void *other = NULL;
	int r = zinf_coll_all_reduce(zinf, NULL, data, 2, ZINF_I64, ZINF_SUM, NULL);

	coll_check(rank, r == -EINVAL);
	r = zinf_coll_all_reduce(zinf, data, NULL, 2, ZINF_I64, ZINF_SUM, NULL);
	coll_check(rank, r == -EINVAL);
	r = zinf_coll_all_reduce(zinf, bytes + 4, data + 8, 2, ZINF_I64, ZINF_SUM, NULL);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "align");
	r = zinf_coll_all_reduce(zinf, data, data + 1, 2, ZINF_I64, ZINF_SUM, NULL);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "overlap");
	r = zinf_coll_all_gather(zinf, data + 1, data, 2, ZINF_I64, NULL);
	coll_check(rank, r == -EINVAL);
	r = zinf_coll_all_to_all(zinf, data, data + 2, 2, ZINF_I64, NULL);
	coll_check(rank, r == -EINVAL);
	r = zinf_coll_all_gather(zinf, data,
	                         mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1,
	                         ZINF_I64, NULL);
	coll_check(rank, r == -EACCES);
	coll_text(rank, "not writable");
	coll_must(rank, 0, zinf_coll_alloc(zinf, 4096, &other));
	/* Where the other rank's allocation of the same place lies, or beyond everything. */
	other = (char *)other + (rank->rank ? -1 : 1) * (ptrdiff_t)(COLL_ARENA + (16 << 20));
	r = zinf_coll_all_reduce(zinf, other, other, 4, ZINF_I64, ZINF_SUM, NULL);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "outside this rank's allocations");
	return still_good(rank);
}

static int wrong_messages(struct coll_rank *rank)
{
	struct zinf_coll_p2p op = { .peer = 0, .dtype = ZINF_I64, .reserved = 1 };
	struct zinf *zinf = rank->zinf;
	int64_t data[16] = { 0 };
	int r = zinf_coll_send(zinf, data, 1, ZINF_I64, 2, NULL);

	coll_check(rank, r == -EINVAL);
	r = zinf_coll_recv(zinf, data, 1, ZINF_I64, rank->rank, NULL);
	coll_check(rank, r == -EINVAL); /* from oneself, who sends nothing */
	coll_must(rank, -EINVAL, zinf_coll_batch(zinf, NULL, 1, NULL));
	coll_text(rank, "zinf_coll_batch: ops is NULL");
	coll_must(rank, -EINVAL, zinf_coll_batch(zinf, &op, 0, NULL));
	coll_text(rank, "a batch of 0 messages: 1 to 1024 are allowed");
	coll_must(rank, -EINVAL, zinf_coll_batch(zinf, &op, 1, NULL));
	coll_text(rank, "reserved");
	return still_good(rank);
}

static int all_wrong(struct coll_rank *rank)
{
	return wrong_kinds(rank) || wrong_sizes(rank) || wrong_buffers(rank) ||
	       wrong_messages(rank);
}

Test(coll_bad, arguments_that_cannot_be_are_told_and_the_group_stands)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 2, all_wrong);
	coll_close_scene(&scene);
}

/* ---- of one rank alone: the others do not wait for it ---- */

/* Rank 1's side of a message is wrong, with a deadline of minutes on the other's. */
static int one_message_is_wrong(struct coll_rank *rank)
{
	int64_t data[16] = { 0 };
	char *bad = (char *)data + 4;
	const char *page;
	int r;

	if (rank->rank > 1)
		return still_good(rank);
	r = rank->rank ? zinf_coll_send(rank->zinf, bad, 1, ZINF_I64, 0, NULL)
	               : zinf_coll_recv(rank->zinf, data, 1, ZINF_I64, 1, NULL);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "align");
	if (!rank->rank)
		coll_text(rank, "member 1 refuses it");
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r = rank->rank ? zinf_coll_recv(rank->zinf, (void *)page, 1, ZINF_I64, 0, NULL)
	               : zinf_coll_send(rank->zinf, data, 1, ZINF_I64, 1, NULL);
	coll_check(rank, r == -EACCES);
	coll_text(rank, "not writable");
	data[0] = rank->rank;
	r = rank->rank ? zinf_coll_send(rank->zinf, data, 1, ZINF_I64, 0, NULL)
	               : zinf_coll_recv(rank->zinf, data, 1, ZINF_I64, 1, NULL);
	coll_check(rank, r == 0);
	coll_check(rank, data[0] == 1);
	return still_good(rank);
}

/* Rank 0 comes only when the others, who call different things, have been told. */
static int one_is_awaited(struct coll_rank *rank)
{
	int32_t data = 1;
	int r;

	if (!rank->rank)
		coll_must(rank, 0, coll_await(rank));
	r = rank->rank == 2
	            ? zinf_coll_broadcast(rank->zinf, &data, 1, ZINF_I32, 1, NULL)
	            : zinf_coll_all_reduce(rank->zinf, &data, &data, 1, ZINF_I32, ZINF_SUM, NULL);
	coll_check(rank, r == -EINVAL);
	coll_text(rank, "member 2 calls broadcast");
	coll_text(rank, rank->rank ? "2 of 3 members have come" : "member 0 all_reduce");
	if (rank->rank)
		coll_must(rank, 0, coll_tell(rank));
	return still_good(rank);
}

Test(coll_bad, who_contradict_each_other_are_told_before_the_last_has_come)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run_and_let_go(&scene, 3, one_is_awaited, 2);
	coll_close_scene(&scene);
}

Test(coll_bad, a_message_that_one_refuses_is_told_to_the_other_at_once)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 3, one_message_is_wrong);
	coll_close_scene(&scene);
}

static int one_is_wrong(struct coll_rank *rank)
{
	int64_t data[16] = { 0 };
	char *source = (char *)data + (rank->rank == 1 ? 4 : 0);
	const char *page;
	int r = zinf_coll_all_reduce(rank->zinf, source, data + 8, 2, ZINF_I64, ZINF_SUM, NULL);

	coll_check(rank, r == -EINVAL);
	coll_text(rank, "align");
	if (rank->rank != 1)
		coll_text(rank, "member 1");
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r = zinf_coll_all_reduce(rank->zinf, data, rank->rank == 1 ? (void *)page : data + 8, 2,
	                         ZINF_I64, ZINF_SUM, NULL);
	coll_check(rank, r == -EACCES);
	coll_text(rank, "not writable");
	if (rank->rank != 1)
		coll_text(rank, "member 1");
	return still_good(rank);
}

Test(coll_bad, the_mistake_of_one_is_told_to_all_at_once)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 3, one_is_wrong);
	coll_close_scene(&scene);
}

/* ---- before ranks can meet ---- */

static int open_differently(struct coll_rank *rank)
{
	coll_must(rank, -EINVAL, zinf_coll_open(rank->zinf, (1 + rank->rank) * COLL_ARENA - 1));
	/* Not what is made of it. */
	coll_text(rank, " 16777215");
	coll_text(rank, " 33554431");
	coll_must(rank, -ENOTCONN, zinf_coll_barrier(rank->zinf, NULL));
	return 0;
}

Test(coll_bad, arenas_of_different_sizes_are_refused)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	scene.is_plain = true;
	coll_run(&scene, 2, open_differently);
	coll_close_scene(&scene);
}

/* Rank 1 alone is told what is wrong by libzinf: the others, who would wait for it, are so too. */
static int refuse_own_wishes(struct coll_rank *rank)
{
	static const uint32_t all[] = { 0, 1, 2 }, twice[] = { 0, 1, 1 };
	bool is_odd = rank->rank == 1;
	zinf_group group;

	if (is_odd)
		coll_check(rank, !setenv("ZINF_COLL_CMA_BYTES", "some", 1));
	coll_must(rank, -EINVAL, zinf_coll_open(rank->zinf, COLL_ARENA));
	coll_text(rank, "ZINF_COLL_CMA_BYTES");
	coll_check(rank, is_odd || strstr(zinf_error_text(rank->zinf), "rank 1 (pid"));
	coll_check(rank, !unsetenv("ZINF_COLL_CMA_BYTES"));
	coll_must(rank, 0, zinf_coll_open(rank->zinf, COLL_ARENA));
	coll_must(rank, -EINVAL,
	          zinf_coll_group(rank->zinf, is_odd ? twice : all, 3, NULL, &group));
	coll_text(rank, "ranks[2]: rank 1 is named twice");
	coll_check(rank, is_odd || strstr(zinf_error_text(rank->zinf), "rank 1 (pid"));
	coll_must(rank, 0, zinf_coll_group(rank->zinf, all, 3, NULL, &group));
	return still_good(rank);
}

Test(coll_bad, what_libzinf_refuses_of_one_is_told_to_all_at_once)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	scene.is_plain = true;
	coll_run(&scene, 3, refuse_own_wishes);
	coll_close_scene(&scene);
}

static int open_alone(struct coll_rank *rank)
{
	if (rank->rank)
		return coll_await(rank);
	coll_must(rank, -ETIMEDOUT, zinf_coll_open(rank->zinf, COLL_ARENA));
	coll_text(rank, "rank 1");
	return coll_tell(rank);
}

Test(coll_bad, a_rank_that_never_opens_is_named)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	scene.is_plain = true;
	scene.timeout_ms = 300;
	coll_run_and_let_go(&scene, 2, open_alone, 1);
	coll_close_scene(&scene);
}

static int open_too_much(struct coll_rank *rank)
{
	int r = zinf_coll_open(rank->zinf, 1ull << 30);

	coll_check(rank, r == -ENOSPC || r == -EDQUOT);
	coll_text(rank, "GiB");
	coll_must(rank, 0, zinf_coll_open(rank->zinf, COLL_ARENA));
	return still_good(rank);
}

Test(coll_bad, an_arena_that_does_not_fit_is_refused_with_figures)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	scene.is_plain = true;
	coll_run(&scene, 2, open_too_much);
	coll_close_scene(&scene);
}
