/* SPDX-License-Identifier: Apache-2.0 */
/* Every key of the configuration: the only place that knows its range, default and meaning. Floor
 * 7. */
#include <stddef.h>

#include "common/base/cleanup.h"
#include "common/wire/layout.h"
#include "daemon/config.h"

#define OF(field)       offsetof(struct config, field)
#define OF_STORE(field) offsetof(struct config_store, field)

const struct config_section config_sections[] = {
	{ "daemon", "The process itself." },
	{ "tier.cpu",
	  "The CPU tier: memory for parameters, gradients, resident optimizer state and "
	  "staging of all jobs. The daemon's own memory comes on top (program, catalog, "
	  "tables of the limits below): leave 64 MiB and 1 KiB per inflight operation." },
	{ "gpu",
	  "GPUs of NVIDIA. A process zinf-gpu for each GPU owns zinf's memory there and loads "
	  "the CUDA driver; zinfd itself loads no driver." },
	{ "nvme", "A store. The rest of the section's name is its name: `[nvme fast]` is the tier "
	          "`nvme:fast`, or a path of a larger tier (see `stripe`). There may be 16 stores; "
	          "without a store no optimizer state can be offloaded to NVMe. One engine serves "
	          "all stores, so `backend` must be equal in all these sections." },
	{ "limits", "Everything has a limit. A request beyond it is refused with the figure." },
	{ "quota", "Limits of one uid over all its jobs." },
	{ "step", "Defaults of a job's step." },
};
const uint32_t config_section_count = ZI_COUNT_OF(config_sections);

const struct config_key config_keys[] = {
	{ "daemon", "socket", CONFIG_TEXT, OF(socket), .fallback = "/run/zinf/zinfd.sock",
	  .doc = "Path of the socket for trainers and zctl, at most 107 bytes. Not used when "
	         "systemd passes a socket." },
	{ "daemon", "socket_mode", CONFIG_MODE, OF(socket_mode), 0, 0777, .fallback = "0666",
	  .doc = "Permissions of the socket, octal. A user who may connect may create jobs, "
	         "within the limits and quotas." },
	{ "daemon", "state_dir", CONFIG_TEXT, OF(state_dir), .fallback = "/var/lib/zinf",
	  .doc = "Folder of the catalog. The catalog lists all jobs, and the places of their "
	         "committed steps. The folder is made when its parent exists." },
	{ "daemon", "log_level", CONFIG_CHOICE, OF(log_level),
	  .choices = "error warning info debug", .fallback = "info",
	  .doc = "Messages below this level are not written." },
	{ "daemon", "stop_timeout_s", CONFIG_COUNT, OF(stop_timeout_s), 1, 3600, .fallback = "60",
	  .doc = "Time that a graceful stop waits for steps that have begun to update. After "
	         "it these steps are discarded, as in a crash." },
	{ "daemon", "coll_timeout_s", CONFIG_COUNT, OF(coll_timeout_s), 1, 604800,
	  .fallback = "600",
	  .doc = "Deadline of a collective call where neither the call, nor its group, nor the "
	         "job (zinf_options.timeout_ms) names one." },
	{ "daemon", "spin_us", CONFIG_COUNT, OF(spin_us), 0, 100000, .fallback = "50",
	  .doc = "Time that daemon and clients poll their rings before they sleep, while there "
	         "is a CPU for each of them. 0: they sleep at once." },
	{ "daemon", "pool_threads", CONFIG_COUNT, OF(pool_threads), 1, 1024, .special = "auto",
	  .special_value = 0, .fallback = "auto",
	  .doc = "Compute threads per NUMA node. auto: one for each CPU." },
	{ "daemon", "wear_interval_s", CONFIG_COUNT, OF(wear_interval_s), 60, 604800,
	  .special = "never", .special_value = 0, .fallback = "3600",
	  .doc = "Time between two health checks (SMART) of the drives under the stores; the "
	         "first one is at start. Only NVMe drives answer, and only to CAP_SYS_ADMIN." },
	{ "daemon", "topology", CONFIG_TEXT, OF(topology), .special = "auto", .fallback = "auto",
	  .doc = "auto: this machine. `synthetic:DESCRIPTION` or `xml:PATH` (hwloc) for tests; "
	         "memory and threads are not bound then." },

	{ "tier.cpu", "capacity", CONFIG_BYTES, OF(cpu_capacity_bytes), 16ull << 20, INT64_MAX,
	  .special = "auto", .special_value = 0, .fallback = "auto",
	  .doc = "Bytes that may be charged on all NUMA nodes together; each node has an equal "
	         "share. auto: half of the memory that this process may use. More than that "
	         "memory (control group and /proc/meminfo) is refused at start." },
	{ "tier.cpu", "huge_pages", CONFIG_CHOICE, OF(huge_pages), .choices = "try never require",
	  .fallback = "try",
	  .doc = "2 MiB pages make I/O two to three times as fast. try: pages of the huge page "
	         "pool, else collapsed pages, else pages of 4 KiB. require: refused at start "
	         "unless the pool (/proc/sys/vm/nr_hugepages) holds the capacity." },
	{ "tier.cpu", "lock", CONFIG_CHOICE, OF(lock), .choices = "try require", .fallback = "try",
	  .doc = "try: buffers are registered for I/O as far as RLIMIT_MEMLOCK allows; the "
	         "daemon reports buffers that are not registered. require: all memory is "
	         "locked; refused at start when the limit is too low." },

	{ "gpu", "enable", CONFIG_CHOICE, OF(gpu_enable), .choices = "auto yes no",
	  .fallback = "auto",
	  .doc = "auto: GPUs are used where there is a driver (`driver`, or the device "
	         "/dev/nvidiactl). yes: a GPU that cannot be used is an error in the log. no: "
	         "GPUs are left alone." },
	{ "gpu", "driver", CONFIG_TEXT, OF(gpu_driver), .special = "system", .fallback = "system",
	  .doc = "Path of the CUDA driver's library. system: libcuda.so.1, where the linker "
	         "finds it." },
	{ "gpu", "reserve", CONFIG_BYTES, OF(gpu_reserve_bytes), 1ull << 20, INT64_MAX,
	  .special = "none", .special_value = 0, .fallback = "1G",
	  .doc = "Memory of each GPU that zinf leaves alone, for CUDA contexts, libraries and "
	         "activations of the trainers." },
	{ "gpu", "deadline_s", CONFIG_COUNT, OF(gpu_deadline_s), 1, 3600, .fallback = "60",
	  .doc = "Time that a zinf-gpu has for a part of an order of memory; it has twice that to "
	         "open its GPU. Beyond it zinf-gpu is killed, and the next order starts it "
	         "again." },

	{ "nvme", "path", CONFIG_TEXT, OF_STORE(path), .fallback = "",
	  .doc = "File (made when missing) or block device. It must be given. A file that is "
	         "not a zinf store is never overwritten." },
	{ "nvme", "stripe", CONFIG_TEXT, OF_STORE(stripe), .special = "own", .fallback = "own",
	  .doc = "Tier of the store. Stores with the same name here are the paths of one tier "
	         "`nvme:THAT_NAME`; every job is spread over them by measured speed. A path "
	         "may be added at any restart. own: the store is a tier of its own, with its "
	         "own name." },
	{ "nvme", "drain", CONFIG_CHOICE, OF_STORE(is_drained), .choices = "no yes",
	  .fallback = "no",
	  .doc = "yes: this path takes no new data, and its data moves to the other paths of "
	         "its stripe, as after `zctl drain`, from the start on." },
	{ "nvme", "size", CONFIG_BYTES, OF_STORE(bytes), 1ull << 20, INT64_MAX, .special = "keep",
	  .special_value = 0, .fallback = "keep",
	  .doc = "Size of a file that is made or grown. keep: as it is. A job needs twice its "
	         "optimizer state and parameters." },
	{ "nvme", "direct", CONFIG_CHOICE, OF_STORE(direct), .choices = "require try",
	  .fallback = "require",
	  .doc = "require: a file system without O_DIRECT is refused (tmpfs too). try: such a "
	         "store works through the page cache, and the daemon reports it." },
	{ "nvme", "backend", CONFIG_TEXT, OF_STORE(backend), .fallback = "auto",
	  .doc = "auto: io_uring, or threads where the kernel refuses io_uring. io_uring, "
	         "threads: only that one. `faulty:SPEC` injects faults, for tests: "
	         "docs/ADMIN.md." },
	{ "nvme", "read_depth", CONFIG_COUNT, OF_STORE(read_depth), 1, 4096, .special = "auto",
	  .special_value = 0, .fallback = "auto",
	  .doc = "Blocks that are read at once. auto: the last result of `zctl bench nvme` on "
	         "this store; 32 before the first one." },
	{ "nvme", "write_depth", CONFIG_COUNT, OF_STORE(write_depth), 1, 4096, .special = "auto",
	  .special_value = 0, .fallback = "auto",
	  .doc = "Blocks that are written at once. auto: as read_depth." },
	{ "nvme", "read_block", CONFIG_BYTES, OF_STORE(read_block_bytes), 4096, 64ull << 20,
	  .special = "auto", .special_value = 0, .fallback = "auto",
	  .doc = "Bytes of one read, a multiple of 4096. auto: the last measured value; 1M "
	         "before." },
	{ "nvme", "write_block", CONFIG_BYTES, OF_STORE(write_block_bytes), 4096, 64ull << 20,
	  .special = "auto", .special_value = 0, .fallback = "auto",
	  .doc = "Bytes of one write, a multiple of 4096. auto: the last measured value; 1M "
	         "before." },
	{ "nvme", "measure", CONFIG_CHOICE, OF_STORE(is_measured), .choices = "never start",
	  .fallback = "start",
	  .doc = "start: a store that was never measured is measured for one second at start, "
	         "if a depth or block is auto. never: only by `zctl bench nvme`." },
	{ "nvme", "deadline_s", CONFIG_COUNT, OF_STORE(deadline_s), 1, 86400, .special = "none",
	  .special_value = 0, .fallback = "30",
	  .doc = "Time limit of one request (a part of a subgroup), with its time in the "
	         "queue. A request beyond it is logged. Its blocks that have not gone out are "
	         "dropped, and the step fails once the device has returned the others. none: "
	         "no limit. A flush (durability = power) beyond the limit is logged and shown "
	         "by `zctl jobs`; a flush cannot be cancelled." },
	{ "nvme", "iopoll", CONFIG_CHOICE, OF_STORE(iopoll), .choices = "no yes", .fallback = "no",
	  .doc = "yes: the daemon polls for completions instead of waiting for interrupts; the "
	         "shard thread does not sleep during I/O. Needs a bare NVMe device with poll "
	         "queues (module parameter nvme.poll_queues) and io_uring. Other stores use "
	         "interrupts, after a warning." },

	{ "nvme", "write_budget_per_day", CONFIG_BYTES, OF_STORE(write_budget_bytes), 1ull << 20,
	  INT64_MAX, .special = "none", .special_value = 0, .fallback = "none",
	  .doc = "Bytes that jobs may write to this store per day (UTC), such as a drive's "
	         "endurance divided by its days of use. Kept over restarts." },
	{ "nvme", "write_budget_action", CONFIG_CHOICE, OF_STORE(write_budget_action),
	  .choices = "warn slow refuse", .fallback = "warn",
	  .doc = "Action beyond the budget. warn: one line in the log per day. slow: steps run "
	         "at the rate of the budget, so a day writes at most twice the budget. refuse: "
	         "no step begins (-EDQUOT) until midnight UTC." },
	{ "nvme", "wear_percent", CONFIG_COUNT, OF_STORE(wear_percent), 1, 255, .fallback = "80",
	  .doc = "A drive that has used this share of its rated life is logged, once. Spare "
	         "below the drive's own threshold and critical warnings of the drive are "
	         "logged too." },

	{ "limits", "sessions", CONFIG_COUNT, OF(sessions), 1, 16384, .fallback = "128",
	  .doc = "Attached processes." },
	{ "limits", "sessions_per_uid", CONFIG_COUNT, OF(sessions_per_uid), 1, 16384,
	  .fallback = "64", .doc = "Attached processes of one uid." },
	{ "limits", "connections", CONFIG_COUNT, OF(connections), 1, 16384, .fallback = "128",
	  .doc = "Connections that are not attached: zctl, and processes before they attach. "
	         "At the limit the daemon closes a connection of the uid that has the most: "
	         "first one that does not read its answer, then the one that is silent "
	         "longest. An export or a load of another uid is never closed. Root and the "
	         "daemon's own uid have 4 more places." },
	{ "limits", "connections_per_uid", CONFIG_COUNT, OF(connections_per_uid), 1, 16384,
	  .fallback = "64",
	  .doc = "Connections of one uid that are not attached: at least the ranks that start "
	         "at once." },
	{ "limits", "descriptors_per_uid", CONFIG_COUNT, OF(descriptors_per_uid), 16, 1u << 20,
	  .special = "auto", .special_value = 0, .fallback = "auto",
	  .doc = "Descriptors that the daemon opens for one uid: 6 for each attached process, "
	         "1 for each memory segment of its jobs, 2 for each zinf-net, 1 for each rank "
	         "that has GPU memory and for each chunk of it until the rank received the "
	         "chunk. auto: a quarter of the daemon's limit (RLIMIT_NOFILE)." },
	{ "limits", "answers_per_uid", CONFIG_COUNT, OF(answers_per_uid), 1, 16384,
	  .fallback = "16", .doc = "Answers to zctl that one uid has not read to their end." },
	{ "limits", "answer_bytes_per_uid", CONFIG_BYTES, OF(answer_bytes_per_uid), 1ull << 20,
	  INT64_MAX, .fallback = "64M", .doc = "Bytes of these answers." },
	{ "limits", "jobs", CONFIG_COUNT, OF(jobs), 1, 65536, .fallback = "64",
	  .doc = "Jobs, idle jobs included." },
	{ "limits", "jobs_per_uid", CONFIG_COUNT, OF(jobs_per_uid), 1, 65536, .fallback = "32",
	  .doc = "Jobs of one uid." },
	{ "limits", "units", CONFIG_COUNT, OF(units), 1, 1u << 20, .fallback = "16384",
	  .doc = "Units of a job." },
	{ "limits", "params", CONFIG_COUNT, OF(params), 1, 1u << 22, .fallback = "65536",
	  .doc = "Parameters of a job." },
	{ "limits", "ring_entries", CONFIG_COUNT, OF(ring_entries), 16, ZI_RING_ENTRIES_MAX,
	  .fallback = "256", .doc = "Slots of each ring of a session: a power of two." },
	{ "limits", "inflight_ops", CONFIG_COUNT, OF(inflight_ops), 1, 1u << 22, .fallback = "8192",
	  .doc = "Pending requests of all sessions, at least `sessions`. Each session has an "
	         "equal share." },
	{ "limits", "handshake_ms", CONFIG_COUNT, OF(handshake_ms), 1, 600000, .fallback = "10000",
	  .doc = "Time that a connection that is not attached may be silent." },

	{ "quota", "uid_cpu", CONFIG_BYTES, OF(uid_cpu_bytes), 1ull << 20, INT64_MAX,
	  .special = "none", .special_value = UINT64_MAX, .fallback = "none",
	  .doc = "Bytes of the CPU tier." },
	{ "quota", "uid_nvme", CONFIG_BYTES, OF(uid_nvme_bytes), 1ull << 20, INT64_MAX,
	  .special = "none", .special_value = UINT64_MAX, .fallback = "none",
	  .doc = "Bytes of all stores." },
	{ "quota", "uid_gpu", CONFIG_BYTES, OF(uid_gpu_bytes), 1ull << 20, INT64_MAX,
	  .special = "none", .special_value = UINT64_MAX, .fallback = "none",
	  .doc = "Bytes of all GPUs." },
	{ "quota", "uid_write_per_day", CONFIG_BYTES, OF(uid_write_bytes), 1ull << 20, INT64_MAX,
	  .special = "none", .special_value = 0, .fallback = "none",
	  .doc = "Bytes that the jobs of one uid may write to all stores per day (UTC)." },
	{ "quota", "uid_write_action", CONFIG_CHOICE, OF(uid_write_action),
	  .choices = "warn slow refuse", .fallback = "warn",
	  .doc = "Action beyond it, as `write_budget_action` of a store." },

	{ "step", "staging", CONFIG_BYTES, OF(staging_bytes), 1ull << 20, INT64_MAX,
	  .fallback = "128M",
	  .doc = "Buffers between disk and kernels, for a job that does not set "
	         "`staging_bytes`." },
	{ "step", "staging_kept", CONFIG_CHOICE, OF(is_staging_kept), .choices = "no yes",
	  .fallback = "yes",
	  .doc = "yes: the buffers keep the optimizer state that a step wrote last, and the "
	         "next step does not read it. The bits of the results are the same." },
};
const uint32_t config_key_count = ZI_COUNT_OF(config_keys);
static_assert(ZI_COUNT_OF(config_keys) <= CONFIG_KEYS_MAX, "seen_lines has a word for each key");
