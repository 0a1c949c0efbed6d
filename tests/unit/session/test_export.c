/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whoever exports hears what could not be read, and where it lies, of each of several extents
 * under way by itself; questions out of order are refused; what a client that goes away has under
 * way stays until it is over. Method: a fake zero with one extent that the engine does not take, or
 * that it keeps for as long as the test likes.
 */
#include "tests/unit/session/room.h"

TestSuite(export, .init = room_open, .fini = room_close);

static void tell(struct client *client, const char *command)
{
	struct zi_admin admin = { 0 };

	(void)snprintf(admin.command, sizeof(admin.command), "%s", command);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
}

/* 0, or the error. */
static int ask(struct client *client, const char *command)
{
	tell(client, command);
	return client_receive(client) == ZI_MESSAGE_ERROR ? client->in.error.error : 0;
}

Test(export, error_of_the_engine_names_job_plane_unit_offset_and_path)
{
	struct client *client = client_connect();

	client_hello(client);
	cr_assert_eq(ask(client, "export read 0 0"), -EINVAL);
	cr_assert_eq(ask(client, "export wait 0"), -EINVAL);
	cr_assert_eq(ask(client, "export open nobody"), -ENOENT);
	cr_assert_eq(ask(client, "export open held"), 0, "%s", client->in.error.text.chars);
	cr_assert_eq(ask(client, "export open held"), -EBUSY);
	cr_assert_eq(ask(client, "export read 1 0"), -EINVAL);
	cr_assert_not_null(strstr(client->in.error.text.chars, "extent 1 of 1"));
	cr_assert_eq(ask(client, "export read 0 4"), -EINVAL);
	cr_assert_eq(ask(client, "export wait 4"), -EINVAL);
	cr_assert_str_eq(client->in.error.text.chars, "window 4: there are 4");
	cr_assert_eq(ask(client, "export wait 3"), -EINVAL);
	cr_assert_str_eq(client->in.error.text.chars, "window 3: nothing is being read into it");
	cr_assert_eq(ask(client, "export read 0 0"), -EINVAL);
	cr_assert_str_eq(client->in.error.text.chars,
	                 "job 'held': reading optimizer state of unit 'h.0', subgroup 3, at offset "
	                 "8192 of /disk/store: EINVAL");
	client_close(client);
}

/* Three windows under way. */
static struct client *read_three(void)
{
	struct client *client = client_connect();

	fake.moves = true;
	client_hello(client);
	cr_assert_eq(ask(client, "export open held"), 0, "%s", client->in.error.text.chars);
	for (uint32_t i = 0; i < 3; i++) {
		char command[32];

		(void)snprintf(command, sizeof(command), "export read 0 %u", i);
		cr_assert_eq(ask(client, command), 0, "%s", client->in.error.text.chars);
	}
	cr_assert_eq(fake.read_count, 3);
	return client;
}

Test(export, error_in_the_second_of_three_is_told_of_the_second)
{
	struct client *client = read_three();

	cr_assert_eq(ask(client, "export read 0 1"), -EBUSY);
	cr_assert_str_eq(client->in.error.text.chars,
	                 "window 1 holds extent 0, which was not waited for");
	fake_read_done(1, -EIO);
	fake_read_done(0, 0);
	cr_assert_eq(ask(client, "export wait 0"), 0, "%s", client->in.error.text.chars);
	cr_assert_eq(ask(client, "export wait 1"), -EIO);
	cr_assert_str_eq(client->in.error.text.chars,
	                 "job 'held': reading optimizer state of unit 'h.0', subgroup 3, at offset "
	                 "8192 of /disk/store: EIO");
	/* The question comes before the disk. */
	tell(client, "export wait 2");
	fake_read_done(2, 0);
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ADMIN_REPLY);
	/* All are free again. */
	cr_assert_eq(ask(client, "export read 0 1"), 0);
	fake_read_done(3, 0);
	cr_assert_eq(ask(client, "export wait 1"), 0);
	client_close(client);
	settle();
	cr_assert_eq(fake.release_count, 1);
}

Test(export, client_that_vanishes_with_three_under_way_is_waited_for)
{
	struct client *client = read_three();

	client_close(client);
	settle();
	fake_read_done(2, 0);
	fake_read_done(0, -EIO);
	fake_read_done(1, 0);
	cr_assert_eq(fake.release_count, 1, "then it is let go, once");
}

Test(export, client_that_vanishes_while_it_waits_is_waited_for)
{
	struct client *client = read_three();

	tell(client, "export wait 1");
	client_close(client);
	settle();
	fake_read_done(0, 0);
	fake_read_done(1, 0);
	settle();
	cr_assert_eq(fake.release_count, 0);
	fake_read_done(2, 0);
	cr_assert_eq(fake.release_count, 1);
}
