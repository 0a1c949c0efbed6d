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
	           "N       start N ranks (1); under a launcher: the number that it started"),
	GPT_NUMBER("restarts", GPT_OPTION_U32, restart_max, 0, 1e6,
	           "N       restart up to N times when a rank or the daemon fails (0)"),
	GPT_NUMBER("grace", GPT_OPTION_F64, grace_s, 0, 86400,
	           "SECONDS time between SIGTERM and SIGKILL for ranks that end (30)"),
	GPT_NUMBER("threads", GPT_OPTION_U32, thread_count, 1, 256,
	           "N       compute with N threads in each rank (CPUs / ranks)"),
	GPT_FLAG("reference", is_reference, "        train in this process, without zinf"),
};
const struct gpt_option_table gpt_options_ranks = GPT_OPTION_TABLE("Ranks", ranks);

static const struct gpt_option zinf[] = {
	GPT_TEXT("strategy", strategy,
	         "NAME    dp, ddp, zero1, zero2, zero3; no_shard, shard_grad_op, full_shard, fsdp, "
	         "hybrid_shard (ddp)"),
	GPT_NUMBER("shard-size", GPT_OPTION_U32, shard_size, 1, ZINF_WORLD_MAX,
	           "N       ranks that share one copy; divides --ranks (all)"),
	GPT_CHOICE("grad-reduction", grad_reduction, reductions,
	           "NAME    reduce gradients per_step or per_micro_batch (per_step)"),
	GPT_CHOICE("offload-optimizer", offload_optimizer, offloads,
	           "TIER    of the optimizer state: none, cpu or nvme (nvme)"),
	GPT_CHOICE("offload-param", offload_param, offloads,
	           "TIER    of parameters: none, cpu or nvme (none)"),
	GPT_NUMBER("param-budget", GPT_OPTION_BYTES, param_budget_bytes, 0, 1e18,
	           "SIZE    CPU memory for parameters on NVMe; 0: the daemon chooses (0)"),
	GPT_NUMBER("grad-budget", GPT_OPTION_BYTES, grad_budget_bytes, 0, 1e18,
	           "SIZE    memory of each rank for gradients, zero2 and zero3; 0: two units (0)"),
	GPT_NUMBER("resident", GPT_OPTION_BYTES, resident_bytes, 0, 1e18,
	           "SIZE    state on NVMe that also stays in CPU memory (0)"),
	GPT_NUMBER("staging", GPT_OPTION_BYTES, staging_bytes, 0, 1e18,
	           "SIZE    buffers of the step's pipeline; 0: the daemon's default (0)"),
	GPT_NUMBER("commit-interval", GPT_OPTION_U32, commit_interval, 1, 65536,
	           "N       commit every N-th step; a crash of the daemon loses up to N (1)"),
	GPT_NUMBER("snapshot-interval", GPT_OPTION_U32, snapshot_interval, 0, 4294967295.0,
	           "N     keep every N-th step as snapshot auto-STEP; 0: none (0)"),
	GPT_NUMBER("snapshot-keep", GPT_OPTION_U32, snapshot_keep, 0, 4294967295.0,
	           "N     keep the newest N of these; 0: all (0)"),
	GPT_CHOICE("durability", durability, durabilities,
	           "NAME    a commit survives the end of a process, or a power loss (process)"),
	GPT_TEXT("job", job, "NAME    name of the job (ZINF_JOB, else \"gpt\")"),
	GPT_TEXT("load", load, "NAME    a new job begins with this snapshot (JOB/NAME)"),
	GPT_TEXT("resume", resume,
	         "FROM    continue from there, or fail: latest, the job's STEP, or JOB/NAME of a "
	         "snapshot"),
	GPT_TEXT("incarnation", incarnation, "NAME    name of this start of the job (a new one)"),
	GPT_TEXT("socket", socket, "PATH    socket of the daemon (ZINF_SOCKET, else the system's)"),
	GPT_FLAG("wait-daemon", is_waiting_for_daemon, "        wait for the daemon to appear"),
	GPT_FLAG("delete-job", is_deleting_job,
	         "        delete the job with all its state at the end"),
	GPT_NUMBER("timeout", GPT_OPTION_U32, timeout_s, 1, 4294967,
	           "SECONDS limit of every wait (600)"),
};
const struct gpt_option_table gpt_options_zinf = GPT_OPTION_TABLE("zinf", zinf);
