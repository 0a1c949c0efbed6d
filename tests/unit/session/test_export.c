/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whoever exports hears what could not be read, and where it lies; questions out of order are
 * refused. Method: a fake zero with one extent that the engine does not take. */
#include "tests/unit/session/room.h"

TestSuite(export, .init = room_open, .fini = room_close);

/* 0, or the error. */
static int ask(struct client *client, const char *command)
{
	struct zi_admin admin = { 0 };

	(void)snprintf(admin.command, sizeof(admin.command), "%s", command);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
	return client_receive(client) == ZI_MESSAGE_ERROR ? client->in.error.error : 0;
}

Test(export, error_of_the_engine_names_job_plane_unit_offset_and_path)
{
	struct client *client = client_connect();

	client_hello(client);
	cr_assert_eq(ask(client, "export read 0 0"), -EINVAL);
	cr_assert_eq(ask(client, "export open nobody"), -ENOENT);
	cr_assert_eq(ask(client, "export open held"), 0, "%s", client->in.error.text.chars);
	cr_assert_eq(ask(client, "export open held"), -EBUSY);
	cr_assert_eq(ask(client, "export read 1 0"), -EINVAL);
	cr_assert_not_null(strstr(client->in.error.text.chars, "extent 1 of 1"));
	cr_assert_eq(ask(client, "export read 0 0"), -EINVAL);
	cr_assert_str_eq(client->in.error.text.chars,
	                 "job 'held': reading optimizer state of unit 'h.0', subgroup 3, at offset "
	                 "8192 of /disk/store: EINVAL");
	client_close(client);
}
