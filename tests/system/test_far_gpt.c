/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the example trains over several nodes with nothing but the variables that launchers set, to
 * the bits of its reference, and goes on when it is started again. Method: two daemons on the
 * loopback interface; ranks of zinf-gpt started by hand, as torchrun does on each node.
 */
#include "tests/system/far.h"
#include "tests/system/gpt.h"

#define TINY                                                                    \
	"--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --bf16 " \
	"--warmup 1 --lr 1e-3 --min-lr 1e-3 --log-every 1 --staging 4M "

TestSuite(far_gpt, .timeout = 120);

/* @world ranks, the first @per_node of them on the first node, the others on @second, which may be
 * none; all must end well. What rank 0 says lies in `words`. */
static void run_ranks(uint32_t world, uint32_t per_node, const struct harness *second,
                      const char *arguments)
{
	char path[300], command[2048];
	size_t bytes;
	FILE *pipe;

	harness_program("zinf-gpt", path, sizeof(path));
	(void)snprintf(command, sizeof(command),
	               "program=$(realpath %s); cd %s; pids=; code=0;"
	               "export WORLD_SIZE=%u LOCAL_WORLD_SIZE=%u MASTER_ADDR=127.0.0.1 "
	               "MASTER_PORT=%u TORCHELASTIC_RUN_ID=far$$ TORCHELASTIC_RESTART_COUNT=0;"
	               "for rank in $(seq 1 %u); do"
	               " [ $rank -lt %u ] && ZINF_SOCKET=%s || ZINF_SOCKET=%s;"
	               " RANK=$rank LOCAL_RANK=$((rank %% %u)) ZINF_SOCKET=$ZINF_SOCKET"
	               " $program %s > rank$rank.log 2>&1 & pids=\"$pids $!\"; done;"
	               "RANK=0 LOCAL_RANK=0 ZINF_SOCKET=%s $program %s 2>&1 || code=1;"
	               "for pid in $pids; do wait $pid || code=1; done;"
	               "[ $code = 0 ] || cat rank?.log; exit $code",
	               path, folder.path, world, per_node, harness_free_port() - 1u, world - 1,
	               per_node, harness.socket_path, second ? second->socket_path : "none",
	               per_node, arguments, harness.socket_path, arguments);
	pipe = popen(command, "r");
	cr_assert_not_null(pipe);
	bytes = fread(words, 1, sizeof(words) - 1, pipe);
	words[bytes] = '\0';
	cr_assert_eq(pclose(pipe), 0, "%s", words);
}

static void run_over_nodes(const struct harness *second, const char *arguments)
{
	run_ranks(4, 2, second, arguments);
}

Test(far_gpt, two_nodes_give_the_bits_of_the_reference)
{
	static const char *const strategies[] = { "ddp", "zero1", "zero2", "fsdp" };
	struct harness second = { .pid = 0 };
	char arguments[512], evaluated[256] = "";

	far_need_net();
	gpt_start();
	system_start(&second, &(struct harness_options){ .nvme_size = "64M" });
	gpt_run(0, "zinf-gpt", TINY "--reference --ranks 4 --steps 5 --dump plain.dump");
	for (size_t i = 0; i < ZI_COUNT_OF(strategies); i++) {
		const char *offload =
			i % 2 ? "--offload-optimizer nvme" : "--offload-optimizer cpu";

		(void)snprintf(arguments, sizeof(arguments),
		               TINY "--job far%zu --strategy %s %s --steps 3", i, strategies[i],
		               offload);
		run_over_nodes(&second, arguments);
		(void)snprintf(arguments, sizeof(arguments),
		               TINY "--job far%zu --strategy %s %s --steps 5 --dump far.dump", i,
		               strategies[i], offload);
		run_over_nodes(&second, arguments);
		system_expect_text(words, "resumed at step 3");
		gpt_expect_equal_dumps("plain.dump", "far.dump");
		/* Used over nodes as it stands, the same for all. */
		(void)snprintf(arguments, sizeof(arguments),
		               TINY "--job far%zu --strategy %s %s "
		                    "--eval /usr/share/common-licenses/BSD --json",
		               i, strategies[i], offload);
		run_over_nodes(&second, arguments);
		system_expect_text(words, "{\"event\":\"eval_text\",\"step\":5,");
		cr_expect(!i || strstr(words, evaluated), "'%s' is not in '%s'", evaluated, words);
		(void)snprintf(evaluated, sizeof(evaluated), "%s",
		               strstr(words, "{\"event\":\"eval_text\""));
		evaluated[strcspn(evaluated, "\n")] = '\0';
	}
	cr_assert_eq(harness_stop(&second), 0);
	files_stop();
}

/* What ranks differ in, or are summed in. */
static void run_with(const struct harness *second, const char *flags)
{
	static uint32_t job;
	char arguments[512];

	(void)snprintf(arguments, sizeof(arguments),
	               TINY "--reference --ranks 4 %s --dump plain.dump", flags);
	gpt_run(0, "zinf-gpt", arguments);
	(void)snprintf(arguments, sizeof(arguments), TINY "--job with%u %s --dump far.dump", job++,
	               flags);
	run_over_nodes(second, arguments);
	gpt_expect_equal_dumps("plain.dump", "far.dump");
}

/* 9 of 10 bytes are trained on: 21 windows of 16, and 14 bytes more. */
static void write_text(void)
{
	FILE *file = fopen(path_of("text"), "we");

	cr_assert_not_null(file);
	for (unsigned i = 0; i < 390; i++)
		fputc(i % 39 == 38 ? '\n' : 'a' + (int)(i * i % 26), file);
	fclose(file);
}

Test(far_gpt, flags_of_one_node_do_the_same_over_two)
{
	struct harness second = { .pid = 0 };

	far_need_net();
	gpt_start();
	system_start(&second, &(struct harness_options){ .nvme_size = "64M" });
	run_with(&second, "--reduce-dtype f32 --steps 3");
	run_with(&second, "--grad-accum 2 --no-sync --steps 3");
	/* 21 batches of 4 ranks: one of node 0 has a sixth, those of node 1 join. */
	write_text();
	run_with(&second, "--data text --once");
	run_with(&second, "--data text --once --strategy zero2 --offload-optimizer nvme --clip 0");
	run_with(&second, "--reduce-dtype f32 --strategy zero2 --offload-optimizer nvme --steps 3");
	cr_assert_eq(harness_stop(&second), 0);
	files_stop();
}

/* The second node is lost for good between two starts; then there is a blank one. */
static void lose_the_second(const char *strategy)
{
	struct harness second = { .pid = 0 };
	char arguments[512];

	system_start(&second, &(struct harness_options){ .nvme_size = "64M" });
#define GO_ON(steps)                                                                              \
	((void)snprintf(arguments, sizeof(arguments),                                             \
	                TINY "--job lost --offload-optimizer nvme %s --resume latest --steps %u " \
	                     "--dump far.dump",                                                   \
	                strategy, (steps)),                                                       \
	 arguments)
	(void)snprintf(arguments, sizeof(arguments),
	               TINY "--job lost --offload-optimizer nvme %s --steps 3", strategy);
	run_ranks(4, 2, &second, arguments);
	harness_remove(&second);
	run_ranks(4, 4, NULL, GO_ON(5u));
	system_expect_text(words, "resumed at step 3");
	gpt_expect_equal_dumps("plain5.dump", "far.dump");
	system_start(&second, &(struct harness_options){ .nvme_size = "64M" });
	run_ranks(4, 2, &second, GO_ON(7u));
	system_expect_text(words, "resumed at step 5");
	gpt_expect_equal_dumps("plain7.dump", "far.dump");
	/* Lost again; fewer ranks are left, and more come. */
	harness_remove(&second);
	run_ranks(2, 2, NULL, GO_ON(9u));
	system_expect_text(words, "resumed at step 7");
	system_start(&second, &(struct harness_options){ .nvme_size = "64M" });
	run_ranks(4, 2, &second, GO_ON(11u));
	system_expect_text(words, "resumed at step 9");
	gpt_expect_equal_dumps("changed.dump", "far.dump");
	(void)snprintf(arguments, sizeof(arguments), TINY "--job lost --steps 11 --delete-job %s",
	               "--offload-optimizer nvme");
	run_over_nodes(&second, arguments);
	cr_assert_eq(harness_stop(&second), 0);
}

Test(far_gpt, a_node_that_is_lost_is_survived)
{
	far_need_net();
	gpt_start();
	gpt_run(0, "zinf-gpt", TINY "--reference --ranks 4 --steps 5 --dump plain5.dump");
	gpt_run(0, "zinf-gpt", TINY "--reference --ranks 4 --steps 7 --dump plain7.dump");
	/* 4, 2 and 4 ranks, on one node. */
	run_ranks(4, 4, NULL, TINY "--job changed --steps 7");
	run_ranks(2, 2, NULL, TINY "--job changed --steps 9 --resume latest");
	run_ranks(4, 4, NULL, TINY "--job changed --steps 11 --resume latest --dump changed.dump");
	lose_the_second("--strategy zero3 --shard-size 2");
	lose_the_second("--strategy ddp");
	files_stop();
}
