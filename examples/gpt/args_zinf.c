/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the ranks, and of what zinfd does for them. */
#include "examples/gpt/args_option.h"
#include "zinf/zinf.h"

static const struct gpt_choice reductions[] = { { "per_step", ZINF_REDUCE_PER_STEP },
	                                        { "per_micro_batch", ZINF_REDUCE_PER_MICRO_BATCH },
	                                        { NULL, 0 } };
static const struct gpt_choice offloads[] = { { "none", ZINF_OFFLOAD_NONE },
	                                      { "cpu", ZINF_OFFLOAD_CPU },
	                                      { "nvme", ZINF_OFFLOAD_NVME },
	                                      { NULL, 0 } };
static const struct gpt_choice durabilities[] = { { "process", ZINF_DURABILITY_PROCESS },
	                                          { "power", ZINF_DURABILITY_POWER },
	                                          { NULL, 0 } };

/* Limits: what the code's integers hold, and what nobody means. */
static const struct gpt_option ranks[] = {
	GPT_NUMBER("ranks", GPT_OPTION_U32, rank_count, 1, ZINF_WORLD_MAX,
	           "N       start N ranks here (1); started by a launcher, be one"),
	GPT_NUMBER("restarts", GPT_OPTION_U32, restart_max, 0, 1e6,
	           "N       start again up to N times when the ranks or the daemon break off (0)"),
	GPT_NUMBER("grace", GPT_OPTION_F64, grace_s, 0, 86400,
	           "SECONDS between SIGTERM and SIGKILL when the ranks are ended (30)"),
	GPT_FLAG("reference", is_reference, "        train in this process, without zinf"),
};
const struct gpt_option_table gpt_options_ranks = GPT_OPTION_TABLE("Ranks", ranks);

static const struct gpt_option zinf[] = {
	GPT_TEXT("strategy", strategy,
	         "NAME    dp, ddp, zero1, zero2, zero3; no_shard, shard_grad_op, full_shard, fsdp, "
	         "hybrid_shard (ddp)"),
	GPT_NUMBER("shard-size", GPT_OPTION_U32, shard_size, 1, ZINF_WORLD_MAX,
	           "N       ranks that share a plane, a divisor of --ranks (all)"),
	GPT_CHOICE("grad-reduction", grad_reduction, reductions,
	           "NAME    of gradients: per_step or per_micro_batch (per_step)"),
	GPT_CHOICE("offload-optimizer", offload_optimizer, offloads,
	           "TIER    none, cpu or nvme (nvme)"),
	GPT_CHOICE("offload-param", offload_param, offloads, "TIER    none, cpu or nvme (none)"),
	GPT_NUMBER("param-budget", GPT_OPTION_BYTES, param_budget_bytes, 0, 1e18,
	           "SIZE    of CPU memory for parameters on NVMe; 0: the daemon's choice (0)"),
	GPT_NUMBER("grad-budget", GPT_OPTION_BYTES, grad_budget_bytes, 0, 1e18,
	           "SIZE    of each rank's gradients under way, zero2 and zero3; 0: two units (0)"),
	GPT_NUMBER("resident", GPT_OPTION_BYTES, resident_bytes, 0, 1e18,
	           "SIZE    of NVMe state that stays in CPU memory (0)"),
	GPT_NUMBER("staging", GPT_OPTION_BYTES, staging_bytes, 0, 1e18,
	           "SIZE    buffers of the step's pipeline; 0: the daemon's default (0)"),
	GPT_NUMBER("commit-interval", GPT_OPTION_U32, commit_interval, 1, 65536,
	           "N       commit every N-th step; a crash of the daemon loses up to N (1)"),
	GPT_NUMBER("snapshot-interval", GPT_OPTION_U32, snapshot_interval, 0, 4294967295.0,
	           "N     keep every N-th step as snapshot auto-STEP; 0: none (0)"),
	GPT_NUMBER("snapshot-keep", GPT_OPTION_U32, snapshot_keep, 0, 4294967295.0,
	           "N     of these the newest N stay; 0: all (0)"),
	GPT_CHOICE("durability", durability, durabilities,
	           "NAME    a commit survives: process or power (process)"),
	GPT_TEXT("job", job, "NAME    (ZINF_JOB, else \"gpt\")"),
	GPT_TEXT("load", load,
	         "NAME    of a snapshot (JOB/NAME): a job that is new begins with it"),
	GPT_TEXT("resume", resume,
	         "FROM    go on from there, or not at all: latest, the job's STEP, or JOB/NAME of "
	         "a snapshot"),
	GPT_TEXT("incarnation", incarnation, "NAME    of this start of the job (made up)"),
	GPT_TEXT("socket", socket, "PATH    of the daemon (ZINF_SOCKET, else the system's)"),
	GPT_FLAG("wait-daemon", is_waiting_for_daemon, "        wait for the daemon to appear"),
	GPT_FLAG("delete-job", is_deleting_job, "        at the end, with all its state"),
	GPT_NUMBER("timeout", GPT_OPTION_U32, timeout_s, 1, 4294967, "SECONDS of every wait (600)"),
};
const struct gpt_option_table gpt_options_zinf = GPT_OPTION_TABLE("zinf", zinf);
