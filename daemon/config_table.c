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
	{ "tier.cpu", "The CPU tier: memory that jobs' parameters, gradients, resident "
	              "optimizer state and staging buffers are charged to. The daemon's own "
	              "memory (program, catalog, tables of the limits below) comes on top: 64 "
	              "MiB and 1 KiB per inflight operation suffice." },
	{ "nvme", "A store, named by the rest of the section's name: `[nvme fast]` is the tier "
	          "`nvme:fast`, or a path of a larger tier (see `stripe`). Up to 16 of them; "
	          "without any, optimizer state cannot be offloaded to NVMe. One engine serves "
	          "them all, so `backend` must be equal in all of these sections." },
	{ "limits", "Everything has a limit; a request beyond it is refused with the figure." },
	{ "quota", "What one uid may hold over all of its jobs." },
	{ "step", "Defaults of a job's step." },
};
const uint32_t config_section_count = ZI_COUNT_OF(config_sections);

const struct config_key config_keys[] = {
	{ "daemon", "socket", CONFIG_TEXT, OF(socket), .fallback = "/run/zinf/zinfd.sock",
	  .doc = "Path of the socket that trainers and zctl connect to, at most 107 bytes. Not "
	         "used when systemd passes a socket." },
	{ "daemon", "socket_mode", CONFIG_MODE, OF(socket_mode), 0, 0777, .fallback = "0666",
	  .doc = "Permissions of the socket, octal. Who may connect may create jobs, within the "
	         "limits and quotas." },
	{ "daemon", "state_dir", CONFIG_TEXT, OF(state_dir), .fallback = "/var/lib/zinf",
	  .doc = "Folder of the catalog: which jobs there are and where their committed steps "
	         "lie. Made when its parent exists." },
	{ "daemon", "log_level", CONFIG_CHOICE, OF(log_level),
	  .choices = "error warning info debug", .fallback = "info",
	  .doc = "The least urgent messages that are written." },
	{ "daemon", "stop_timeout_s", CONFIG_COUNT, OF(stop_timeout_s), 1, 3600, .fallback = "60",
	  .doc = "How long a graceful stop waits for steps that have begun to update. Beyond "
	         "that they are discarded, as they would be by a crash." },
	{ "daemon", "coll_timeout_s", CONFIG_COUNT, OF(coll_timeout_s), 1, 604800,
	  .fallback = "600",
	  .doc = "How long a call of collectives waits for the other ranks where neither the call, "
	         "nor its group, nor the job (zinf_options.timeout_ms) says it." },
	{ "daemon", "spin_us", CONFIG_COUNT, OF(spin_us), 0, 100000, .fallback = "50",
	  .doc = "How long daemon and clients look at their rings before they sleep, while "
	         "there is a CPU for each of them. 0: they always sleep at once." },
	{ "daemon", "pool_threads", CONFIG_COUNT, OF(pool_threads), 1, 1024, .special = "auto",
	  .special_value = 0, .fallback = "auto",
	  .doc = "Threads that compute, per NUMA node. auto: one for each CPU." },
	{ "daemon", "wear_interval_s", CONFIG_COUNT, OF(wear_interval_s), 60, 604800,
	  .special = "never", .special_value = 0, .fallback = "3600",
	  .doc = "How often the drives under the stores are asked for their health (SMART), the "
	         "first time at start. Only NVMe drives answer, and only to CAP_SYS_ADMIN." },
	{ "daemon", "topology", CONFIG_TEXT, OF(topology), .special = "auto", .fallback = "auto",
	  .doc = "auto: this machine. `synthetic:DESCRIPTION` or `xml:PATH` (hwloc) for tests; "
	         "memory and threads are not bound then." },

	{ "tier.cpu", "capacity", CONFIG_BYTES, OF(cpu_capacity_bytes), 16ull << 20, INT64_MAX,
	  .special = "auto", .special_value = 0, .fallback = "auto",
	  .doc = "Bytes that may be charged, over all NUMA nodes (each has an equal share). "
	         "auto: half of what this process may use. More than that (control group and "
	         "/proc/meminfo) is refused at start." },
	{ "tier.cpu", "huge_pages", CONFIG_CHOICE, OF(huge_pages), .choices = "try never require",
	  .fallback = "try",
	  .doc = "2 MiB pages make I/O two to three times as fast. try: from the pool of huge "
	         "pages, else collapsed, else small ones. require: refused at start unless the "
	         "pool (/proc/sys/vm/nr_hugepages) holds the capacity." },
	{ "tier.cpu", "lock", CONFIG_CHOICE, OF(lock), .choices = "try require", .fallback = "try",
	  .doc = "try: buffers are registered for I/O as far as RLIMIT_MEMLOCK allows, the rest "
	         "works unregistered and is reported. require: all memory is locked; refused at "
	         "start when the limit is too low." },

	{ "nvme", "path", CONFIG_TEXT, OF_STORE(path), .fallback = "",
	  .doc = "File (made when missing) or block device. Must be given. A file that is not a "
	         "zinf store is never overwritten." },
	{ "nvme", "stripe", CONFIG_TEXT, OF_STORE(stripe), .special = "own", .fallback = "own",
	  .doc = "Tier that it belongs to. Stores with the same name here are the paths of one "
	         "tier `nvme:THAT_NAME`, over which every job is spread by measured speed; a path "
	         "may be added at any restart. own: the store's own name, a tier for itself." },
	{ "nvme", "drain", CONFIG_CHOICE, OF_STORE(is_drained), .choices = "no yes",
	  .fallback = "no",
	  .doc = "yes: nothing new goes to this path, and what lies there moves to the others of "
	         "its stripe, as after `zctl drain`, from the start on." },
	{ "nvme", "size", CONFIG_BYTES, OF_STORE(bytes), 1ull << 20, INT64_MAX, .special = "keep",
	  .special_value = 0, .fallback = "keep",
	  .doc = "Size of a file that is made, or grown. keep: as it is. A job needs twice its "
	         "optimizer state and parameters." },
	{ "nvme", "direct", CONFIG_CHOICE, OF_STORE(direct), .choices = "require try",
	  .fallback = "require",
	  .doc = "require: a file system without O_DIRECT is refused (tmpfs too). try: it works "
	         "through the page cache, and is reported." },
	{ "nvme", "backend", CONFIG_TEXT, OF_STORE(backend), .fallback = "auto",
	  .doc = "auto: io_uring, or threads where the kernel refuses it. io_uring, threads: "
	         "that one. `faulty:SPEC` injects faults, for tests and by hand: docs/ADMIN.md." },
	{ "nvme", "read_depth", CONFIG_COUNT, OF_STORE(read_depth), 1, 4096, .special = "auto",
	  .special_value = 0, .fallback = "auto",
	  .doc = "Blocks that are read at once. auto: what `zctl bench nvme` measured last on this "
	         "store, 32 before." },
	{ "nvme", "write_depth", CONFIG_COUNT, OF_STORE(write_depth), 1, 4096, .special = "auto",
	  .special_value = 0, .fallback = "auto",
	  .doc = "Blocks that are written at once. auto: as read_depth." },
	{ "nvme", "read_block", CONFIG_BYTES, OF_STORE(read_block_bytes), 4096, 64ull << 20,
	  .special = "auto", .special_value = 0, .fallback = "auto",
	  .doc = "Bytes of one read, a multiple of 4096. auto: what was measured, 1M before." },
	{ "nvme", "write_block", CONFIG_BYTES, OF_STORE(write_block_bytes), 4096, 64ull << 20,
	  .special = "auto", .special_value = 0, .fallback = "auto",
	  .doc = "Bytes of one write, a multiple of 4096. auto: what was measured, 1M before." },
	{ "nvme", "measure", CONFIG_CHOICE, OF_STORE(is_measured), .choices = "never start",
	  .fallback = "start",
	  .doc = "start: a store that was never measured is measured for a second at start, when a "
	         "depth or block is auto. never: only by `zctl bench nvme`." },
	{ "nvme", "deadline_s", CONFIG_COUNT, OF_STORE(deadline_s), 1, 86400, .special = "none",
	  .special_value = 0, .fallback = "30",
	  .doc = "How long one request (a subgroup's part) may take, its waiting for others "
	         "included. Beyond that the stall is logged, what has not gone out never does, and "
	         "the step that needs it fails once the device has given back what it holds. none: "
	         "as long as the kernel lets it. A flush (durability = power) that takes longer is "
	         "logged and shown by `zctl jobs`; it cannot be taken back." },
	{ "nvme", "iopoll", CONFIG_CHOICE, OF_STORE(iopoll), .choices = "no yes", .fallback = "no",
	  .doc = "yes: completions are polled for, instead of waiting for interrupts: the shard's "
	         "thread does not sleep while something is in flight. Needs a bare NVMe device "
	         "with poll queues (module parameter nvme.poll_queues) and io_uring; anything else "
	         "works with interrupts, after a warning." },

	{ "nvme", "write_budget_per_day", CONFIG_BYTES, OF_STORE(write_budget_bytes), 1ull << 20,
	  INT64_MAX, .special = "none", .special_value = 0, .fallback = "none",
	  .doc = "Bytes that jobs may write here a day, from midnight UTC on: a drive's endurance "
	         "over its years. Kept over restarts." },
	{ "nvme", "write_budget_action", CONFIG_CHOICE, OF_STORE(write_budget_action),
	  .choices = "warn slow refuse", .fallback = "warn",
	  .doc = "Beyond the budget: warn: it is logged once a day. slow: steps go on at the "
	         "budget's own pace, so that a day writes at most twice as much. refuse: no step "
	         "begins (-EDQUOT) until midnight UTC." },
	{ "nvme", "wear_percent", CONFIG_COUNT, OF_STORE(wear_percent), 1, 255, .fallback = "80",
	  .doc = "Of a drive's rated life: when so much is used, it is logged (once). Spare below "
	         "the drive's own threshold and its critical warnings are logged as well." },

	{ "limits", "sessions", CONFIG_COUNT, OF(sessions), 1, 16384, .fallback = "128",
	  .doc = "Attached processes." },
	{ "limits", "sessions_per_uid", CONFIG_COUNT, OF(sessions_per_uid), 1, 16384,
	  .fallback = "64", .doc = "Attached processes of one uid." },
	{ "limits", "connections", CONFIG_COUNT, OF(connections), 1, 16384, .fallback = "128",
	  .doc = "Connections that are not attached: processes that are about to attach, and zctl. "
	         "Beyond that a connection of the uid that has most is closed: first one that does "
	         "not read its answer, then the one silent longest. An export or a load of another "
	         "uid is never closed. Root and the daemon's own uid have 4 places more." },
	{ "limits", "connections_per_uid", CONFIG_COUNT, OF(connections_per_uid), 1, 16384,
	  .fallback = "64",
	  .doc = "Connections of one uid that are not attached; as many as ranks start at once." },
	{ "limits", "descriptors_per_uid", CONFIG_COUNT, OF(descriptors_per_uid), 16, 1u << 20,
	  .special = "auto", .special_value = 0, .fallback = "auto",
	  .doc = "Descriptors that the daemon opens for one uid: 6 for each attached process, one "
	         "for each segment of memory that its jobs have, 2 for each zinf-net. auto: a "
	         "quarter of what the daemon may open (RLIMIT_NOFILE)." },
	{ "limits", "answers_per_uid", CONFIG_COUNT, OF(answers_per_uid), 1, 16384,
	  .fallback = "16", .doc = "Answers to zctl that one uid has not read to their end." },
	{ "limits", "answer_bytes_per_uid", CONFIG_BYTES, OF(answer_bytes_per_uid), 1ull << 20,
	  INT64_MAX, .fallback = "64M", .doc = "Bytes of these answers." },
	{ "limits", "jobs", CONFIG_COUNT, OF(jobs), 1, 65536, .fallback = "64",
	  .doc = "Jobs, at rest ones included." },
	{ "limits", "jobs_per_uid", CONFIG_COUNT, OF(jobs_per_uid), 1, 65536, .fallback = "32",
	  .doc = "Jobs of one uid." },
	{ "limits", "units", CONFIG_COUNT, OF(units), 1, 1u << 20, .fallback = "16384",
	  .doc = "Units of a job." },
	{ "limits", "params", CONFIG_COUNT, OF(params), 1, 1u << 22, .fallback = "65536",
	  .doc = "Parameters of a job." },
	{ "limits", "ring_entries", CONFIG_COUNT, OF(ring_entries), 16, ZI_RING_ENTRIES_MAX,
	  .fallback = "256", .doc = "Slots of a session's rings; a power of two." },
	{ "limits", "inflight_ops", CONFIG_COUNT, OF(inflight_ops), 1, 1u << 22, .fallback = "8192",
	  .doc = "Pending requests of all sessions. Each session has an equal share, so that "
	         "none can use up another's; at least `sessions`." },
	{ "limits", "handshake_ms", CONFIG_COUNT, OF(handshake_ms), 1, 600000, .fallback = "10000",
	  .doc = "How long a connection that is not attached may say nothing." },

	{ "quota", "uid_cpu", CONFIG_BYTES, OF(uid_cpu_bytes), 1ull << 20, INT64_MAX,
	  .special = "none", .special_value = UINT64_MAX, .fallback = "none",
	  .doc = "Bytes of the CPU tier." },
	{ "quota", "uid_nvme", CONFIG_BYTES, OF(uid_nvme_bytes), 1ull << 20, INT64_MAX,
	  .special = "none", .special_value = UINT64_MAX, .fallback = "none",
	  .doc = "Bytes of all stores." },
	{ "quota", "uid_write_per_day", CONFIG_BYTES, OF(uid_write_bytes), 1ull << 20, INT64_MAX,
	  .special = "none", .special_value = 0, .fallback = "none",
	  .doc = "Bytes that one uid's jobs may write to all stores a day, from midnight UTC on." },
	{ "quota", "uid_write_action", CONFIG_CHOICE, OF(uid_write_action),
	  .choices = "warn slow refuse", .fallback = "warn",
	  .doc = "Beyond that: as `write_budget_action` of a store." },

	{ "step", "staging", CONFIG_BYTES, OF(staging_bytes), 1ull << 20, INT64_MAX,
	  .fallback = "128M",
	  .doc = "Buffers between disk and kernels of a job that does not say how many." },
	{ "step", "staging_kept", CONFIG_CHOICE, OF(is_staging_kept), .choices = "no yes",
	  .fallback = "yes",
	  .doc = "yes: they keep the optimizer state that a step wrote last; the next step begins "
	         "with it and does not read it. The same bits either way." },
};
const uint32_t config_key_count = ZI_COUNT_OF(config_keys);
static_assert(ZI_COUNT_OF(config_keys) <= CONFIG_KEYS_MAX, "seen_lines has a word for each key");
