/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the model arrives at the daemon as it was told, its memory appears where both sides compute
 * it to be, parameters keep their address while they are written, and no false figure is believed.
 * Method: the fake daemon, honest and lying; memory is really written and read. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fake/fake_job.h"

static const struct fake_daemon_options honest = { 0 };

Test(model, layout_arrives_in_order)
{
	struct fake_job job = fake_job_attach(&honest);

	fake_job_materialize(&job);
	cr_assert_str_eq(fake_daemon_layout(job.fake), "a a.w a.s b b.w");
	cr_assert_eq(job.unit[1], 1);
	cr_assert_eq(job.param[2], 2);
	fake_job_leave(&job);
}

Test(model, large_layout_takes_several_packets)
{
	struct fake_job job = fake_job_attach(&honest);
	uint32_t unit, param;
	char name[32];

	for (uint32_t i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "u%u", i);
		cr_assert_eq(zinf_unit_add(job.zinf, name, &unit), 0);
		for (uint32_t k = 0; k < 100; k++)
			cr_assert_eq(zinf_param_add(job.zinf, "p", 0, NULL, &param), 0);
	}
	cr_assert_eq(param, 999);
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_LAYOUT)), 3);
	cr_assert_not_null(zinf_param_data(job.zinf, 999));
	cr_assert_null(zinf_param_data(job.zinf, 1000));
	fake_job_leave(&job);
}

Test(model, units_begin_on_slots_and_parameters_lie_packed)
{
	const uint64_t slots[] = { 4096, 65536, 2 << 20 };

	for (size_t i = 0; i < 3; i++) {
		struct fake_job job =
			fake_job_attach(&(struct fake_daemon_options){ .slot_bytes = slots[i] });
		const char *param[3];
		char *grad[3];

		fake_job_materialize(&job);
		for (int k = 0; k < 3; k++) {
			param[k] = zinf_param_data(job.zinf, job.param[k]);
			grad[k] = zinf_grad_data(job.zinf, job.param[k]);
		}
		/* Unit a: 16 elements, padded to 4096 × 4 bytes. */
		cr_assert_eq((uintptr_t)param[0] % 4096, 0);
		cr_assert_eq(param[1] - param[0], 15 * 4);
		cr_assert_eq((uint64_t)(param[2] - param[0]), slots[i] < 16384 ? 16384 : slots[i]);
		cr_assert_eq(grad[1] - grad[0], 15 * 4);
		cr_assert_eq(grad[2] - grad[0], param[2] - param[0]);
		cr_assert_eq(*param[2], 1, "what the daemon put there");
		memset(grad[2], 3, 5000 * 4);
		fake_job_leave(&job);
	}
}

Test(model, parameters_are_read_only)
{
	struct fake_job job = fake_job_attach(&honest);
	volatile char *data;
	int status;
	pid_t pid;

	fake_job_materialize(&job);
	data = (volatile char *)zinf_param_data(job.zinf, 0);
	pid = fork(); /* the mapping is not inherited either: both ways it dies */
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		data[0] = 1;
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_not(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	fake_job_leave(&job);
}

static void expect_unit_writable(struct fake_job *job, int unit, int param)
{
	const char *before = zinf_param_data(job->zinf, job->param[param]);
	const char *after;

	cr_assert_eq(zinf_param_write_begin(job->zinf, job->unit[unit]), 0, "%s",
	             zinf_error_text(job->zinf));
	after = zinf_param_data(job->zinf, job->param[param]);
	cr_assert_eq(before, after, "a parameter keeps its address");
	cr_assert_eq(after[0], 1, "the present values");
	memset((char *)after, 7 + unit, 16);
	cr_assert_eq(zinf_param_write_begin(job->zinf, job->unit[unit]), -EALREADY);
	cr_assert_eq(zinf_param_write_end(job->zinf, job->unit[unit], 0), 0);
	cr_assert_eq(after[0], 7 + unit, "as the daemon stored it");
	cr_assert_eq(after[16], 1);
}

Test(model, written_parameters_come_back_read_only_at_their_address)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ .slot_bytes = 65536 });
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	fake_job_materialize(&job);
	expect_unit_writable(&job, 1, 2);
	expect_unit_writable(&job, 0, 0);
	cr_assert_eq(((const char *)zinf_param_data(job.zinf, job.param[2]))[0], 8);
	cr_assert_eq(zinf_param_write_end(job.zinf, 0, 0), -EINVAL, "the root has not begun");
	expect_text(job.zinf, "zinf_param_write_begin() first");
	cr_assert_eq(zinf_param_write_end(job.zinf, 0, 1), -EINVAL);
	expect_text(job.zinf, "root 1 of a world of 1");
	cr_assert_eq(zinf_param_write_end(job.zinf, 0, -1), -EINVAL);
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(zinf_param_write_begin(job.zinf, 0), -EBUSY);
	fake_job_leave(&job);
}

Test(model, detach_while_writing_leaves_nothing)
{
	struct fake_job job = fake_job_attach(&honest);

	fake_job_materialize(&job);
	cr_assert_eq(zinf_param_write_begin(job.zinf, 0), 0);
	fake_job_leave(&job);
}

Test(model, staging_copy_that_is_too_short_is_eproto)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .lie = FAKE_LIE_STAGING });

	fake_job_materialize(&job);
	cr_assert_eq(zinf_param_write_begin(job.zinf, 1), -EPROTO);
	expect_text(job.zinf, "staging");
	fake_job_leave(&job);
}

Test(model, false_figures_are_eproto)
{
	const enum fake_lie lies[] = { FAKE_LIE_SLOT, FAKE_LIE_PARAM_MORE, FAKE_LIE_PARAM_LESS,
		                       FAKE_LIE_PARAM_SHORT_FILE, FAKE_LIE_STEP };

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct fake_job job =
			fake_job_attach(&(struct fake_daemon_options){ .lie = lies[i] });

		fake_job_add(&job);
		cr_expect_eq(zinf_materialize(job.zinf), -EPROTO, "%zu", i);
		expect_text(job.zinf, "broke the protocol");
		cr_expect_null(zinf_param_data(job.zinf, 0));
		cr_expect_eq(zinf_ping(job.zinf), -EPROTO, "the session is over");
		fake_job_leave(&job);
	}
}

Test(model, mistakes_in_the_model_are_named)
{
	struct fake_job job = fake_job_attach(&honest);
	const uint64_t zero[] = { 3, 0 }, huge[] = { 1ull << 40, 1ull << 40 };
	char name[128];
	uint32_t index = 77;

	memset(name, 'a', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	cr_assert_eq(zinf_materialize(job.zinf), -EINVAL);
	expect_text(job.zinf, "at least one unit");
	cr_assert_eq(zinf_param_add(job.zinf, "w", 0, NULL, &index), -EINVAL);
	expect_text(job.zinf, "zinf_unit_add()");
	cr_assert_eq(zinf_unit_add(job.zinf, name, &index), -EINVAL);
	expect_text(job.zinf, "95 bytes");
	cr_assert_eq(zinf_unit_add(job.zinf, "", &index), -EINVAL);
	cr_assert_eq(zinf_unit_add(job.zinf, NULL, &index), -EINVAL);
	cr_assert_eq(index, 77);
	cr_assert_eq(zinf_unit_add(job.zinf, "u", &index), 0);
	cr_assert_eq(zinf_unit_add(job.zinf, "u", &index), -EINVAL);
	expect_text(job.zinf, "two units are called 'u'");
	cr_assert_eq(zinf_materialize(job.zinf), -EINVAL);
	expect_text(job.zinf, "unit 'u' has no parameter");
	cr_assert_eq(zinf_param_add(job.zinf, "w", 2, zero, &index), -EINVAL);
	expect_text(job.zinf, "dimension of 0");
	cr_assert_eq(zinf_param_add(job.zinf, "w", 2, huge, &index), -EINVAL);
	expect_text(job.zinf, "2^48");
	cr_assert_eq(zinf_param_add(job.zinf, "w", 9, huge, &index), -EINVAL);
	cr_assert_eq(zinf_param_add(job.zinf, "w", 1, NULL, &index), -EINVAL);
	cr_assert_eq(zinf_param_add(job.zinf, "w w", 0, NULL, &index), -EINVAL);
	cr_assert_eq(zinf_unshard(job.zinf, 0), -EINVAL);
	expect_text(job.zinf, "call zinf_materialize() first");
	cr_assert_eq(zinf_param_add(job.zinf, "w", 0, NULL, &index), 0);
	cr_assert_eq(zinf_materialize(job.zinf), 0);
	cr_assert_eq(zinf_unit_add(job.zinf, "v", &index), -EINVAL);
	expect_text(job.zinf, "after zinf_materialize()");
	cr_assert_eq(zinf_materialize(job.zinf), -EINVAL);
	cr_assert_null(zinf_grad_data(job.zinf, 1));
	fake_job_leave(&job);
}

Test(model, refused_layout_keeps_the_text_and_the_session)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){
		.fail_on = FAKE_ON_MESSAGE(ZI_MESSAGE_MATERIALIZE),
		.fail_error = -EINVAL,
		.fail_text = "parameter 'a.w' is 3x5 on rank 0 and 5x3 on rank 1" });

	fake_job_add(&job);
	cr_assert_eq(zinf_materialize(job.zinf), -EINVAL);
	expect_text(job.zinf, "3x5 on rank 0 and 5x3 on rank 1");
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(zinf_committed_step(job.zinf), -1);
	fake_job_leave(&job);
}

Test(model, committed_step_and_blob_come_back)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){
		.committed_step = 41, .blob_bytes = ZINF_BLOB_BYTES });
	static unsigned char buffer[ZINF_BLOB_BYTES];
	size_t bytes = 77;

	cr_assert_eq(zinf_blob_get(job.zinf, NULL, 0, &bytes), -EINVAL);
	fake_job_materialize(&job);
	cr_assert_eq(zinf_committed_step(job.zinf), 41);
	cr_assert_eq(zinf_blob_get(job.zinf, buffer, 100, &bytes), -ENOBUFS);
	expect_text(job.zinf, "65536 bytes, the buffer 100");
	cr_assert_eq(bytes, 77);
	cr_assert_eq(buffer[0], 0);
	cr_assert_eq(zinf_blob_get(job.zinf, NULL, 0, &bytes), 0);
	cr_assert_eq(bytes, ZINF_BLOB_BYTES);
	cr_assert_eq(zinf_blob_get(job.zinf, buffer, sizeof(buffer), &bytes), 0);
	for (uint32_t i = 0; i < sizeof(buffer); i++)
		cr_assert_eq(buffer[i], i % 251);
	fake_job_leave(&job);
}

Test(model, missing_blob_has_no_bytes)
{
	struct fake_job job = fake_job_attach(&honest);
	size_t bytes = 77;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_blob_get(job.zinf, NULL, 0, &bytes), 0);
	cr_assert_eq(bytes, 0);
	fake_job_leave(&job);
}

Test(model, blob_that_is_not_as_long_as_it_says_is_eproto)
{
	const enum fake_lie lies[] = { FAKE_LIE_BLOB_TOTAL, FAKE_LIE_BLOB_HUGE };

	for (size_t i = 0; i < 2; i++) {
		struct fake_job job = fake_job_attach(
			&(struct fake_daemon_options){ .lie = lies[i], .blob_bytes = 100 });
		char buffer[200];
		size_t bytes;

		fake_job_materialize(&job);
		cr_assert_eq(zinf_blob_get(job.zinf, buffer, 200, &bytes), -EPROTO);
		fake_job_leave(&job);
	}
}
