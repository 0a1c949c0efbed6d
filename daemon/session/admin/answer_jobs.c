/* SPDX-License-Identifier: Apache-2.0 */
/* `jobs`: what zero reports of each, as JSON (docs/ANSWERS.md). Floor 6, shard thread. */
#include "daemon/session/admin/answer_jobs.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "daemon/session/admin/answer_coll.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/sess.h"

struct job_answer {
	json_t *jobs;
	uid_t uid;
	bool is_all;
	bool wants_collectives;
};

static json_t *answer_held(const struct zero_job_report *report)
{
	const struct {
		const char *plane;
		uint64_t cpu_bytes, nvme_bytes;
	} planes[] = {
		{ "param", report->param_cpu_bytes, report->param_nvme_bytes },
		{ "grad", report->grad_cpu_bytes, 0 },
		{ "reduced_grad", report->accum_cpu_bytes, 0 },
		{ "state", report->state_cpu_bytes, report->state_nvme_bytes },
		{ "staging", report->staging_cpu_bytes, 0 },
		{ "collectives", report->coll_cpu_bytes, 0 },
	};
	json_t *held = json_object();

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		json_t *plane = json_object();

		answer_number(plane, "cpu_bytes", planes[i].cpu_bytes);
		answer_number(plane, "nvme_bytes", planes[i].nvme_bytes);
		answer_put(held, planes[i].plane, plane);
	}
	return held;
}

/* What the strategy's table says, of each rank. */
static json_t *answer_logical(const struct zero_job_report *report)
{
	json_t *logical = json_array();

	for (uint32_t i = 0; i < report->logical_count; i++) {
		const struct zi_plane_bytes *bytes = &report->logical[i];
		json_t *rank = json_object();

		answer_number(rank, "rank", i);
		answer_number(rank, "param", bytes->param);
		answer_number(rank, "param_live", bytes->param_live);
		answer_number(rank, "grad", bytes->grad);
		answer_number(rank, "grad_buckets", bytes->grad_buckets);
		answer_number(rank, "reduced_grad", bytes->accum);
		answer_number(rank, "state", bytes->state);
		(void)json_array_append_new(logical, rank);
	}
	return logical;
}

static json_t *answer_config(const struct zi_job_config *config)
{
	json_t *object = json_object();

	answer_word(object, "param_dtype", zi_dtype_name((enum zi_dtype)config->param_dtype));
	answer_word(object, "grad_dtype", zi_dtype_name((enum zi_dtype)config->grad_dtype));
	answer_word(object, "optimizer", zi_optimizer_name((enum zi_optimizer)config->optimizer));
	answer_word(object, "grad_reduction", zi_schedule_name((enum zi_schedule)config->schedule));
	answer_word(object, "offload_optimizer",
	            zi_offload_name((enum zi_offload)config->offload_optimizer));
	answer_word(object, "offload_param",
	            zi_offload_name((enum zi_offload)config->offload_param));
	answer_word(object, "durability",
	            config->durability == ZI_DURABILITY_POWER ? "power" : "process");
	answer_number(object, "io_weight",
	              config->io_weight ? config->io_weight : ZI_IO_WEIGHT_DEFAULT);
	answer_number(object, "resident_bytes", config->resident_bytes);
	answer_number(object, "staging_bytes", config->staging_bytes);
	answer_number(object, "param_budget_bytes", config->param_budget_bytes);
	answer_number(object, "commit_interval", ZI_MAX(config->commit_interval, 1u));
	answer_number(object, "snapshot_interval", config->snapshot_interval);
	answer_number(object, "snapshot_keep", config->snapshot_keep);
	return object;
}

static json_t *answer_pool(const struct zero_job_report *report)
{
	json_t *object = json_object();

	answer_number(object, "budget_bytes", report->pool.budget_bytes);
	answer_number(object, "resident_bytes", report->pool.resident_bytes);
	answer_number(object, "pinned_bytes", report->pool.pinned_bytes);
	answer_number(object, "read_bytes", report->pool.read_bytes);
	answer_number(object, "hits", report->pool.hit_count);
	answer_number(object, "late", report->pool.late_count);
	answer_number(object, "misses", report->pool.miss_count);
	answer_number(object, "evictions", report->pool.evicted_count);
	answer_number(object, "order_changes", report->pool.order_change_count);
	return object;
}

static json_t *answer_tensors(const struct zero_job_report *report)
{
	json_t *object = json_object();

	answer_number(object, "budget_bytes", report->tensors.budget_bytes);
	answer_number(object, "count", report->tensors.count);
	answer_number(object, "bytes", report->tensors.bytes);
	answer_number(object, "resident_bytes", report->tensors.resident_bytes);
	answer_number(object, "stored_bytes", report->tensors.stored_bytes);
	answer_number(object, "read_bytes", report->tensors.read_bytes);
	answer_number(object, "write_bytes", report->tensors.write_bytes);
	answer_number(object, "evictions", report->tensors.evicted_count);
	return object;
}

static json_t *answer_step(const struct zi_step_stats *stats)
{
	json_t *object = json_object();

	answer_number(object, "step", stats->step);
	answer_put(object, "is_skipped", json_boolean(stats->is_skipped));
	answer_number(object, "update_count", stats->update_count);
	/* JSON knows no NaN: a norm that was not taken is null. */
	answer_put(object, "norm",
	           stats->norm == stats->norm ? json_real(stats->norm) : json_null());
	answer_put(object, "clip",
	           stats->clip == stats->clip ? json_real(stats->clip) : json_null());
	answer_number(object, "read_bytes", stats->read_bytes);
	answer_number(object, "write_bytes", stats->write_bytes);
	answer_number(object, "step_ns", stats->step_ns);
	answer_number(object, "grad_wait_ns", stats->grad_wait_ns);
	answer_number(object, "norm_wait_ns", stats->norm_wait_ns);
	answer_number(object, "io_read_ns", stats->io_read_ns);
	answer_number(object, "io_write_ns", stats->io_write_ns);
	answer_number(object, "cpu_ns", stats->cpu_ns);
	answer_number(object, "commit_ns", stats->commit_ns);
	answer_put(object, "loss_scale", json_real(stats->loss_scale));
	answer_put(object, "nonfinite_rank",
	           stats->culprit == UINT32_MAX ? json_null() : json_integer(stats->culprit));
	return object;
}

static json_t *answer_flush(const struct zero_job_report *report)
{
	json_t *flush = json_object();

	answer_word(flush, "path", report->flush_path);
	answer_number(flush, "waiting_ns", report->flush_ns);
	answer_put(flush, "is_late", json_boolean(report->is_flush_late));
	return flush;
}

static json_t *answer_ranks(const struct zero_job_report *report)
{
	json_t *ranks = json_array();

	for (uint32_t i = 0; i < report->world_size && i < ZI_WORLD_MAX; i++) {
		json_t *rank = json_object();

		answer_number(rank, "rank", i);
		answer_put(rank, "is_attached", json_boolean(report->ranks[i].is_attached));
		answer_put(rank, "pid", json_integer(report->ranks[i].pid));
		answer_word(rank, "doing", report->ranks[i].doing ? report->ranks[i].doing : "");
		answer_number(rank, "doing_ns", report->ranks[i].doing_ns);
		answer_number(rank, "grad_bytes", report->ranks[i].grad_bytes);
		answer_number(rank, "write_buffer_bytes", report->ranks[i].copy_bytes);
		answer_number(rank, "tensor_bytes", report->ranks[i].tensor_bytes);
		if (report->node_count > 1) {
			answer_number(rank, "node", report->ranks[i].node);
			answer_word(rank, "host", report->ranks[i].host);
		}
		(void)json_array_append_new(ranks, rank);
	}
	return ranks;
}

static void answer_job(void *arg, const struct zero_job_report *report)
{
	struct job_answer *answer = arg;
	json_t *job;

	if (!answer->is_all && report->uid != answer->uid)
		return;
	job = json_object();
	answer_word(job, "name", report->name);
	answer_number(job, "uid", report->uid);
	answer_word(job, "phase", report->phase);
	answer_put(job, "refusal", report->refusal ? json_string(report->refusal) : json_null());
	answer_word(job, "incarnation", report->incarnation);
	answer_number(job, "incarnation_number", report->incarnation_number);
	answer_number(job, "world_size", report->world_size);
	answer_number(job, "attached", report->rank_count);
	answer_number(job, "nodes", report->node_count);
	answer_number(job, "node", report->node);
	answer_put(job, "committed_step", json_integer(report->committed_step));
	answer_put(job, "current_step", json_integer(report->current_step));
	answer_put(job, "lost_step",
	           report->lost_step < 0 ? json_null() : json_integer(report->lost_step));
	answer_number(job, "params", report->param_count);
	answer_number(job, "units", report->unit_count);
	answer_number(job, "subgroups", report->subgroup_count);
	answer_number(job, "elements", report->element_count);
	answer_number(job, "padded_elements", report->padded_count);
	answer_put(job, "config", answer_config(&report->config));
	answer_put(job, "strategy",
	           report->is_training_known
	                   ? json_string(zi_strategy_name(report->training.strategy))
	                   : json_null());
	answer_put(job, "shard_size",
	           report->is_training_known ? json_integer(report->training.shard_size)
	                                     : json_null());
	answer_put(job, "is_forward_only",
	           json_boolean(zi_training_is_forward_only(&report->training)));
	answer_put(job, "has_state", json_boolean(!report->is_stateless));
	answer_put(job, "logical", answer_logical(report));
	answer_put(job, "held", answer_held(report));
	answer_put(job, "param_pool", report->has_pool ? answer_pool(report) : json_null());
	answer_put(job, "tensors",
	           report->tensors.budget_bytes ? answer_tensors(report) : json_null());
	answer_number(job, "reserved_nvme_bytes", report->reserved_nvme_bytes);
	answer_number(job, "gpu_bytes", report->gpu_bytes);
	answer_number(job, "read_bytes", report->read_bytes);
	answer_number(job, "write_bytes", report->write_bytes);
	answer_number(job, "total_read_bytes", report->total_read_bytes);
	answer_number(job, "total_write_bytes", report->total_write_bytes);
	answer_number(job, "today_write_bytes", report->today_write_bytes);
	answer_put(job, "is_paced", json_boolean(report->is_paced));
	answer_put(job, "flush", report->flush_path ? answer_flush(report) : json_null());
	answer_number(job, "snapshots_failed", report->unkept_count);
	answer_put(job, "snapshot_failure",
	           report->unkept ? json_string(report->unkept) : json_null());
	answer_put(job, "last_step",
	           report->last_step.step ? answer_step(&report->last_step) : json_null());
	answer_put(job, "ranks", answer_ranks(report));
	if (answer->wants_collectives)
		answer_put(job, "collectives", sess_answer_coll(report));
	(void)json_array_append_new(answer->jobs, job);
}

/* "no job 'x'; existing jobs: a, b" with those that this uid may see, cut where the text ends. */
static void name_jobs(const json_t *jobs, struct sess_inquiry *inquiry)
{
	char names[ZI_TEXT_BYTES] = "none";
	size_t used_bytes = 0;
	size_t index;
	json_t *job;

	json_array_foreach(jobs, index, job)
	{
		const char *name = json_string_value(json_object_get(job, "name"));

		if (used_bytes + ZI_NAME_BYTES >= sizeof(names))
			break;
		used_bytes += (size_t)snprintf(names + used_bytes, sizeof(names) - used_bytes,
		                               "%s%s", index ? ", " : "", name ? name : "");
	}
	zi_text_set(&inquiry->text, "no job '%s'; existing jobs: %s", inquiry->job, names);
}

/**
 * sess_answer_jobs() - all jobs that @uid may see, or the one that was asked for
 *
 * Return: an array, the caller's; NULL: inquiry->result and ->text say why. Context: shard thread.
 */
json_t *sess_answer_jobs(struct sess_shard *shard, uid_t uid, struct sess_inquiry *inquiry)
{
	struct job_answer answer = {
		.jobs = json_array(),
		.uid = uid,
		.is_all = uid == 0 || uid == geteuid(),
		.wants_collectives = inquiry->wants_collectives,
	};
	bool is_found = zero_report(shard->zero, inquiry->has_job ? inquiry->job : NULL, answer_job,
	                            &answer);

	/* A job of another uid is not there for this one. */
	if (inquiry->has_job && (!is_found || !json_array_size(answer.jobs))) {
		(void)zero_report(shard->zero, NULL, answer_job,
		                  &answer); /* Finds all there are. */
		name_jobs(answer.jobs, inquiry);
		json_decref(answer.jobs);
		inquiry->result = err_origin(-ENOENT);
		return NULL;
	}
	return answer.jobs;
}
