/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a batch for which a rank has no room, because it is too long or memory is short, is told to
 * the peers of its messages at once, and what comes behind it is whole; with a ticket nobody waits
 * in it.
 * Method: ranks as processes of a real zinfd, with deadlines of minutes.
 */
#include <sys/resource.h>

#include "tests/system/coll.h"

TestSuite(coll_batch, .timeout = 120);

#define TOO_MANY (ZINF_COLL_BATCH_MAX + 1)
#define MANY     1000u

static struct zinf_coll_p2p *messages(struct coll_rank *rank, bool is_send, uint32_t count,
                                      int64_t *data)
{
	struct zinf_coll_p2p *ops = calloc(count, sizeof(*ops));

	for (uint32_t i = 0; ops && i < count; i++)
		ops[i] = (struct zinf_coll_p2p){ .is_send = is_send,
			                         .peer = 1 - rank->rank,
			                         .data = data,
			                         .count = 1,
			                         .dtype = ZINF_I64 };
	return ops;
}

/* Rank 1 meets, one by one, the @count messages that rank 0 refused, then one that is right. */
static int meet_refused(struct coll_rank *rank, bool is_send, uint32_t count, const char *words)
{
	int64_t data = is_send ? 4711 : 0;

	for (uint32_t i = 0; i < count; i++) {
		coll_must(rank, -EINVAL,
		          is_send ? zinf_coll_send(rank->zinf, &data, 1, ZINF_I64, 0, NULL)
		                  : zinf_coll_recv(rank->zinf, &data, 1, ZINF_I64, 0, NULL));
		coll_text(rank, "member 0 refuses it: ");
	}
	coll_text(rank, words);
	coll_must(rank, 0,
	          is_send ? zinf_coll_send(rank->zinf, &data, 1, ZINF_I64, 0, NULL)
	                  : zinf_coll_recv(rank->zinf, &data, 1, ZINF_I64, 0, NULL));
	coll_check(rank, data == 4711);
	return 0;
}

static int too_long(struct coll_rank *rank)
{
	int64_t data = 4711;
	struct zinf_coll_p2p *ops = messages(rank, true, TOO_MANY, &data);

	coll_check(rank, ops);
	if (rank->rank == 1) {
		free(ops);
		return meet_refused(rank, false, TOO_MANY, "1025 messages: 1 to 1024 are allowed");
	}
	coll_must(rank, -EINVAL, zinf_coll_batch(rank->zinf, ops, TOO_MANY, NULL));
	coll_text(rank, "a batch of 1025 messages: 1 to 1024 are allowed");
	/* A wild count: nothing is looked at. */
	coll_must(rank, -EINVAL, zinf_coll_batch(rank->zinf, ops, UINT32_MAX, NULL));
	coll_text(rank, "a batch of 4294967295 messages: 1 to 1024 are allowed");
	coll_must(rank, 0, zinf_coll_batch(rank->zinf, ops, 1, NULL));
	free(ops);
	return 0;
}

Test(coll_batch, one_that_is_too_long_is_told_to_its_peers)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 2, too_long);
	coll_close_scene(&scene);
}

/* Rank 1 takes what is under way behind a barrier, to which rank 0 comes after the batch: that does
 * not wait for it. */
static int too_long_behind(struct coll_rank *rank)
{
	int64_t data = 4711;
	struct zinf_coll_p2p *ops = messages(rank, true, TOO_MANY, &data);
	struct zinf_coll_options with_ticket = ZINF_COLL_OPTIONS_INIT;
	uint64_t tickets[2];

	coll_check(rank, ops);
	if (rank->rank == 1) {
		free(ops);
		coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
		coll_must(rank, 0, zinf_coll_recv(rank->zinf, &data, 1, ZINF_I64, 0, NULL));
		return meet_refused(rank, false, TOO_MANY, "1025 messages: 1 to 1024 are allowed");
	}
	with_ticket.ret_ticket = &tickets[0];
	coll_must(rank, 0, zinf_coll_batch(rank->zinf, ops, 1, &with_ticket));
	with_ticket.ret_ticket = &tickets[1];
	coll_must(rank, 0, zinf_coll_batch(rank->zinf, ops, TOO_MANY, &with_ticket));
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	coll_must(rank, 0, zinf_wait(rank->zinf, tickets[0], 0));
	coll_must(rank, -EINVAL, zinf_wait(rank->zinf, tickets[1], 0));
	coll_text(rank, "a batch of 1025 messages: 1 to 1024 are allowed");
	coll_must(rank, 0, zinf_coll_batch(rank->zinf, ops, 1, NULL));
	free(ops);
	return 0;
}

Test(coll_batch, one_that_is_too_long_does_not_wait_when_a_ticket_is_asked_for)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 2, too_long_behind);
	coll_close_scene(&scene);
}

/* The stack of what follows is there, whatever may be mapped then. */
static void touch_stack(void)
{
	volatile char deep[256 << 10];

	for (size_t i = 0; i < sizeof(deep); i += 4096)
		deep[i] = 0;
}

/* All that malloc() has, in a list. */
static void *take_memory(void)
{
	void **last = NULL, **block;

	for (size_t bytes = 64 << 10; bytes >= 4096; bytes /= 2)
		while ((block = malloc(bytes))) {
			*block = last;
			last = block;
		}
	return last;
}

static void give_memory(void *last)
{
	while (last) {
		void *next = *(void **)last;

		free(last);
		last = next;
	}
}

/* Makes the batch while there is none. */
static int batch_without_memory(struct coll_rank *rank, const struct zinf_coll_p2p *ops,
                                const struct zinf_coll_options *options)
{
	struct rlimit limit, none;
	void *taken;
	int r;

	/* With the call that is used again below. */
	coll_must(rank, -EINVAL, zinf_coll_batch(rank->zinf, ops, 0, NULL));
	coll_must(rank, 0, getrlimit(RLIMIT_AS, &limit));
	none = limit;
	none.rlim_cur = 1u << 20;
	touch_stack();
	coll_must(rank, 0, setrlimit(RLIMIT_AS, &none));
	taken = take_memory();
	r = zinf_coll_batch(rank->zinf, ops, MANY, options);
	give_memory(taken);
	coll_must(rank, 0, setrlimit(RLIMIT_AS, &limit));
	coll_must(rank, -ENOMEM, r);
	coll_text(rank, "no memory for 1000 messages");
	return 0;
}

static bool is_ticket_asked; /* for a batch without memory, which has none */

static int no_memory(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	int64_t data = 0;
	struct zinf_coll_p2p *ops = messages(rank, false, MANY, &data);
	uint64_t ticket = 0;

	coll_check(rank, ops);
	if (rank->rank == 1) {
		free(ops);
		return meet_refused(rank, true, MANY, "no memory for 1000 messages");
	}
	options.ret_ticket = &ticket;
	if (batch_without_memory(rank, ops, is_ticket_asked ? &options : NULL))
		return 1;
	coll_check(rank, !ticket);
	coll_must(rank, 0, zinf_coll_batch(rank->zinf, ops, 1, NULL));
	coll_check(rank, data == 4711);
	free(ops);
	return 0;
}

Test(coll_batch, one_without_memory_is_told_to_its_peers)
{
	struct coll_scene scene;

#ifdef ZI_SANITIZED
	cr_skip_test("a sanitizer ends a process that can map nothing");
#endif
	for (uint32_t i = 0; i < 2; i++) {
		is_ticket_asked = i;
		coll_open_scene(&scene);
		coll_run(&scene, 2, no_memory);
		coll_close_scene(&scene);
	}
}

/* As too_long_behind(); rank 1 hears nothing of the batch, which can be made again. */
static int no_memory_behind(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	int64_t data = rank->rank ? 4711 : 0, other = 0;
	struct zinf_coll_p2p *ops = messages(rank, rank->rank, MANY, &data);
	uint64_t tickets[2] = { 0 };

	coll_check(rank, ops);
	options.ret_ticket = &tickets[0];
	if (rank->rank == 1) {
		coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
		coll_must(rank, 0, zinf_coll_send(rank->zinf, &data, 1, ZINF_I64, 0, NULL));
		coll_must(rank, 0, zinf_coll_batch(rank->zinf, ops, MANY, NULL));
		free(ops);
		return 0;
	}
	coll_must(rank, 0, zinf_coll_recv(rank->zinf, &other, 1, ZINF_I64, 1, &options));
	options.ret_ticket = &tickets[1];
	if (batch_without_memory(rank, ops, &options))
		return 1;
	coll_check(rank, !tickets[1]);
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	coll_must(rank, 0, zinf_wait(rank->zinf, tickets[0], 0));
	coll_must(rank, 0, zinf_coll_batch(rank->zinf, ops, MANY, NULL));
	coll_check(rank, other == 4711 && data == 4711);
	free(ops);
	return 0;
}

Test(coll_batch, one_without_memory_does_not_wait_when_a_ticket_is_asked_for)
{
	struct coll_scene scene;

#ifdef ZI_SANITIZED
	cr_skip_test("a sanitizer ends a process that can map nothing");
#endif
	coll_open_scene(&scene);
	coll_run(&scene, 2, no_memory_behind);
	coll_close_scene(&scene);
}
