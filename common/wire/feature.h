/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feature bits of HELLO: each side says what it can, and both use the intersection. None is needed
 * for the base protocol. Floor 1.
 */
#pragma once

#define ZI_FEATURE_NVME_STATE   (1ull << 0)  /* optimizer state on NVMe */
#define ZI_FEATURE_NVME_PARAM   (1ull << 1)  /* parameters on NVMe */
#define ZI_FEATURE_COLLECTIVES  (1ull << 2)  /* COLL_* */
#define ZI_FEATURE_EARLY        (1ull << 3)  /* ZI_STEP_UPDATE_EARLY */
#define ZI_FEATURE_SNAPSHOTS    (1ull << 4)  /* LOAD, SNAPSHOT */
#define ZI_FEATURE_INTERVAL     (1ull << 5)  /* commit_interval */
#define ZI_FEATURE_IO_WEIGHT    (1ull << 6)  /* a job's share of its stores */
#define ZI_FEATURE_TENSORS      (1ull << 7)  /* TENSOR_OPEN, opcodes from 10 on */
#define ZI_FEATURE_PERIODIC     (1ull << 8)  /* snapshot_interval, snapshot_keep */
#define ZI_FEATURE_NODES        (1ull << 9)  /* local_world_size: jobs that span nodes */
#define ZI_FEATURE_NUMA         (1ull << 10) /* zi_verdicts.numa: calls go by where arenas lie */
#define ZI_FEATURE_COLL_ABORT   (1ull << 11) /* COLL_ABORT, timeouts of collectives */
#define ZI_FEATURE_COLL_VERSION (1ull << 12) /* coll_version of HELLO */
#define ZI_FEATURE_TRAINING     (1ull << 13) /* the tail of ATTACH, and the words that go with it */
#define ZI_FEATURE_SETS         (1ull << 14) /* ZI_LAYOUT_SET */
#define ZI_FEATURE_STATE_NODES  (1ull << 15) /* training over nodes: the tail of MATERIALIZE */
#define ZI_FEATURE_FROZEN       (1ull << 16) /* units that are frozen whole have no gradient */
#define ZI_FEATURE_FORWARD      (1ull << 17) /* ZI_TRAINING_FORWARD_ONLY: MATERIALIZED without it */
/* Bits 18 to 20 are reserved for precision, groups and inputs. */
#define ZI_FEATURE_LOST  (1ull << 21) /* lost_step of ATTACHED */
#define ZI_FEATURE_STEPS (1ull << 22) /* opcodes from 18 on, ZI_STEP_DEFERRED, ZI_STEP_BETAS */
#define ZI_FEATURE_STATE (1ull << 23) /* STATE_*, ZI_PARAM_WRITE_KEEP */
#define ZI_FEATURE_EXIST (1ull << 24) /* ZI_ATTACH_MUST_EXIST */
#define ZI_FEATURE_GPU   (1ull << 25) /* GPU_*: gpu.h */
#define ZI_FEATURE_PART  (1ull << 26) /* UNSHARD_PART */
