/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file zinf.h
 * libzinf, for programs that train with zinf: a process uses the memory of its node through zinfd.
 *
 * A *job* is one training run. It outlives its processes: the daemon keeps its parameters, its
 * optimizer state and the number of its last committed step. A process is one *rank* of the job,
 * as long as its connection to the daemon lasts. docs/ARCHITECTURE.md, "Words", explains the words
 * of these headers. The life of a rank:
 *
 *     zinf_attach()                      names the job, and the rank of how many
 *     zinf_unit_add(), zinf_param_add()  describe the model: units and their parameters
 *     zinf_materialize()                 collective: layouts are compared, memory appears
 *     if zinf_committed_step() < 0:      a new job: one rank writes the first values
 *         zinf_param_write_begin(), write, zinf_param_write_end(), zinf_commit()
 *     else zinf_blob_get()               a resumed job: the state of the data loader
 *     for each step:
 *         zinf_step_begin()
 *         for each unit: zinf_unshard(), forward, zinf_reshard()
 *         for each unit in reverse: zinf_unshard(), zinf_grad_acquire(), backward,
 *                                   zinf_reduce(), zinf_reshard()
 *         zinf_step(), later zinf_wait()          (or zinf_step_discard(): the step is not made)
 *     zinf_detach()
 *
 * Errors: a function that can fail returns 0 or a negative errno. On failure outputs are untouched,
 * and zinf_error_text() says what failed, with figures, and what to do. Errnos of any call:
 *   -ESTALE      the daemon went away or restarted, or a newer incarnation of the job replaced this
 *                process: detach and attach again (the job is at its last committed step)
 *   -EPIPE       another rank of the job died or left; the text names it. This incarnation of the
 *                group is over: detach; the surviving ranks may attach again
 *   -ETIMEDOUT   the deadline passed; the text names the ranks that did not come
 *   -EINVAL      an argument is wrong; the text says which, and what is allowed
 *   -EPROTO      the two sides disagree about the protocol; the session is over
 *   -EOPNOTSUPP  zinf cannot do this, or not in this setting (docs/NOTES.md)
 *
 * zinf_reshard(), zinf_prefetch() and zinf_reduce() do not wait. They report only errors of the
 * call itself. The next zinf_unshard() or zinf_grad_acquire() of that unit, or the next
 * zinf_step(), returns a later error of the daemon, once. After -ETIMEDOUT or -EINTR a call may be
 * repeated: it continues to wait for the same event. -EINTR: see zinf/wait.h.
 *
 * Threads: one thread at a time uses a struct zinf.
 * Fork: children do not inherit the mappings (MADV_DONTFORK); a child attaches by itself.
 *
 * Memory: pointers from zinf_param_data() and zinf_grad_data() are fixed from zinf_materialize() to
 * zinf_detach(). The daemon owns this memory; parameters are mapped read-only. Touching an address
 * without memory is a SIGSEGV: with offload_param ZINF_OFFLOAD_NVME, and with ZINF_ZERO3 over
 * several nodes, a parameter that is not unsharded has no memory; with ZINF_ZERO2 and ZINF_ZERO3 a
 * gradient that is not acquired may have none.
 */
#ifndef ZINF_ZINF_H
#define ZINF_ZINF_H

/* C++ compilers can warn of designated and of missing initialisers, also in the macros below
 * wherever a program uses them. They do not for a system header. */
#ifdef __cplusplus
#pragma GCC system_header
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <zinf/step.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZINF_VERSION_MAJOR 0
#define ZINF_VERSION_MINOR 1

#define ZINF_API __attribute__((visibility("default")))

/** Limits of the interface; the daemon's configuration may set lower ones. */
#define ZINF_NAME_BYTES       64    /**< job and incarnation names, NUL included */
#define ZINF_PARAM_NAME_BYTES 96    /**< unit and parameter names, NUL included */
#define ZINF_DIMS_MAX         8     /**< dimensions of a parameter */
#define ZINF_WORLD_MAX        64    /**< ranks of a job */
#define ZINF_DP_GROUPS_MAX    256   /**< data-parallel groups of a job */
#define ZINF_BLOB_BYTES       65536 /**< resume blob of a rank */

/** Element types. The values are part of the ABI. Parameters and gradients are of the first three;
 * collectives carry all of them. */
enum zinf_dtype {
	ZINF_F32 = 1,
	ZINF_F16 = 2,
	ZINF_BF16 = 3,
	ZINF_I8 = 4,
	ZINF_U8 = 5,
	ZINF_I32 = 6,
	ZINF_I64 = 7,
	ZINF_F64 = 8
};

/** Optimizers; docs/ARITHMETIC.md defines every bit. For Lion take a tenth of AdamW's lr. */
enum zinf_optimizer { ZINF_ADAMW = 1, ZINF_ADAM, ZINF_SGD, ZINF_ADAGRAD, ZINF_LION };

/** When gradients of a step with several micro-batches are summed over the ranks. */
enum zinf_grad_reduction {
	ZINF_REDUCE_PER_STEP = 1, /**< once: each rank accumulates in its own gradient buffer */
	ZINF_REDUCE_PER_MICRO_BATCH = 2 /**< each time: the daemon accumulates the sums in fp32 */
};

/** Where optimizer state or parameters lie. */
enum zinf_offload { ZINF_OFFLOAD_NONE = 0, ZINF_OFFLOAD_CPU = 1, ZINF_OFFLOAD_NVME = 2 };

/** What is divided over the ranks (docs/API.md, "Strategies"). Parameters, gradients and state have
 * the same bits in all strategies. */
enum zinf_strategy {
	ZINF_STRATEGY_DEFAULT = 0, /**< ZINF_DDP */
	ZINF_DP = 1,               /**< nothing; all ranks in one process (zinf/replica.h) */
	ZINF_DDP = 2,              /**< nothing */
	ZINF_ZERO1 = 3,            /**< the optimizer state */
	ZINF_ZERO2 = 4,            /**< the optimizer state and the gradients */
	ZINF_ZERO3 = 5             /**< the optimizer state, the gradients and the parameters */
};

/** zinf_options.shard_size: the ranks of this node. */
#define ZINF_SHARD_NODE UINT32_MAX

/** What a commit survives: the end of processes, or also a power failure. */
enum zinf_durability { ZINF_DURABILITY_PROCESS = 0, ZINF_DURABILITY_POWER = 1 };

/** A rank's connection to its job. */
struct zinf;

struct zinf_scaler_options;

/**
 * Arguments of zinf_attach(). Initialise with ZINF_OPTIONS_INIT, then set what differs. The library
 * reads a field of a later release only when `bytes` covers it.
 */
struct zinf_options {
	uint32_t bytes;          /**< sizeof(struct zinf_options) */
	const char *socket_path; /**< NULL: $ZINF_SOCKET, else $XDG_RUNTIME_DIR/zinf/zinfd.sock
				  *   (unless only the next exists), else /run/zinf/zinfd.sock */
	const char *job;         /**< NULL: $ZINF_JOB, else "default" */
	const char *incarnation; /**< name of this start of the job. NULL: $ZINF_INCARNATION, else
				  *   TORCHELASTIC_RUN_ID "." RESTART_COUNT (no name if the run
				  *   id is "none", torchrun's default),
				  *   else SLURM_JOB_ID "." SLURM_RESTART_COUNT, else
				  *   OMPI_MCA_ess_base_jobid, else no name */
	int32_t rank;            /**< -1: from the launcher, by the first pair that is set:
				  *   $RANK, $WORLD_SIZE (torchrun, accelerate, zctl launch);
				  *   $OMPI_COMM_WORLD_RANK, $OMPI_COMM_WORLD_SIZE (mpirun);
				  *   $SLURM_PROCID, $SLURM_NTASKS (srun: only beside
				  *   $SLURM_STEP_ID); else 0. -EINVAL: no number; half a pair;
				  *   RANK and WORLD_SIZE without LOCAL_RANK, so set by hand,
				  *   that disagree with mpirun or srun */
	int32_t world_size;      /**< -1: as rank, else 1 */
	bool takeover;           /**< without an incarnation name: replace living sessions */
	bool wait_for_daemon;    /**< wait for the daemon to appear until timeout_ms has passed */
	uint32_t timeout_ms;     /**< deadline of each waiting call; 0: 600 000 (10 minutes). After
				  *   it the daemon answers with the ranks that did not come. If
				  *   the daemon does not answer either, the call returns after
				  *   another quarter of the time, at most 1 s. A job over
				  *   several nodes waits 2 s more: the nodes are asked then */
	enum zinf_dtype param_dtype; /**< ZINF_F32, ZINF_BF16 or ZINF_F16 */
	enum zinf_dtype grad_dtype;  /**< ZINF_F32 or param_dtype */
	enum zinf_optimizer optimizer;
	enum zinf_grad_reduction grad_reduction; /**< equal in all ranks */
	enum zinf_offload offload_optimizer;
	enum zinf_offload offload_param; /**< NVME: memory holds only units in use, within
				  *   param_budget_bytes; needs offload_optimizer NVME. A later
				  *   start of the job may have another setting */
	enum zinf_durability durability;
	uint64_t resident_bytes; /**< CPU bytes for a resident share of state on NVMe, in addition
				  *   to staging; rounded down to whole subgroups */
	uint64_t staging_bytes;  /**< buffers of the step's pipeline; 0: the daemon's default */
	uint64_t param_budget_bytes; /**< offload_param NVME, or ZERO3 over several nodes: CPU bytes
				  *   for the units that are unsharded, prefetched or cached.
				  *   It must hold what all ranks of a node have unsharded at
				  *   once, each unit in one piece: two of the largest unit, if
				  *   a rank has one at a time. 0: the daemon chooses (three of
				  *   the largest unit, and the units of at most an eighth of
				  *   it; on one node an eighth of the parameters, if that is
				  *   more) */
	uint32_t commit_interval; /**< 0 or 1: every step is committed. k: every k-th step. Between
				   *   commits parameters (unless they are on NVMe) and the
				   *   resident share are only in memory: a crash of the daemon
				   *   loses up to k steps. The death of ranks loses nothing: the
				   *   daemon commits when the group is over, and when it stops.
				   *   Needs a third time the space of non-resident state on
				   *   NVMe. No effect on state that is only in memory */
	uint32_t io_weight;       /**< weight of the job on stores that other jobs use too, 1 to
				   *   1000; 0: 100 */
	uint32_t snapshot_interval;   /**< N > 0: the daemon keeps every N-th committed step as
				     *   snapshot "auto-STEP" (at least six digits); with
				     *   commit_interval, or a zinf_commit() in between, the
				     *   first commit at or after it. Training waits only for
				     *   state that is only in memory (see zinf_snapshot()). The
				     *   log and `zctl jobs` report a failed one; training
				     *   continues. Needs an NVMe tier */
	uint32_t snapshot_keep;       /**< automatic snapshots of the job that stay, the newest
				     *   ones; 0: all. Snapshots by name are not counted */
	uint32_t reserved[2];         /**< zero */
	enum zinf_strategy strategy;  /**< equal in all ranks, like the next fields; a later start
				      *   may have another one. See zinf_strategy_by_name() */
	uint32_t shard_size;          /**< ZINF_ZERO1 to ZINF_ZERO3: ranks that divide one copy of a
				      *   plane: a divisor of world_size; 0: all ranks; or
				      *   ZINF_SHARD_NODE */
	uint32_t accumulation;        /**< ZINF_REDUCE_PER_STEP: micro-batches that this rank adds
				      *   up in its buffer before zinf_reduce(); 0 means 1 */
	enum zinf_dtype reduce_dtype; /**< type to which gradients and their sums over ranks are
				       *   rounded: ZINF_F32, grad_dtype, or for f32 gradients any
				       *   float; 0: grad_dtype */
	uint64_t grad_budget_bytes;   /**< ZINF_ZERO2, ZINF_ZERO3: bytes for this rank's gradients,
				       *   and with state on NVMe for its part of their sums; sums
				       *   beyond it go to the store (never sums in f32). 0: two
				       *   of the largest unit, and all sums */
	uint32_t group_count;         /**< parameter groups, at most 64; 0 means 1:
				       *   zinf_param_group() */
	bool is_forward_only;         /**< use parameters without gradients and optimizer state;
				       *   calls of a step return -EPERM. A new job then never has
				       *   state: see zinf_load(). A job that trains is used as it
				       *   is (docs/API.md, "Forward only") */
	bool finds_unused;            /**< a parameter without a gradient is no error, see
				       *   zinf_grad_done() */
	bool must_exist;              /**< join a job that is there, or whose state is stored:
				      *   zinf_attach() makes no new job, and returns -ENODATA */
	uint8_t reserved_end[1];      /**< zero */
	const struct zinf_scaler_options *scaler; /**< loss scale: zinf multiplies gradients by its
					   *   inverse, skips steps that are not finite, and moves
					   *   the scale: zinf_loss_scale(), zinf/scaler.h. Equal
					   *   in all ranks. NULL: none; the trainer then sets
					   *   unscale of each step */
};

#define ZINF_OPTIONS_INIT                                                                 \
	{                                                                                 \
		.bytes = sizeof(struct zinf_options), .rank = -1, .world_size = -1,       \
		.param_dtype = ZINF_F32, .grad_dtype = ZINF_F32, .optimizer = ZINF_ADAMW, \
		.grad_reduction = ZINF_REDUCE_PER_STEP,                                   \
	}

/** A pending asynchronous operation (a step, an operation on a tensor, a collective); 0: none. */
typedef uint64_t zinf_ticket;

/* ---- connecting ---- */

/** Version of the loaded library, such as "0.1.0". */
ZINF_API const char *zinf_version(void);

/**
 * Sets strategy and shard_size by a name: "dp", "ddp", "zero1", "zero2", "zero3"; or FSDP's:
 * "no_shard" (ddp), "shard_grad_op" (zero2), "full_shard" and "fsdp" (zero3), "hybrid_shard" (zero3
 * with ZINF_SHARD_NODE).
 * Return: 0; -EINVAL: no such name (zinf_attach_error() has the nearest), or options->bytes is that
 * of an older release.
 */
ZINF_API int zinf_strategy_by_name(const char *name, struct zinf_options *options);

/**
 * Attaches the calling process to the daemon as a rank of a job. Creates a new job, unless
 * must_exist is true.
 * @options: copied. @ret_zinf: owned by the caller, who ends it with zinf_detach().
 * Return: 0; on failure zinf_attach_error() has the text:
 *   -ENOENT  no daemon at the socket (and wait_for_daemon is false)
 *   -EACCES  the job belongs to another uid
 *   -EBUSY   a living process of this incarnation has this rank; or the job has living ranks, and
 *            neither incarnation nor takeover was given
 *   -EINVAL  rank, world size or configuration is wrong, or differs from the other ranks or from
 *            the stored job; the text shows both values
 *   -ENODATA there is no such job, and must_exist is true
 *   -ESTALE  an older incarnation
 *   -EDQUOT, -ENOSPC, -EMFILE  a limit, with its figure
 *   -EPROTONOSUPPORT  another version
 *   -ESHUTDOWN  the daemon is stopping (with wait_for_daemon the call waits for the next one)
 */
ZINF_API int zinf_attach(const struct zinf_options *options, struct zinf **ret_zinf);

/** Text of the last failed zinf_attach() of this thread; "" if it succeeded. */
ZINF_API const char *zinf_attach_error(void);

/** Text of the last failed call on @zinf, never NULL; valid until the next call. @zinf NULL: as
 * zinf_attach_error(). */
ZINF_API const char *zinf_error_text(const struct zinf *zinf);

/** Leaves the job and unmaps its memory. The job stays. @zinf may be NULL. Waits, at most the
 * deadline of a collective, until all members have come to the small collectives that this rank did
 * not wait for (zinf/coll.h). */
ZINF_API void zinf_detach(struct zinf *zinf);

/** Leaves the job, and deletes it with all its state. Waits for what the job still stores. Every
 * other rank must have left. Frees @zinf only on success. Return: 0; -EBUSY names a rank that has
 * not left, or a pending call of this one. */
ZINF_API int zinf_destroy_job(struct zinf *zinf);

/** The rank of this process, from 0, and the number of ranks. */
ZINF_API int32_t zinf_rank(const struct zinf *zinf);
ZINF_API int32_t zinf_world_size(const struct zinf *zinf);

/** A round trip through the daemon without work: health check and latency probe. */
ZINF_API int zinf_ping(struct zinf *zinf);

/* ---- the model ---- */

/**
 * Begins a data-parallel group: only its ranks train the units that follow, until the next call.
 * Only they have gradients of these units, and averages are over them. Each part of a tensor- or
 * pipeline-parallel model has one group. Without a call all ranks train every unit; the first call
 * comes before the first unit. Every rank makes the same calls. A rank outside a group may unshard
 * its parameters, and has no gradient. Norm and clipping cover all units, each once. Groups may
 * overlap. The next start of a job may have others. Call it before zinf_materialize(), which
 * refuses a shard_size that does not divide a larger group.
 * @name: a known name with the same ranks continues that group. @ranks: (@rank_count,) in any
 * order; NULL with 0: all. @ret_group: its number, from 0.
 * Return: 0; -EINVAL no ranks, a rank that does not exist or is named twice, or a known name with
 * other ranks; -E2BIG there are ZINF_DP_GROUPS_MAX; -EOPNOTSUPP an older daemon.
 */
ZINF_API int zinf_dp_group_add(struct zinf *zinf, const char *name, const uint32_t *ranks,
                               uint32_t rank_count, uint32_t *ret_group);

/** Begins a unit: parameters that are unsharded, freed and reduced together (one module).
 * @name: unique in the job. @ret_unit: its index, from 0. Before zinf_materialize(). */
ZINF_API int zinf_unit_add(struct zinf *zinf, const char *name, uint32_t *ret_unit);

/** Adds a parameter to the newest unit. @shape: (@dim_count,) elements per dimension, row-major,
 * each at least 1; dim_count 0 is a scalar. @name: unique in the job (else zinf_materialize() fails
 * with -EINVAL). @ret_param: its index in the job, from 0. */
ZINF_API int zinf_param_add(struct zinf *zinf, const char *name, uint32_t dim_count,
                            const uint64_t *shape, uint32_t *ret_param);

/** zinf_param_group(): a parameter that is not trained. Its gradient counts as +0; value and
 * optimizer state do not change. A unit with only such parameters has no gradient: zinf_grad_data()
 * is NULL, zinf_grad_acquire() and zinf_reduce() return -EPERM, and a step does not read or write
 * it. */
#define ZINF_GROUP_FROZEN 0xffffu

/** Puts a parameter into a parameter group, 0 to zinf_options.group_count - 1 (default 0), or
 * freezes it. Each group has its own lr and weight_decay (zinf_step_options.groups). Equal in all
 * ranks; a later start may have others. Before zinf_materialize(). -EOPNOTSUPP: an older daemon. */
ZINF_API int zinf_param_group(struct zinf *zinf, uint32_t param, uint32_t group);

/**
 * Begins a new job with a snapshot: its parameters, optimizer state, step and blobs, without
 * copying. All ranks call it alike before zinf_materialize(), which then finds a committed step. A
 * job with a step of its own ignores the call, so a restarted trainer may keep it. World size and
 * offload may differ from the snapshot's; blobs go to the ranks of the same number. Over several
 * nodes every node needs the snapshot: all of it, or its own part (docs/CHECKPOINT.md).
 * is_forward_only: loads only parameters, of any optimizer; such a job cannot train later.
 * @source: "JOB/NAME".
 * Return: 0; -ENOENT no such snapshot, or another uid's; -EINVAL dtype or optimizer differ from the
 * snapshot's (zinf_materialize() refuses another model, parts of another placement, and nodes with
 * different steps); -EBUSY it is being made or removed, or the job is materialized; -EUCLEAN,
 * -ENODEV it cannot be read; -EOPNOTSUPP an older daemon.
 */
ZINF_API int zinf_load(struct zinf *zinf, const char *source);

/**
 * Collective: compares the model over all ranks and with the stored job, reserves space, loads the
 * last committed parameters and maps everything.
 * Return: 0; -EINVAL a parameter differs (the text has rank, name and both shapes); -ENOSPC,
 * -EDQUOT no memory or space, with figures; -EBADMSG stored data is damaged; -ETIMEDOUT with the
 * ranks that did not come.
 */
ZINF_API int zinf_materialize(struct zinf *zinf);

/** The newest committed step that this rank knows; -1: nothing was committed. After
 * zinf_materialize(). */
ZINF_API int64_t zinf_committed_step(const struct zinf *zinf);

/** Number of steps that changed the parameters, as they are now; skipped steps do not count. Give
 * it to the schedule of the learning rate, so that a resumed run continues its curve. It is known
 * after zinf_materialize(), and each zinf_wait() brings that of its step. -1: an older daemon does
 * not send it. */
ZINF_API int64_t zinf_update_count(const struct zinf *zinf);

/**
 * The factor for the loss, or its gradient, of the next backward: the scale of zinf_options.scaler
 * after the last step; 1 without one. Each step commits its state, so a resumed job continues its
 * curve. A forward of the next step may begin before the last step was waited for.
 * Return: 0; -EBUSY a step was not waited for, and may change the scale; -EINVAL before
 * zinf_materialize().
 */
ZINF_API int zinf_loss_scale(struct zinf *zinf, double *ret_scale);

/** Address of a parameter (read-only, param_dtype, row-major), fixed until detach. The values are
 * defined between zinf_unshard() and zinf_reshard() of its unit. NULL: no such parameter. */
ZINF_API const void *zinf_param_data(const struct zinf *zinf, uint32_t param);

/** Whether the address of a parameter has its values now in this rank: its unit is unsharded, or
 * writable (zinf_param_write_begin()). Otherwise the address has the values of another step, or no
 * memory. false: also before zinf_materialize(), and if there is no such parameter. */
ZINF_API bool zinf_param_is_resident(const struct zinf *zinf, uint32_t param);

/** Address of this rank's gradient of a parameter (grad_dtype), writable between
 * zinf_grad_acquire() and zinf_reduce() of its unit. NULL: no such parameter, or this rank has no
 * gradient of it. */
ZINF_API void *zinf_grad_data(const struct zinf *zinf, uint32_t param);

/**
 * Makes a unit's parameters writable in this rank, at the same address, until
 * zinf_param_write_end(): a private copy of the present values. Only between steps.
 * Return: 0; -EBUSY a step is under way; or steps are not committed (commit_interval): call
 * zinf_commit() first; or, with parameters on NVMe, the unit is unsharded; -EALREADY it is
 * writable.
 */
ZINF_API int zinf_param_write_begin(struct zinf *zinf, uint32_t unit);

/**
 * All ranks call it, unit by unit. The values of rank @root, which called write_begin, become the
 * parameters of the unit in all ranks, and its optimizer state becomes zero
 * (zinf_param_write_keep() keeps it). All ranks pass the same root, a rank of the unit's
 * data-parallel group. zinf_commit() commits the values. Parameters on NVMe are written to the
 * store at once, and a step may begin only after zinf_commit().
 * Return: 0; -EBUSY names a rank that has the unit unsharded; -ENOSPC, -EIO of the store.
 */
ZINF_API int zinf_param_write_end(struct zinf *zinf, uint32_t unit, int32_t root);

/**
 * Collective: commits values of zinf_param_write_end(), and with commit_interval the uncommitted
 * steps. A new job is then at step 0.
 * @blob: as for zinf_step(). Return: 0; -EIO and the like: the store failed, nothing is committed.
 */
ZINF_API int zinf_commit(struct zinf *zinf, const void *blob, size_t blob_bytes);

/** The blob that the rank with this rank's number gave with the step at which the job stands, on
 * any node. @buffer: (@capacity,) bytes; NULL to ask for the size. @ret_bytes: 0 if that rank gave
 * none, or did not exist. Return: 0; -ENOBUFS capacity is too small. */
ZINF_API int zinf_blob_get(struct zinf *zinf, void *buffer, size_t capacity, size_t *ret_bytes);

/* ---- a step ---- */

/** Waits until the unit's parameters are present, at the current step, and pins them. Calls nest.
 * Return: 0; -EBUSY (until zinf_step()) this step promised update_early, and the unit's last
 * gradient was handed over, or the unit is of another data-parallel group; -ENOSPC parameters on
 * NVMe: param_budget_bytes can never hold what ranks have unsharded and wait for, with figures;
 * -EBADMSG, -EIO and the like: they are damaged or cannot be read; the text says where, and the
 * call may be repeated. */
ZINF_API int zinf_unshard(struct zinf *zinf, uint32_t unit);

/** Ends one use of the unit. -EINVAL: it is not unsharded. */
ZINF_API int zinf_reshard(struct zinf *zinf, uint32_t unit);

/** Starts zinf_unshard() without waiting: a hint. */
ZINF_API int zinf_prefetch(struct zinf *zinf, uint32_t unit);

/** Waits until the unit's gradient buffer belongs to this rank again. Its content is undefined.
 * Return: 0; -EPERM (also of zinf_reduce()) this rank is not in the unit's data-parallel group, or
 * all its parameters are frozen; -EDEADLK (ZINF_ZERO2, ZINF_ZERO3) there will never be room,
 * because every rank waits; the text names what each rank holds. */
ZINF_API int zinf_grad_acquire(struct zinf *zinf, uint32_t unit);

/** Hands the unit's gradient to the reduction, without waiting. The daemon owns the buffer until
 * the next zinf_grad_acquire(). Once per step, or with ZINF_REDUCE_PER_MICRO_BATCH once per
 * micro-batch. With update_early the last call of a step also ends this rank's uses of the unit's
 * parameters, except the one that zinf_reshard() ends. Return: 0; -EALREADY it was handed over
 * before; -EINVAL it was not acquired, or no step is under way; -ENODATA parameters without a
 * gradient, see zinf_grad_done(); the call may be repeated. */
ZINF_API int zinf_reduce(struct zinf *zinf, uint32_t unit);

/** Begins a step with its hyperparameters (with is_deferred: without), and reserves space on the
 * store. Return: 0; -ENOSPC with figures; -EINVAL the options differ between ranks (the text has
 * rank, field, both values); -EOPNOTSUPP is_deferred or group_betas with an older daemon, or in a
 * job over several nodes. */
ZINF_API int zinf_step_begin(struct zinf *zinf, const struct zinf_step_options *options);

/**
 * Ends this rank's part of a step: every unit of its groups was reduced, and none is unsharded. The
 * ticket completes when the step is committed (with commit_interval: when it is made, and committed
 * later). Unshards of the next forward do not wait for it.
 * @blob: (@blob_bytes,) bytes, at most ZINF_BLOB_BYTES, committed with the step: all that this rank
 * needs to resume (random state, position in the data, schedule). May be NULL.
 * Return: 0; -ENODATA gradients are missing, -EBUSY a unit is still unsharded: the text names the
 * units, and the call may be repeated; -ENOBUFS too many tickets (as many as the ring has entries)
 * were never waited for.
 */
ZINF_API int zinf_step(struct zinf *zinf, const void *blob, size_t blob_bytes,
                       zinf_ticket *ret_ticket);

/** Waits for a ticket, once (again after -ETIMEDOUT). @ret_stats: NULL, or set its `bytes` before.
 * Return: 0, also for a committed step whose session has ended since; the error that ended the
 * step; -EINVAL no such ticket; -ERANGE a gradient was not finite at the least loss scale, see
 * zinf_scaler_update() (the text has rank and unit): the step is committed as skipped, and the
 * group is over. */
ZINF_API int zinf_wait(struct zinf *zinf, zinf_ticket ticket, struct zinf_step_stats *ret_stats);

/** Waits until all ranks of the job have called it. */
ZINF_API int zinf_barrier(struct zinf *zinf);

#ifdef __cplusplus
}
#endif

#include <zinf/coll.h>
#include <zinf/deferred.h>
#include <zinf/gpu.h>
#include <zinf/grad.h>
#include <zinf/layout.h>
#include <zinf/lr.h>
#include <zinf/replica.h>
#include <zinf/rows.h>
#include <zinf/scaler.h>
#include <zinf/snapshot.h>
#include <zinf/state.h>
#include <zinf/tensor.h>
#include <zinf/wait.h>

#endif
