/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: nothing that a client writes into the window of a load is believed. Each of several
 * extents under way has its own answer, and what a client that goes away has under way stays until
 * it is over. Method: descriptions with one thing wrong each, over a fake zero that has no room for
 * a right one, or keeps what it gets for as long as the test likes; questions out of order.
 */
#include "common/wire/import.h"
#include "tests/unit/session/room.h"

TestSuite(import, .init = room_open, .fini = room_close);

struct description {
	struct zi_import_head head;
	struct zi_layout_entry entries[2];
	struct zi_import_blob blob;
	uint64_t bytes;
};

static struct description right(void)
{
	return (struct description){
		.head = { .magic = ZI_IMPORT_MAGIC,
		          .world_size = 2,
		          .unit_count = 1,
		          .param_count = 1,
		          .blob_count = 1 },
		.entries = { { .kind = ZI_LAYOUT_UNIT, .name = "unit" },
		             { .kind = ZI_LAYOUT_PARAM,
		               .name = "w",
		               .dim_count = 1,
		               .shape = { 5 } } },
		.blob = { .rank = 1, .bytes = 8 },
	};
}

/* Waits for the answer: 0, or the error. */
static int ask(struct client *client, const char *command)
{
	struct zi_admin admin = { 0 };

	(void)snprintf(admin.command, sizeof(admin.command), "%s", command);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
	return client_receive(client) == ZI_MESSAGE_ERROR ? client->in.error.error : 0;
}

static struct description *open_window(struct client *client)
{
	void *window;

	client_hello(client);
	cr_assert_eq(ask(client, "load describe 8"), -EINVAL);
	cr_assert_eq(ask(client, "load put 0 0 0123456789abcdef"), -EINVAL);
	cr_assert_eq(ask(client, "load wait 0"), -EINVAL);
	cr_assert_eq(ask(client, "load end"), -EINVAL);
	cr_assert_eq(ask(client, "load open train/x 4"), -E2BIG);
	cr_assert_eq(ask(client, "load open train/x 4000000000"), -E2BIG);
	cr_assert_eq(ask(client, "load put 0 0 0123456789abcdeg"), -EINVAL);
	cr_assert_eq(ask(client, "load open train/x 1000"), 0, "%s", client->in.error.text.chars);
	cr_assert_eq(client->fd_count, 1);
	cr_assert_eq(zi_region_map(client->fds[0], 1 << 20, true, &window), 0);
	cr_assert_eq(ask(client, "load open train/y 1000"), -EBUSY);
	cr_assert_eq(ask(client, "load put 0 0 0123456789abcdef"), -EINVAL);
	cr_assert_eq(ask(client, "load end"), -EINVAL);
	return window;
}

static int describe(struct client *client, struct description *window,
                    const struct description *description, size_t bytes)
{
	char command[64];

	*window = *description;
	(void)snprintf(command, sizeof(command), "load describe %zu", bytes);
	return ask(client, command);
}

Test(import, descriptions_that_are_wrong_are_refused)
{
	struct client *client = client_connect();
	struct description *window = open_window(client);
	struct description wrong;
	size_t bytes = sizeof(wrong);

#define EXPECT_WRONG(change)                                                                 \
	do {                                                                                 \
		wrong = right();                                                             \
		change;                                                                      \
		cr_assert_eq(describe(client, window, &wrong, sizeof(wrong)), -EPROTO, "%s", \
		             #change);                                                       \
	} while (0)

	wrong = right();
	cr_assert_eq(describe(client, window, &wrong, bytes), -ENOSPC, "the fake's word: %s",
	             client->in.error.text.chars);
	for (size_t cut = 0; cut < bytes; cut += 8)
		cr_assert_eq(describe(client, window, &wrong, cut), -EPROTO, "%zu bytes", cut);
	cr_assert_eq(describe(client, window, &wrong, bytes + 8), -EPROTO);
	cr_assert_eq(describe(client, window, &wrong, 4000000000u), -EPROTO);
	EXPECT_WRONG(wrong.head.magic++);
	EXPECT_WRONG(wrong.head.reserved = 1);
	EXPECT_WRONG(wrong.head.has_state = 2);
	EXPECT_WRONG(wrong.head.world_size = 0);
	EXPECT_WRONG(wrong.head.world_size = ZI_WORLD_MAX + 1);
	EXPECT_WRONG(wrong.head.blob_count = 3);
	EXPECT_WRONG(wrong.head.unit_count = UINT32_MAX);
	EXPECT_WRONG(wrong.head.param_count = UINT32_MAX);
	EXPECT_WRONG(wrong.head.unit_count = 2; wrong.head.param_count = 0);
	EXPECT_WRONG(wrong.head.unit_count = 0; wrong.head.param_count = 2);
	EXPECT_WRONG(wrong.entries[0].kind = ZI_LAYOUT_PARAM);
	EXPECT_WRONG(wrong.entries[1].kind = 7);
	EXPECT_WRONG(wrong.entries[1].dim_count = 9);
	EXPECT_WRONG(memset(wrong.entries[1].name, 'x', sizeof(wrong.entries[1].name)));
	EXPECT_WRONG(wrong.entries[1].group = 1); /* No catalog has groups. */
	EXPECT_WRONG(wrong.blob.rank = 2);
	EXPECT_WRONG(wrong.blob.bytes = UINT32_MAX);
	EXPECT_WRONG(wrong.blob.bytes = 9);
	client_close(client);
}

/* Three windows under way. */
static struct client *put_three(void)
{
	struct client *client = client_connect();
	struct description *window = open_window(client);
	struct description wanted = right();

	fake.moves = true;
	cr_assert_eq(describe(client, window, &wanted, sizeof(wanted)), 0, "%s",
	             client->in.error.text.chars);
	cr_assert_eq(ask(client, "load put 0 4 0123456789abcdef"), -EINVAL);
	cr_assert_eq(ask(client, "load put 8 0 0123456789abcdef"), -EINVAL);
	cr_assert_eq(ask(client, "load wait 4"), -EINVAL);
	cr_assert_eq(ask(client, "load wait 0"), -EINVAL);
	cr_assert_str_eq(client->in.error.text.chars, "window 0: nothing is being written from it");
	for (uint32_t i = 0; i < 3; i++) {
		char command[64];

		(void)snprintf(command, sizeof(command), "load put %u %u 0123456789abcdef", i + 5,
		               i);
		cr_assert_eq(ask(client, command), 0, "%s", client->in.error.text.chars);
	}
	cr_assert_eq(fake.put_count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(fake.puts[i]->index, i + 5);
		for (uint32_t k = 0; k < i; k++) {
			cr_assert_neq(fake.puts[i]->source, fake.puts[k]->source);
			cr_assert_neq(fake.puts[i]->buffer, fake.puts[k]->buffer);
		}
	}
	return client;
}

Test(import, error_in_the_second_of_three_is_told_of_the_second)
{
	struct client *client = put_three();

	cr_assert_eq(ask(client, "load put 1 1 0123456789abcdef"), -EBUSY);
	cr_assert_str_eq(client->in.error.text.chars,
	                 "window 1 holds extent 6, which was not waited for");
	cr_assert_eq(ask(client, "load end"), -EBUSY);
	fake_put_done(2, -EBADMSG, "");
	fake_put_done(1, -EIO, "where it was");
	fake_put_done(0, 0, "");
	cr_assert_eq(ask(client, "load wait 0"), 0);
	cr_assert_eq(ask(client, "load wait 1"), -EIO);
	cr_assert_str_eq(client->in.error.text.chars, "where it was");
	cr_assert_eq(ask(client, "load wait 2"), -EBADMSG);
	cr_assert_str_eq(client->in.error.text.chars,
	                 "taking extent 7 of 'train': it does not match its checksums");
	cr_assert_eq(fake.drop_count, 0);
	client_close(client);
	settle();
	cr_assert_eq(fake.drop_count, 1);
}

Test(import, client_that_vanishes_with_three_under_way_is_waited_for)
{
	struct client *client = put_three();

	client_close(client);
	settle();
	fake_put_done(0, 0, "");
	fake_put_done(2, -EIO, "nobody hears it");
	fake_put_done(1, 0, "");
	cr_assert_eq(fake.drop_count, 1, "then it is dropped, once");
}

Test(import, client_that_vanishes_while_it_waits_is_waited_for)
{
	struct client *client = put_three();
	struct zi_admin admin = { .command = "load wait 2" };

	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
	client_close(client);
	settle();
	fake_put_done(2, 0, "");
	settle();
	fake_put_done(1, 0, "");
	cr_assert_eq(fake.drop_count, 0);
	fake_put_done(0, 0, "");
	cr_assert_eq(fake.drop_count, 1);
}
