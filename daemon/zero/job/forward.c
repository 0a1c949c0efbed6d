/* SPDX-License-Identifier: Apache-2.0 */
/* See forward.h. In the catalog the flag among the words of training is the job's, whatever its
 * newest start was: what a job has lasts longer than how it was attached to. */
#include "daemon/zero/job/forward.h"

#include <string.h>

#include "common/base/err.h"
#include "common/wire/training.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* As its user calls it; NULL: it is not of a step. */
static const char *step_call(uint16_t opcode)
{
	switch (opcode) {
	case ZI_OP_GRAD_ACQUIRE:
		return "zinf_grad_acquire";
	case ZI_OP_REDUCE:
	case ZI_OP_GRAD_UNUSED:
		return "zinf_reduce";
	case ZI_OP_STEP_BEGIN:
		return "zinf_step_begin";
	case ZI_OP_STEP:
		return "zinf_step";
	case ZI_OP_STEP_OPTIONS:
		return "zinf_step_with";
	case ZI_OP_GRAD_NORM:
		return "zinf_grad_norm";
	case ZI_OP_STEP_DISCARD:
		return "zinf_step_discard";
	case ZERO_OP_STATE_OPEN:
	case ZERO_OP_STATE_READ:
		return "zinf_state_read";
	case ZERO_OP_STATE_WRITE:
		return "zinf_state_write";
	case ZERO_OP_STATE_COUNT:
		return "zinf_update_count_set";
	default:
		return NULL;
	}
}

static const char *change_call(uint16_t opcode)
{
	switch (opcode) {
	case ZERO_OP_WRITE_BEGIN:
		return "zinf_param_write_begin";
	case ZERO_OP_WRITE_END:
		return "zinf_param_write_end";
	case ZI_OP_COMMIT:
		return "zinf_commit";
	default:
		return NULL;
	}
}

/* See forward.h, as are the others. */
int forward_call_check(const struct zero_job *job, uint16_t opcode, struct zi_text *text)
{
	const char *call;

	if (!job_is_forward_only(job))
		return 0;
	call = step_call(opcode);
	if (call)
		return err_origin(zi_text_error(
			text, -EPERM,
			"%s: job '%s' was attached with is_forward_only, so it has no "
			"gradients and no steps: to train, attach without it",
			call, job->name));
	call = job->is_stateless ? NULL : change_call(opcode);
	if (!call)
		return 0;
	return err_origin(zi_text_error(
		text, -EPERM,
		"%s: job '%s' has optimizer state and was attached with is_forward_only, so "
		"its parameters cannot change: use another job for other parameters",
		call, job->name));
}

int forward_start_check(const struct zero_job *job, const struct zi_job_training *training,
                        struct zi_text *text)
{
	bool is_forward_only = zi_training_is_forward_only(training);

	if (!job->is_stored || is_forward_only == job->is_stateless)
		return 0;
	if (!is_forward_only)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"job '%s' was created with is_forward_only and has no optimizer state: "
			"set is_forward_only, or start a new job with its parameters (zctl "
			"export, zctl load)",
			job->name));
	if (job->committed_step >= 0)
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL,
		"job '%s' trains and has committed nothing yet, so is_forward_only finds no "
		"parameters: name another job",
		job->name));
}

void forward_take_config(struct zero_job *job)
{
	uint32_t grad_dtype = job->config.grad_dtype, optimizer = job->config.optimizer;

	job->config = job->group.config;
	job->training = job->group.training;
	job->is_training_known = true;
	if (!job->is_stored) {
		job->is_stateless = job_is_forward_only(job);
	} else if (job_is_forward_only(job)) {
		job->config.grad_dtype = grad_dtype;
		job->config.optimizer = optimizer;
	}
}

bool forward_is_stateless(const struct catalog_job *record)
{
	struct zi_job_training training;

	static_assert(sizeof(training) == sizeof(record->training), "as it came");
	memcpy(&training, record->training, sizeof(training));
	return zi_training_is_forward_only(&training);
}

void forward_put(bool is_stateless, struct catalog_job *record)
{
	struct zi_job_training training;

	memcpy(&training, record->training, sizeof(training));
	training.flags &= ~ZI_TRAINING_FORWARD_ONLY;
	if (is_stateless)
		training.flags |= ZI_TRAINING_FORWARD_ONLY;
	memcpy(record->training, &training, sizeof(training));
}
