/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no public function of libzinf touches a NULL object or a NULL pointer that it writes to;
 * each answers -EINVAL with a sentence. Method: a table of calls, those without an object each in a
 * process of its own, as a fault would end it; the daemon is the fake one, which none of them asks.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fake/fake_job.h"
#include "zinf/coll.h"
#include "zinf/deepspeed.h"
#include "zinf/grad.h"
#include "zinf/lr.h"
#include "zinf/replica.h"
#include "zinf/scaler.h"
#include "zinf/snapshot.h"
#include "zinf/tensor.h"

/* What calls point to; none of it matters. */
static char buffer[4096], text[256];
static uint64_t counts[4] = { 1, 1, 1, 1 };
static uint32_t one;
static int32_t member;
static int64_t step;
static size_t bytes;
static double scale;
static float values[4];
static bool is_done;
static void *data;
static const void *place;
static zinf_group group;
static zinf_ticket ticket;
static struct zinf *made;
static struct zinf_options attach = ZINF_OPTIONS_INIT;
static struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
static struct zinf_snapshot_options snapshot = ZINF_SNAPSHOT_OPTIONS_INIT;
static struct zinf_coll_p2p p2p;
static struct zinf_deepspeed *deepspeed;
static struct zinf_deepspeed_facts facts;
static struct zinf_lr_options lr;
static struct zinf_lr_value lr_value;
static enum zinf_lr_kind lr_kind;
static struct zinf_plateau plateau;
static struct zinf_plateau_options plateau_options;
static struct zinf_replicas *replicas;
static struct zinf_scaler scaler;
static struct zinf_scaler_options scaler_options;

struct row {
	const char *words;
	int (*call)(struct zinf *z);
};
/* One call of a table; @z: the object. */
#define CALL(name, expression)            \
	static int name(struct zinf *z)   \
	{                                 \
		(void)z;                  \
		return (int)(expression); \
	}                                 \
	static const char name##_words[] = #expression;
#define ROW(name)                  \
	{                          \
		name##_words, name \
	}

/* ---- a NULL object ---- */

CALL(object_0, zinf_coll_open(z, 1 << 20))
CALL(object_1, zinf_coll_alloc(z, 64, &data))
CALL(object_2, zinf_coll_free(z, buffer))
CALL(object_3, zinf_coll_group(z, &one, 1, NULL, &group))
CALL(object_3n, zinf_coll_group_named(z, "g", &one, 1, NULL, &group))
CALL(object_4, zinf_coll_group_free(z, 1))
CALL(object_5, zinf_coll_abort(z, 0, "why"))
CALL(object_6, zinf_coll_group_rank(z, 0, &member))
CALL(object_7, zinf_coll_group_size(z, 0, &one))
CALL(object_8, zinf_coll_all_reduce(z, buffer, buffer, 1, ZINF_F32, ZINF_SUM, NULL))
CALL(object_9, zinf_coll_reduce(z, buffer, buffer, 1, ZINF_F32, ZINF_SUM, 0, NULL))
CALL(object_10, zinf_coll_reduce_scatter(z, buffer, buffer, 1, ZINF_F32, ZINF_SUM, NULL))
CALL(object_11, zinf_coll_all_gather(z, buffer, buffer, 1, ZINF_F32, NULL))
CALL(object_12, zinf_coll_broadcast(z, buffer, 1, ZINF_F32, 0, NULL))
CALL(object_13, zinf_coll_gather(z, buffer, buffer, 1, ZINF_F32, 0, NULL))
CALL(object_14, zinf_coll_scatter(z, buffer, buffer, 1, ZINF_F32, 0, NULL))
CALL(object_15, zinf_coll_all_to_all(z, buffer, buffer, 1, ZINF_F32, NULL))
CALL(object_16, zinf_coll_all_to_allv(z, buffer, counts, buffer, counts, ZINF_F32, NULL))
CALL(object_17, zinf_coll_barrier(z, NULL))
CALL(object_18, zinf_coll_send(z, buffer, 1, ZINF_F32, 0, NULL))
CALL(object_19, zinf_coll_recv(z, buffer, 1, ZINF_F32, 0, NULL))
CALL(object_20, zinf_coll_batch(z, &p2p, 1, NULL))
CALL(object_21, zinf_grad_done(z, 0))
CALL(object_22, zinf_no_sync_begin(z))
CALL(object_23, zinf_no_sync_end(z))
CALL(object_24, zinf_join(z, false))
CALL(object_25, zinf_snapshot(z, &snapshot, &step))
CALL(object_26, zinf_tensor_open(z, 1 << 20))
CALL(object_27, zinf_tensor_alloc(z, 0, 64, &data))
CALL(object_28, zinf_tensor_put(z, 0, buffer, 64, &ticket))
CALL(object_29, zinf_tensor_prefetch(z, 0, &ticket))
CALL(object_30, zinf_tensor_get(z, 0, buffer, 64, &ticket))
CALL(object_31, zinf_tensor_map(z, 0, &place, &bytes))
CALL(object_32, zinf_tensor_unmap(z, 0))
CALL(object_33, zinf_tensor_free(z, 0))
CALL(object_34, zinf_destroy_job(z))
CALL(object_35, zinf_ping(z))
CALL(object_36, zinf_event_fd(z))
CALL(object_37, zinf_dp_group_add(z, "g", &one, 1, &one))
CALL(object_38, zinf_unit_add(z, "u", &one))
CALL(object_39, zinf_param_add(z, "p", 1, counts, &one))
CALL(object_40, zinf_param_group(z, 0, 0))
CALL(object_41, zinf_load(z, "job/name"))
CALL(object_42, zinf_materialize(z))
CALL(object_43, zinf_rank(z))
CALL(object_44, zinf_world_size(z))
CALL(object_45, (int)zinf_committed_step(z))
CALL(object_46, (int)zinf_update_count(z))
CALL(object_47, zinf_loss_scale(z, &scale))
CALL(object_48, zinf_param_write_begin(z, 0))
CALL(object_49, zinf_param_write_end(z, 0, 0))
CALL(object_64, zinf_param_write_keep(z, 0, 0))
CALL(object_65, zinf_state_read(z, 0, ZINF_STATE_EXP_AVG, values, 1))
CALL(object_66, zinf_state_write(z, 0, ZINF_STATE_EXP_AVG, values, 1, 0))
CALL(object_67, zinf_update_count_set(z, 1, 0, 0))
CALL(object_50, zinf_commit(z, NULL, 0))
CALL(object_51, zinf_blob_get(z, buffer, 64, &bytes))
CALL(object_52, zinf_unshard(z, 0))
CALL(object_53, zinf_reshard(z, 0))
CALL(object_54, zinf_prefetch(z, 0))
CALL(object_55, zinf_grad_acquire(z, 0))
CALL(object_56, zinf_reduce(z, 0))
CALL(object_57, zinf_step_begin(z, &options))
CALL(object_58, zinf_step(z, NULL, 0, &ticket))
CALL(object_59, zinf_wait(z, 1, NULL))
CALL(object_60, zinf_wait_for(z, 1, 1, NULL))
CALL(object_61, zinf_test(z, 1, &is_done))
CALL(object_62, zinf_cancel(z, 1))
CALL(object_63, zinf_barrier(z))
static const struct row object_rows[] = {
	ROW(object_0),  ROW(object_1),  ROW(object_2),  ROW(object_3),  ROW(object_4),
	ROW(object_5),  ROW(object_6),  ROW(object_7),  ROW(object_8),  ROW(object_9),
	ROW(object_10), ROW(object_11), ROW(object_12), ROW(object_13), ROW(object_14),
	ROW(object_15), ROW(object_16), ROW(object_17), ROW(object_18), ROW(object_19),
	ROW(object_20), ROW(object_21), ROW(object_22), ROW(object_23), ROW(object_24),
	ROW(object_25), ROW(object_26), ROW(object_27), ROW(object_28), ROW(object_29),
	ROW(object_30), ROW(object_31), ROW(object_32), ROW(object_33), ROW(object_34),
	ROW(object_35), ROW(object_36), ROW(object_37), ROW(object_38), ROW(object_39),
	ROW(object_40), ROW(object_41), ROW(object_42), ROW(object_43), ROW(object_44),
	ROW(object_45), ROW(object_46), ROW(object_47), ROW(object_48), ROW(object_49),
	ROW(object_50), ROW(object_51), ROW(object_52), ROW(object_53), ROW(object_54),
	ROW(object_55), ROW(object_56), ROW(object_57), ROW(object_58), ROW(object_59),
	ROW(object_60), ROW(object_61), ROW(object_62), ROW(object_63), ROW(object_64),
	ROW(object_65), ROW(object_66), ROW(object_67), ROW(object_3n),
};

/* ---- a NULL argument ---- */

CALL(argument_0, zinf_coll_alloc(z, 64, NULL))
CALL(argument_1, zinf_coll_group(z, &one, 1, NULL, NULL))
CALL(argument_1n, zinf_coll_group_named(z, NULL, &one, 1, NULL, &group))
CALL(argument_1o, zinf_coll_group_named(z, "g", &one, 1, NULL, NULL))
CALL(argument_2, zinf_coll_group_rank(z, 0, NULL))
CALL(argument_3, zinf_coll_group_size(z, 0, NULL))
CALL(argument_7, zinf_coll_all_to_allv(z, buffer, NULL, buffer, counts, ZINF_F32, NULL))
CALL(argument_8, zinf_coll_all_to_allv(z, buffer, counts, buffer, NULL, ZINF_F32, NULL))
CALL(argument_11, zinf_coll_batch(z, NULL, 1, NULL))
CALL(argument_12, zinf_tensor_alloc(z, 0, 64, NULL))
CALL(argument_13, zinf_tensor_put(z, 0, buffer, 64, NULL))
CALL(argument_14, zinf_tensor_prefetch(z, 0, NULL))
CALL(argument_15, zinf_tensor_get(z, 0, NULL, 64, &ticket))
CALL(argument_16, zinf_tensor_get(z, 0, buffer, 64, NULL))
CALL(argument_17, zinf_tensor_map(z, 0, NULL, &bytes))
CALL(argument_18, zinf_tensor_map(z, 0, &place, NULL))
CALL(argument_19, zinf_dp_group_add(z, NULL, &one, 1, &one))
CALL(argument_20, zinf_dp_group_add(z, "g", NULL, 1, &one))
CALL(argument_21, zinf_dp_group_add(z, "g", &one, 1, NULL))
CALL(argument_22, zinf_unit_add(z, NULL, &one))
CALL(argument_23, zinf_unit_add(z, "u", NULL))
CALL(argument_24, zinf_param_add(z, NULL, 1, counts, &one))
CALL(argument_25, zinf_param_add(z, "p", 1, NULL, &one))
CALL(argument_26, zinf_param_add(z, "p", 1, counts, NULL))
CALL(argument_27, zinf_load(z, NULL))
CALL(argument_28, zinf_loss_scale(z, NULL))
CALL(argument_29, zinf_commit(z, NULL, 64))
CALL(argument_30, zinf_blob_get(z, NULL, 64, &bytes))
CALL(argument_31, zinf_blob_get(z, buffer, 64, NULL))
CALL(argument_32, zinf_step_begin(z, NULL))
CALL(argument_33, zinf_step(z, NULL, 64, &ticket))
CALL(argument_34, zinf_step(z, NULL, 0, NULL))
CALL(argument_35, zinf_test(z, 1, NULL))
static const struct row argument_rows[] = {
	ROW(argument_0),  ROW(argument_1),  ROW(argument_1n), ROW(argument_1o), ROW(argument_2),
	ROW(argument_3),  ROW(argument_7),  ROW(argument_8),  ROW(argument_11), ROW(argument_12),
	ROW(argument_13), ROW(argument_14), ROW(argument_15), ROW(argument_16), ROW(argument_17),
	ROW(argument_18), ROW(argument_19), ROW(argument_20), ROW(argument_21), ROW(argument_22),
	ROW(argument_23), ROW(argument_24), ROW(argument_25), ROW(argument_26), ROW(argument_27),
	ROW(argument_28), ROW(argument_29), ROW(argument_30), ROW(argument_31), ROW(argument_32),
	ROW(argument_33), ROW(argument_34), ROW(argument_35),
};

/* ---- calls without an object ---- */

CALL(loose_0, zinf_attach(NULL, &made))
CALL(loose_1, zinf_attach(&attach, NULL))
CALL(loose_2, zinf_strategy_by_name(NULL, &attach))
CALL(loose_3, zinf_strategy_by_name("ddp", NULL))
CALL(loose_4, zinf_deepspeed_read(NULL, 4, &facts, text, sizeof(text), &deepspeed))
CALL(loose_5, zinf_deepspeed_read("{}", 2, NULL, text, sizeof(text), &deepspeed))
CALL(loose_6, zinf_deepspeed_read("{}", 2, &facts, text, sizeof(text), NULL))
CALL(loose_7, zinf_deepspeed_open(NULL, &facts, text, sizeof(text), &deepspeed))
CALL(loose_8, zinf_deepspeed_open("/dev/null", NULL, text, sizeof(text), &deepspeed))
CALL(loose_9, zinf_deepspeed_open("/dev/null", &facts, text, sizeof(text), NULL))
CALL(loose_10, zinf_lr_defaults(ZINF_LR_CONSTANT, NULL))
CALL(loose_11, zinf_lr_check(NULL, text, sizeof(text)))
CALL(loose_12, zinf_lr_at(NULL, 0, &lr_value))
CALL(loose_13, zinf_lr_at(&lr, 0, NULL))
CALL(loose_14, zinf_lr_find(NULL, &lr_kind))
CALL(loose_15, zinf_lr_find("constant", NULL))
CALL(loose_16, zinf_plateau_init(NULL, &plateau_options, 1))
CALL(loose_17, zinf_plateau_init(&plateau, NULL, 1))
CALL(loose_18, zinf_replicas_attach(NULL, 2, &replicas))
CALL(loose_19, zinf_replicas_attach(&attach, 2, NULL))
CALL(loose_20, zinf_replicas_run(NULL, NULL, NULL))
CALL(loose_21, zinf_scaler_defaults(ZINF_SCALER_TORCH, NULL))
CALL(loose_22, zinf_scaler_check(NULL, text, sizeof(text)))
CALL(loose_23, zinf_scaler_update(NULL, &scaler_options, false))
CALL(loose_24, zinf_scaler_update(&scaler, NULL, false))
static const struct row loose_rows[] = {
	ROW(loose_0),  ROW(loose_1),  ROW(loose_2),  ROW(loose_3),  ROW(loose_4),
	ROW(loose_5),  ROW(loose_6),  ROW(loose_7),  ROW(loose_8),  ROW(loose_9),
	ROW(loose_10), ROW(loose_11), ROW(loose_12), ROW(loose_13), ROW(loose_14),
	ROW(loose_15), ROW(loose_16), ROW(loose_17), ROW(loose_18), ROW(loose_19),
	ROW(loose_20), ROW(loose_21), ROW(loose_22), ROW(loose_23), ROW(loose_24),
};

/* In a child: 0 when the call answers as it should. */
static int judge(const struct row *row, struct zinf *zinf, bool is_worded)
{
	int r = row->call(zinf);

	if (r != -EINVAL)
		return 1;
	return is_worded && !zinf_error_text(zinf)[0] ? 2 : 0;
}

static void check(const struct row *rows, size_t count, struct zinf *zinf, bool is_worded)
{
	for (size_t i = 0; i < count; i++) {
		int status = 0;
		pid_t pid;

		if (zinf) { /* Its memory is not a child's. */
			status = judge(&rows[i], zinf, is_worded);
			cr_expect_eq(status, 0, "%s: %s", rows[i].words,
			             status == 1 ? "not -EINVAL" : "no words");
			continue;
		}
		pid = fork();
		cr_assert_geq(pid, 0);
		if (!pid) {
			(void)signal(SIGSEGV, SIG_DFL);
			(void)signal(SIGABRT, SIG_DFL);
			_exit(judge(&rows[i], zinf, is_worded));
		}
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_expect(!WIFSIGNALED(status), "%s: signal %d", rows[i].words, WTERMSIG(status));
		cr_expect(WIFSIGNALED(status) || WEXITSTATUS(status) != 1, "%s: not -EINVAL",
		          rows[i].words);
		cr_expect(WIFSIGNALED(status) || WEXITSTATUS(status) != 2, "%s: no words",
		          rows[i].words);
	}
}
#define CHECK(rows, zinf, is_worded) check(rows, sizeof(rows) / sizeof(*rows), zinf, is_worded)

TestSuite(null, .timeout = 60);

Test(null, object_that_is_null_is_refused)
{
	CHECK(object_rows, NULL, true);
	cr_assert_null(zinf_param_data(NULL, 0));
	cr_assert_null(zinf_grad_data(NULL, 0));
	zinf_detach(NULL);
}

Test(null, argument_that_is_null_is_refused_before_and_after_materialize)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING });

	CHECK(argument_rows, job.zinf, true);
	fake_job_materialize(&job);
	CHECK(argument_rows, job.zinf, true);
	fake_job_leave(&job);
}

Test(null, call_without_an_object_refuses_null)
{
	CHECK(loose_rows, NULL, false);
	zinf_deepspeed_free(NULL);
	zinf_replicas_detach(NULL);
	cr_assert_null(zinf_replicas_get(NULL, 0));
	cr_assert_not_null(zinf_replicas_error(NULL));
}

Test(null, parameter_without_a_name_is_told_so)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ 0 });

	cr_assert_eq(zinf_param_add(job.zinf, NULL, 1, counts, &one), -EINVAL);
	expect_text(job.zinf, "zinf_param_add: name is NULL");
	fake_job_leave(&job);
}
