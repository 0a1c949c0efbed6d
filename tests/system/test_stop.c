/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a daemon that is asked to stop ends with exit code 0, its jobs at a committed step and
 * never between two, its trainers with -ESTALE, and nothing left behind; asked once more it only
 * hurries. It takes the socket that a manager passes. Method: SIGTERM from within a rank at a named
 * point of its step; the run goes on under the next daemon and must end in the reference's bits.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/raw.h"
#include "tests/system/system.h"

TestSuite(stop, .timeout = 120);

/* Who asks the daemon to stop, and where. */
struct asking {
	enum trainer_point point;
	int64_t step;
	int64_t low;    /* the job stands there or later afterwards */
	uint32_t count; /* of signals */
	pid_t daemon;
};

static void ask_there(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	const struct asking *asking = arg;

	if (trainer->rank || trainer->start_count || point != asking->point ||
	    trainer->step != asking->step)
		return;
	for (uint32_t i = 0; i < asking->count; i++)
		(void)kill(asking->daemon, SIGTERM);
}

/* As above, but the daemon has taken the call before: a round trip behind it in the same ring
 * says so. */
static void ask_when_taken(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	const struct asking *asking = arg;

	if (point == asking->point && trainer->step == asking->step)
		(void)zinf_ping(trainer->zinf);
	ask_there(trainer, point, arg);
}

static struct trainer_settings settings_of(const struct harness *harness, uint32_t world)
{
	struct trainer_settings settings = ranks_settings(harness, "stopped", world);

	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	settings.options.wait_for_daemon = true;
	settings.step.max_norm = 1;
	settings.steps = 12; /* the signal is heard while the ranks go on */
	settings.restart_max = 1;
	return settings;
}

static const struct asking askings[] = {
	{ TRAINER_MATERIALIZED, -1, -1, 1, 0 }, { TRAINER_WRITTEN, 0, -1, 1, 0 },
	{ TRAINER_STEP_BEGUN, 2, 1, 1, 0 },     { TRAINER_BACKWARD, 2, 1, 1, 0 },
	{ TRAINER_STEPPED, 2, 1, 1, 0 },        { TRAINER_STEPPED, 3, 2, 1, 0 },
	{ TRAINER_WAITED, 4, 4, 1, 0 },
};

static void stop_and_resume(struct harness *harness, const struct asking *asking)
{
	struct trainer_settings settings = settings_of(harness, 2);
	struct asking copy = *asking;
	struct ranks ranks;
	struct stat status;
	int code;

	copy.daemon = harness->pid;
	settings.hook = ask_there;
	settings.hook_arg = &copy;
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	code = harness_await_end(harness);
	if (code)
		harness_print_log(harness);
	cr_assert_eq(code, 0, "point %d: %d", asking->point, code);
	cr_assert_eq(stat(harness->socket_path, &status), -1, "the socket is left behind");
	cr_assert_eq(harness_restart(harness), 0);
	cr_assert_eq(ranks_join(&ranks), 0, "point %d", asking->point);
	for (uint32_t rank = 0; rank < 2; rank++) {
		const struct trainer_report *report = ranks.reports[rank];
		int64_t step = report->first_steps[report->attach_count - 1];

		cr_assert_eq(report->restart_result, -ESTALE, "point %d: %s", asking->point,
		             report->restart_text);
		cr_assert_geq(step, asking->low, "point %d", asking->point);
		cr_assert_leq(step, settings.steps, "point %d", asking->point);
	}
	cr_assert(ranks_are_right(&ranks), "point %d", asking->point);
	ranks_free(&ranks);
	cr_assert_eq(system_destroy_job(&settings), 0);
}

Test(stop, within_a_step_leaves_the_job_at_a_committed_one)
{
	struct harness harness;

	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	for (size_t i = 0; i < sizeof(askings) / sizeof(*askings); i++)
		stop_and_resume(&harness, &askings[i]);
	cr_assert_eq(harness_stop(&harness), 0);
}

/* A rank alone: when it has called its step, nothing more is needed of it, and the step is
 * committed. */
Test(stop, a_step_that_every_rank_has_called_is_committed_first)
{
	struct asking asking = { TRAINER_STEPPED, 3, 3, 1, 0 };
	struct harness harness;
	struct trainer_settings settings;
	struct ranks ranks;

	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	settings = settings_of(&harness, 1);
	asking.daemon = harness.pid;
	settings.hook = ask_when_taken;
	settings.hook_arg = &asking;
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(harness_await_end(&harness), 0);
	cr_assert_eq(harness_restart(&harness), 0);
	cr_assert_eq(ranks_join(&ranks), 0);
	cr_assert_geq(ranks.reports[0]->first_steps[1], asking.low);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	cr_assert_eq(harness_stop(&harness), 0);
}

/* The second signal discards what is under way, as a crash would; both may arrive as one. */
Test(stop, asked_twice_ends_as_well)
{
	const struct asking asking = { TRAINER_STEPPED, 2, 1, 2, 0 };
	struct harness harness;

	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	stop_and_resume(&harness, &asking);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(stop, with_silent_and_idle_clients_does_not_wait_for_them)
{
	static struct raw silent, greeted, attached;
	struct harness harness;

	system_start(&harness, &(struct harness_options){ 0 });
	cr_assert_eq(raw_connect(&silent, harness.socket_path), 0);
	cr_assert_eq(raw_connect(&greeted, harness.socket_path), 0);
	cr_assert_eq(raw_hello(&greeted), 0);
	cr_assert_eq(raw_join(&attached, harness.socket_path, "idle", 0, 2), 0);
	cr_assert_eq(harness_stop(&harness), 0);
	cr_assert_eq(raw_receive(&silent), 0);
	cr_assert_eq(raw_receive(&greeted), 0);
	cr_assert_eq(raw_receive(&attached), ZI_MESSAGE_NOTICE);
	cr_assert_eq(attached.reply.notice.error, -ESTALE);
	cr_assert(raw_is_ended(&attached));
	raw_close(&silent);
	raw_close(&greeted);
	raw_close(&attached);
}

/* Some seconds of writing on any disk; the signal comes at its first percent. */
Test(stop, while_a_store_is_being_made_ends_at_once_and_leaves_none)
{
	struct harness harness;
	char path[300], words[1024];

	cr_assert_eq(harness_start_until(&harness, &(struct harness_options){ .nvme_size = "8G" },
	                                 "Writing store"),
	             0);
	SYSTEM_ZCTL(harness.socket_path, words, 1, "status");
	system_expect_text(words, ") is starting: it recovers its stores");
	cr_assert_eq(harness_halt(&harness), 0);
	SYSTEM_ZCTL(harness.socket_path, words, 1, "status");
	system_expect_text(words, "no zinfd listens at");
	(void)snprintf(path, sizeof(path), "%s/store", harness.directory);
	cr_assert_eq(access(path, F_OK), -1);
	(void)snprintf(path, sizeof(path), "%s/store.zinf-preparing", harness.directory);
	cr_assert_eq(access(path, F_OK), -1);
	harness_remove(&harness);
}

Test(stop, without_ever_a_client_leaves_nothing_behind)
{
	struct harness harness;

	system_start(&harness, &(struct harness_options){ .nvme_size = "16M" });
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(stop, a_socket_that_was_passed_is_used_and_left)
{
	struct harness harness;
	struct trainer_settings settings;
	struct stat status;
	struct ranks ranks;

	system_start(&harness,
	             &(struct harness_options){ .nvme_size = "32M", .is_activated = true });
	settings = settings_of(&harness, 2);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	cr_assert_eq(harness_halt(&harness), 0);
	cr_assert_eq(stat(harness.socket_path, &status), 0, "it is the manager's to remove");
	cr_assert_eq(harness_restart(&harness), 0);
	cr_assert_eq(harness_stop(&harness), 0);
}
