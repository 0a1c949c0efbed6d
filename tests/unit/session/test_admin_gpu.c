/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an administrator sees the GPUs of the daemon, what is charged on them and by whom, and on
 * which NUMA node each part hangs. Method: as in test_admin.c, over a fake GPU and a synthetic
 * machine.
 */
#include "daemon/topo/topo.h"
#include "tests/fake/fake_chunks.h"
#include "tests/unit/session/room.h"

#define MIB  (1ull << 20)
#define UUID "GPU-00000000-0000-4000-8000-000000000001"

static struct fake_chunks owner;
static struct topo *topo;

static void admin_open(void)
{
	static const struct dev_gpu_facts facts = { .uuid = UUID,
		                                    .name = "Fake GPU",
		                                    .pci = "0000:01:00.0",
		                                    .bytes = 1024 * MIB,
		                                    .granularity_bytes = 2 * MIB,
		                                    .driver_version = 12040,
		                                    .capability = 90,
		                                    .node = 1 };
	struct zi_text text;

	room_open();
	owner = (struct fake_chunks){ .life = 1 };
	cr_assert_eq(tier_arenas_add(room.arenas, &facts, 24 * MIB, &fake_chunks_ops, &owner,
	                             &owner.gpu),
	             0);
	cr_assert_eq(topo_new("synthetic:pack:2 [numa] pu:4", &text, &topo), 0, "%s", text.chars);
	room.facts.topo = topo;
}

static void admin_close(void)
{
	room_close();
	topo = topo_free(topo);
}

TestSuite(admin_gpu, .init = admin_open, .fini = admin_close);

static json_t *ask(struct client *client, const char *command)
{
	struct zi_admin admin = { 0 };
	json_t *answer;

	cr_assert_eq(zi_copy_name(admin.command, sizeof(admin.command), command), 0);
	client_send(client, &admin, ZI_MESSAGE_ADMIN, sizeof(admin));
	settle();
	cr_assert_eq(client_receive(client), ZI_MESSAGE_ADMIN_REPLY);
	cr_assert_eq(client->in.header.flags, 0, "one piece");
	answer = json_loadb((char *)client->in.bytes + sizeof(client->in.header),
	                    client->in.header.bytes - sizeof(client->in.header), 0, NULL);
	cr_assert(answer);
	return answer;
}

static json_int_t count_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *word_of(const json_t *object, const char *key)
{
	const char *word = json_string_value(json_object_get(object, key));

	return word ? word : "";
}

Test(admin_gpu, tiers_and_status_show_gpus)
{
	const struct zi_text down = { "zinf-gpu was killed" }, missing = { "GPU 1 is broken" };
	struct client *client = client_connect();
	json_t *answer, *gpu;

	client_hello(client);
	answer = ask(client, "tiers");
	cr_assert_eq(json_array_size(answer), 2);
	gpu = json_array_get(answer, 1);
	cr_expect_str_eq(word_of(gpu, "name"), "gpu:" UUID);
	cr_expect_str_eq(word_of(gpu, "kind"), "gpu");
	cr_expect_str_eq(word_of(gpu, "device"), "Fake GPU");
	cr_expect_eq(count_of(gpu, "node"), 1);
	cr_expect_eq(count_of(gpu, "capacity_bytes"), 1000 * MIB);
	cr_expect_eq(count_of(gpu, "memory_bytes"), 1024 * MIB);
	cr_expect(json_is_true(json_object_get(gpu, "is_up")));
	json_decref(answer);
	dev_gpu_set_down(owner.gpu, &down);
	answer = ask(client, "tiers");
	gpu = json_array_get(answer, 1);
	cr_expect(json_is_false(json_object_get(gpu, "is_up")));
	cr_expect_str_eq(word_of(gpu, "reason"), down.chars);
	json_decref(answer);
	answer = ask(client, "status");
	cr_expect_eq(count_of(answer, "gpus"), 1);
	cr_expect(json_is_null(json_object_get(answer, "gpus_missing")));
	json_decref(answer);
	tier_arenas_explain(room.arenas, &missing);
	answer = ask(client, "status");
	cr_expect_str_eq(word_of(answer, "gpus_missing"), missing.chars);
	json_decref(answer);
	client_close(client);
}

Test(admin_gpu, troubles_name_gpus_that_cannot_be_used_and_processes_that_do_not_end)
{
	struct client *client = client_connect();
	json_t *answer, *troubles, *gpu;

	client_hello(client);
	answer = ask(client, "status");
	cr_expect_eq(json_array_size(json_object_get(answer, "gpu_troubles")), 0);
	json_decref(answer);
	answer = ask(client, "tiers");
	cr_expect(json_is_null(json_object_get(json_array_get(answer, 1), "ending_pid")));
	cr_expect(json_is_null(json_object_get(json_array_get(answer, 1), "ending_s")));
	json_decref(answer);
	dev_gpu_set_ending(owner.gpu, 77, zi_clock_now_ns() - 12 * ZI_NS_PER_S);
	*tier_arenas_trouble(room.arenas, 3) =
		(struct tier_gpu_trouble){ .text = { "GPU 3 is broken" } };
	tier_arenas_trouble(room.arenas, 4)->ending_pid = 78;
	answer = ask(client, "status");
	troubles = json_object_get(answer, "gpu_troubles");
	cr_assert_eq(json_array_size(troubles), 3);
	gpu = json_array_get(troubles, 0);
	cr_expect_str_eq(word_of(gpu, "gpu"), UUID);
	cr_expect_eq(count_of(gpu, "ending_pid"), 77);
	cr_expect_geq(count_of(gpu, "ending_s"), 12);
	gpu = json_array_get(troubles, 1);
	cr_expect_str_eq(word_of(gpu, "gpu"), "3");
	cr_expect_str_eq(word_of(gpu, "reason"), "GPU 3 is broken");
	cr_expect(json_is_null(json_object_get(gpu, "ending_pid")));
	cr_expect_str_eq(word_of(json_array_get(troubles, 2), "gpu"), "4");
	cr_expect_str_eq(word_of(answer, "gpus_missing"), "GPU 3 is broken");
	json_decref(answer);
	answer = ask(client, "tiers");
	cr_expect_eq(count_of(json_array_get(answer, 1), "ending_pid"), 77);
	json_decref(answer);
	dev_gpu_set_gone(owner.gpu);
	client_close(client);
}

Test(admin_gpu, limits_show_what_a_uid_holds_on_gpus)
{
	static const struct sess_limit_fact facts[] = {
		{ "uid_gpu_bytes", "quota.uid_gpu", 64 * MIB },
		{ "uid_cpu_bytes", "quota.uid_cpu", 64 * MIB },
	};
	struct tier *tier = tier_arenas_tier(room.arenas, 0);
	struct tier_charge charge = { 0 };
	struct client *client = client_connect();
	json_t *answer;

	room.facts.limits = facts;
	room.facts.limit_count = ZI_COUNT_OF(facts);
	cr_assert_eq(tier_charge_take(&charge, tier, &fake.account, 6 * MIB, NULL), 0);
	client_hello(client);
	answer = ask(client, "limits");
	cr_expect_eq(count_of(json_array_get(answer, 0), "used"), 6 * MIB);
	cr_expect_eq(count_of(json_array_get(answer, 1), "used"), 0);
	json_decref(answer);
	tier_charge_return(&charge);
	client_close(client);
}

Test(admin_gpu, topo_shows_what_hangs_on_which_node)
{
	struct client *client = client_connect();
	json_t *answer, *gpu, *tiers;

	client_hello(client);
	answer = ask(client, "topo");
	cr_expect_eq(json_array_size(json_object_get(answer, "nodes")), 2);
	cr_expect_eq(count_of(json_array_get(json_object_get(answer, "nodes"), 1), "cpus"), 4);
	cr_expect_eq(json_array_size(json_object_get(answer, "disks")), 0);
	cr_assert_eq(json_array_size(json_object_get(answer, "gpus")), 1);
	gpu = json_array_get(json_object_get(answer, "gpus"), 0);
	cr_expect_str_eq(word_of(gpu, "uuid"), UUID);
	cr_expect_eq(count_of(gpu, "node"), 1);
	tiers = json_object_get(answer, "tiers");
	cr_assert_eq(json_array_size(tiers), 2);
	cr_expect_eq(count_of(json_array_get(tiers, 0), "node"), 0);
	cr_expect_eq(count_of(json_array_get(tiers, 1), "node"), 1);
	json_decref(answer);
	/* A GPU that zinfd does not have, and a disk. */
	topo->gpu_count = 2;
	topo->gpus[0] = (struct topo_gpu){ .pci = "0000:01:00.0", .node = 1 };
	topo->gpus[1] = (struct topo_gpu){ .pci = "0000:02:00.0", .node = -1 };
	topo->disk_count = 1;
	topo->disks[0] = (struct topo_disk){ .name = "nvme0n1", .node = 0 };
	answer = ask(client, "topo");
	cr_assert_eq(json_array_size(json_object_get(answer, "gpus")), 2);
	gpu = json_array_get(json_object_get(answer, "gpus"), 1);
	cr_expect_str_eq(word_of(gpu, "pci"), "0000:02:00.0");
	cr_expect(json_is_null(json_object_get(gpu, "uuid")));
	cr_expect(json_is_null(json_object_get(gpu, "node")));
	cr_expect_str_eq(word_of(json_array_get(json_object_get(answer, "disks"), 0), "name"),
	                 "nvme0n1");
	json_decref(answer);
	room.facts.topo = NULL;
	answer = ask(client, "topo");
	cr_expect_eq(json_array_size(json_object_get(answer, "nodes")), 0);
	json_decref(answer);
	client_close(client);
}
