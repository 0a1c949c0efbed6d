/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file zinf.h
 * libzinf: how a training process uses the memory of its node through zinfd.
 *
 * A *job* is one training run. It outlives its processes: its parameters, optimizer state and the
 * number of its last committed step stay with the daemon. A process is one *rank* of the job; its
 * connection is its lease. The life of a rank:
 *
 *     zinf_attach()                      which job, which rank of how many
 *     zinf_unit_add(), zinf_param_add()  the model: units (what is gathered together), parameters
 *     zinf_materialize()                 collective: layouts compared, memory appears
 *     if zinf_committed_step() < 0:      a new job: somebody writes the first values
 *         zinf_param_write_begin(), write, zinf_param_write_end(), zinf_commit()
 *     else zinf_blob_get()               a resumed one: where the data loader stood
 *     for each step:
 *         zinf_step_begin()
 *         for each unit: zinf_unshard(), forward, zinf_reshard()
 *         for each unit in reverse: zinf_unshard(), zinf_grad_acquire(), backward,
 *                                   zinf_reduce(), zinf_reshard()
 *         zinf_step(), later zinf_wait()
 *     zinf_detach()
 *
 * Errors: every function that can fail returns 0 or a negative errno and leaves its outputs
 * untouched on failure; zinf_error_text() then says what was wrong, with figures, and what to do.
 * The errnos that any call may return:
 *   -ESTALE      the daemon went away or restarted, or a newer incarnation of the job replaced this
 *                process: detach and attach again (the job stands at its last committed step)
 *   -EPIPE       another rank of the job died or left; the text names it. This incarnation of the
 *                group is over: detach; survivors may attach again
 *   -ETIMEDOUT   the deadline passed; the text names who did not come
 *   -EINVAL      an argument is wrong; the text says which and what is allowed
 *   -EPROTO      the two sides disagree about the protocol; the session is over
 *   -EOPNOTSUPP  not built yet
 *
 * Calls that do not wait (zinf_reshard(), zinf_prefetch(), zinf_reduce()) report what is wrong with
 * the call itself; what the daemon answers later is kept, and returned once, by the next
 * zinf_unshard() or zinf_grad_acquire() of that unit, or by the next zinf_step().
 * After a deadline has passed a call may be made again: it goes on waiting for the same thing.
 *
 * Threads: a struct zinf belongs to the thread that uses it; one thread at a time.
 * Fork: mappings are not inherited by children (MADV_DONTFORK); a child must attach by itself.
 *
 * Memory: pointers from zinf_param_data() and zinf_grad_data() are fixed from zinf_materialize() to
 * zinf_detach(). They are the daemon's memory: parameters are mapped read-only. With offload_param
 * of ZINF_OFFLOAD_NVME, and with ZINF_ZERO3 over several nodes, nothing lies behind a parameter
 * that is not unsharded, and with ZINF_ZERO2 or ZINF_ZERO3 perhaps nothing behind a gradient that
 * is not acquired: touching it is a fault (SIGSEGV).
 */
#ifndef ZINF_ZINF_H
#define ZINF_ZINF_H

/* C++ compilers warn, on request, of designated and of missing initialisers: of the macros' too,
 * wherever they are used, unless this is a system's header. */
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

/** Element types. The values are part of the ABI. Parameters and gradients are floats; collectives
 * carry integers too. */
enum zinf_dtype {
	ZINF_F32 = 1,
	ZINF_F16 = 2,
	ZINF_BF16 = 3,
	ZINF_I8 = 4,
	ZINF_U8 = 5,
	ZINF_I32 = 6,
	ZINF_I64 = 7
};

/** Optimizers (docs/ARITHMETIC.md has every bit of them). Lion wants a tenth of AdamW's lr. */
enum zinf_optimizer { ZINF_ADAMW = 1, ZINF_ADAM, ZINF_SGD, ZINF_ADAGRAD, ZINF_LION };

/** How often the gradients of a step with several micro-batches are summed over the ranks. */
enum zinf_grad_reduction {
	ZINF_REDUCE_PER_STEP = 1, /**< once: each rank accumulates in its own gradient buffer */
	ZINF_REDUCE_PER_MICRO_BATCH = 2 /**< each time: the daemon accumulates the sums in fp32 */
};

/** Where optimizer state or parameters live. */
enum zinf_offload { ZINF_OFFLOAD_NONE = 0, ZINF_OFFLOAD_CPU = 1, ZINF_OFFLOAD_NVME = 2 };

/** What a rank has a share of only, and no longer all (docs/API.md, "Strategies"). Parameters,
 * gradients and state are the same, bit for bit, in all of them. */
enum zinf_strategy {
	ZINF_STRATEGY_DEFAULT = 0, /**< ZINF_DDP */
	ZINF_DP = 1,               /**< nothing; all ranks in one process (zinf/replica.h) */
	ZINF_DDP = 2,              /**< nothing */
	ZINF_ZERO1 = 3,            /**< of the optimizer state */
	ZINF_ZERO2 = 4,            /**< and of gradients */
	ZINF_ZERO3 = 5             /**< and of parameters */
};

/** zinf_options.shard_size: the ranks of this node. */
#define ZINF_SHARD_NODE UINT32_MAX

/** What a commit survives. */
enum zinf_durability { ZINF_DURABILITY_PROCESS = 0, ZINF_DURABILITY_POWER = 1 };

/** A rank's connection to its job. */
struct zinf;

struct zinf_scaler_options;

/**
 * What zinf_attach() needs. Initialise with ZINF_OPTIONS_INIT, then set what differs; a field that
 * is added later is read only when `bytes` says that the caller knows it.
 */
struct zinf_options {
	uint32_t bytes;          /**< sizeof(struct zinf_options) */
	const char *socket_path; /**< NULL: $ZINF_SOCKET, else $XDG_RUNTIME_DIR/zinf/zinfd.sock
				  *   (unless only the next exists), else /run/zinf/zinfd.sock */
	const char *job;         /**< NULL: $ZINF_JOB, else "default" */
	const char *incarnation; /**< NULL: $ZINF_INCARNATION, else
				  *   TORCHELASTIC_RUN_ID "." RESTART_COUNT (of run
				  *   id "none", torchrun's default: none),
				  *   else SLURM_JOB_ID "." SLURM_RESTART_COUNT, else
				  *   OMPI_MCA_ess_base_jobid, else none */
	int32_t rank;            /**< -1: from the launcher, the first of these pairs there is:
				  *   $RANK, $WORLD_SIZE (torchrun, accelerate, zctl launch);
				  *   $OMPI_COMM_WORLD_RANK, $OMPI_COMM_WORLD_SIZE (mpirun);
				  *   $SLURM_PROCID, $SLURM_NTASKS (srun: only beside
				  *   $SLURM_STEP_ID); else 0. -EINVAL: no number; half a pair;
				  *   RANK and WORLD_SIZE without LOCAL_RANK, so set by hand,
				  *   that disagree with mpirun or srun */
	int32_t world_size;      /**< -1: as rank, else 1 */
	bool takeover;           /**< without an incarnation name: replace living sessions */
	bool wait_for_daemon;    /**< wait for the daemon to appear until timeout_ms has passed */
	uint32_t timeout_ms;     /**< of each waiting call; 0: 600 000 (10 minutes). When it
				  *   has passed the daemon answers, naming who did not come;
				  *   should the daemon itself not answer, a call returns a
				  *   quarter later, at most 1 s */
	enum zinf_dtype param_dtype; /**< ZINF_F32, ZINF_BF16 or ZINF_F16 */
	enum zinf_dtype grad_dtype;  /**< ZINF_F32 or param_dtype */
	enum zinf_optimizer optimizer;
	enum zinf_grad_reduction grad_reduction; /**< equal in all ranks */
	enum zinf_offload offload_optimizer;
	enum zinf_offload offload_param; /**< NVME: only units in use lie in memory, within
				  *   param_budget_bytes; needs offload_optimizer NVME. A job may
				  *   be attached to with another setting than before */
	enum zinf_durability durability;
	uint64_t resident_bytes; /**< CPU bytes for a resident share of NVMe state, in addition to
				  *   staging; whole subgroups are taken while they fit */
	uint64_t staging_bytes;  /**< buffers of the step's pipeline; 0: the daemon's default */
	uint64_t param_budget_bytes; /**< offload_param NVME, ZERO3 over several nodes: CPU bytes
				  *   for parameters of units that are unsharded, prefetched or
				  *   kept; at least what all ranks of a node together have
				  *   unsharded at once, each unit in one piece: two of the
				  *   largest do where a rank has one at a time. 0: the daemon
				  *   chooses (three of the largest unit beside those of at most
				  *   an eighth of it; in one node an eighth of the parameters,
				  *   if that is more) */
	uint32_t commit_interval; /**< 0 or 1: every step is committed. k: every k-th. In between,
				   *   parameters (unless they are on NVMe) and the resident share
				   *   stay in memory alone and are not written: a crash of the
				   *   daemon then falls back by at most k steps. The death of
				   *   ranks costs nothing: what is there is committed when the
				   *   group is over, and when the daemon stops. For state on
				   *   NVMe, which takes a third time the space of what is not
				   *   resident; without effect on state in memory alone */
	uint32_t io_weight;       /**< share of the stores it is on, while other jobs want them too:
				   *   1 to 1000, in proportion to theirs; 0: 100 */
	uint32_t snapshot_interval;  /**< more than 0: the daemon keeps every such step, when it is
				     *   committed, as snapshot "auto-N" (N: six digits at least).
				     *   With commit_interval, or a zinf_commit() in between, the
				     *   first commit at or after it. Training does not wait, but
				     *   where state is in memory alone (see zinf_snapshot()). One
				     *   that fails is told in the daemon's log and by `zctl
				     *   jobs`; training goes on. Needs an NVMe tier */
	uint32_t snapshot_keep;      /**< of the job's automatic snapshots the newest so many stay,
				     *   older ones are removed once a new one is kept; 0: all.
				     *   Those that were asked for by name are not counted */
	uint32_t reserved[2];        /**< zero */
	enum zinf_strategy strategy; /**< equal in all ranks, as are the next; a job may come with
				      *   another one than before. See zinf_strategy_by_name() */
	uint32_t shard_size;         /**< ZINF_ZERO1 to ZINF_ZERO3: so many ranks share a plane, and
				      *   as many others have another copy of it: a divisor of
				      *   world_size; 0: all ranks; ZINF_SHARD_NODE */
	uint32_t accumulation;       /**< ZINF_REDUCE_PER_STEP: micro-batches that this rank adds
				      *   up in its buffer before zinf_reduce(); 0 is 1 */
	enum zinf_dtype reduce_dtype; /**< to which gradients are rounded when they are summed over
				       *   ranks, and their sums: ZINF_F32, or of f32 gradients any;
				       *   0: grad_dtype */
	uint64_t grad_budget_bytes;   /**< ZINF_ZERO2, ZINF_ZERO3: of this rank's gradients under
				       *   way, and with the optimizer's state on NVMe of its part
				       *   of their sums, which beyond it go there too (never in
				       *   f32); 0: two of the largest unit, and all sums */
	uint32_t group_count;         /**< of parameters, to 64; 0 is 1: zinf_param_group() */
	bool is_forward_only;         /**< parameters are used, without gradients or optimizer
				       *   state, and calls of a step are -EPERM. A new job has no
				       *   state then, for good: see zinf_load(). One that trains is
				       *   used as it stands (docs/API.md, "Forward only") */
	bool finds_unused;            /**< a parameter without a gradient is no error, see
				       *   zinf_grad_done() */
	uint8_t reserved_end[2];      /**< zero */
	const struct zinf_scaler_options *scaler; /**< zinf multiplies gradients by the inverse of a
					   *   loss scale, skips steps that are not finite, and
					   *   moves the scale: zinf_loss_scale() (zinf/scaler.h
					   *   has the kinds). Equal in all ranks. NULL: none;
					   *   unscale of each step is the trainer's then */
};

#define ZINF_OPTIONS_INIT                                                                 \
	{                                                                                 \
		.bytes = sizeof(struct zinf_options), .rank = -1, .world_size = -1,       \
		.param_dtype = ZINF_F32, .grad_dtype = ZINF_F32, .optimizer = ZINF_ADAMW, \
		.grad_reduction = ZINF_REDUCE_PER_STEP,                                   \
	}

/** A pending asynchronous operation (a step, one on a tensor, a collective); 0 is none. */
typedef uint64_t zinf_ticket;

/* ---- connecting ---- */

/** "0.1.0" of the library that is loaded. */
ZINF_API const char *zinf_version(void);

/**
 * Sets strategy and shard_size by a name: "dp", "ddp", "zero1", "zero2", "zero3"; or FSDP's:
 * "no_shard" (ddp), "shard_grad_op" (zero2), "full_shard" and "fsdp" (zero3), "hybrid_shard" (zero3
 * with ZINF_SHARD_NODE).
 * Return: 0; -EINVAL: no such name (zinf_attach_error() has the nearest), or options of a former
 * size.
 */
ZINF_API int zinf_strategy_by_name(const char *name, struct zinf_options *options);

/**
 * Attaches the calling process to the daemon as a rank of a job, creating the job when it is new.
 * @options: copied. @ret_zinf: owned by the caller, zinf_detach() it.
 * Return: 0; -ENOENT no daemon at the socket (and not asked to wait); -EACCES the job belongs to
 * another uid; -EBUSY this rank is taken by a living process (same incarnation), or the job is and
 * neither incarnation nor takeover was given; -EINVAL rank, world size or configuration is wrong or
 * differs from the other ranks' or the stored job's (the text shows both); -ESTALE an older
 * incarnation; -EDQUOT, -ENOSPC, -EMFILE a limit, with its figure; -EPROTONOSUPPORT versions;
 * -ESHUTDOWN the daemon is stopping (with wait_for_daemon the next one is waited for).
 * On failure zinf_attach_error() has the text.
 */
ZINF_API int zinf_attach(const struct zinf_options *options, struct zinf **ret_zinf);

/** Why the last zinf_attach() of this thread failed; "" when it did not. */
ZINF_API const char *zinf_attach_error(void);

/** Why the last call on @zinf failed. Valid until the next call; never NULL. Of NULL: an attach. */
ZINF_API const char *zinf_error_text(const struct zinf *zinf);

/** Leaves the job and unmaps its memory. The job stays. NULL is fine. Waits, for a collective's
 * timeout at most, until all members have come to the small collectives that this rank did not wait
 * for (zinf/coll.h). */
ZINF_API void zinf_detach(struct zinf *zinf);

/** Leaves, and asks the daemon to delete the job and all its state. Every other rank must have
 * left; -EBUSY names one that has not, or a call of this one. What the job is still storing for
 * those who left is waited for. @zinf is gone on success only. */
ZINF_API int zinf_destroy_job(struct zinf *zinf);

/** The rank of this process, from 0, and the number of ranks. */
ZINF_API int32_t zinf_rank(const struct zinf *zinf);
ZINF_API int32_t zinf_world_size(const struct zinf *zinf);

/** A round trip through the daemon that does nothing: health check and latency probe. */
ZINF_API int zinf_ping(struct zinf *zinf);

/** A file descriptor that becomes readable when the session ends, for poll loops; never read it. */
ZINF_API int zinf_event_fd(const struct zinf *zinf);

/* ---- the model ---- */

/**
 * Begins a data-parallel group: only its ranks train the units that are added next, until another
 * call. They alone have gradients of these units, and averages are over them. One group serves each
 * part of a tensor- or pipeline-parallel model. Without a call all ranks train every unit; the
 * first call comes before the first unit. Every rank makes the same calls, also for groups that it
 * is not in: there it may unshard parameters, and has no gradient. Norm and clipping cover all
 * units, each once. Groups may overlap, and the next start of a job may have others.
 * @name: a known name with the same ranks continues that group. @ranks: (@rank_count,) in any
 * order; NULL with 0: all. @ret_group: its number, from 0. Before zinf_materialize(), which refuses
 * a shard_size that does not divide a larger group.
 * Return: 0; -EINVAL no ranks, a rank that does not exist or is named twice, or a known name with
 * other ranks; -E2BIG there are ZINF_DP_GROUPS_MAX; -EOPNOTSUPP an older daemon.
 */
ZINF_API int zinf_dp_group_add(struct zinf *zinf, const char *name, const uint32_t *ranks,
                               uint32_t rank_count, uint32_t *ret_group);

/** Begins a unit: the parameters that are gathered, freed and reduced together (one module).
 * @name: unique in the job. @ret_unit: its index, counting from 0. Before zinf_materialize(). */
ZINF_API int zinf_unit_add(struct zinf *zinf, const char *name, uint32_t *ret_unit);

/** Adds a parameter to the newest unit. @shape: (@dim_count,) elements per dimension, row-major,
 * each at least 1; dim_count 0 is a scalar. @name: unique in the job (else zinf_materialize() fails
 * with -EINVAL). @ret_param: its index in the job, from 0. */
ZINF_API int zinf_param_add(struct zinf *zinf, const char *name, uint32_t dim_count,
                            const uint64_t *shape, uint32_t *ret_param);

/** zinf_param_group(): a parameter that is not trained. Its gradient counts as +0, whatever lies
 * there; value and optimizer state stay as they are. A unit of such parameters alone has no
 * gradient: zinf_grad_data() is NULL, zinf_grad_acquire() and zinf_reduce() are refused, a step
 * neither asks for it nor reads nor writes it. */
#define ZINF_GROUP_FROZEN 0xffffu

/** Puts a parameter into a group, 0 to zinf_options.group_count - 1 (else 0), or freezes it: each
 * group has an lr and weight_decay of its own in each step (zinf_step_options.groups). Equal in all
 * ranks; a job may come back with other groups. Before zinf_materialize(). -EOPNOTSUPP an older
 * daemon. */
ZINF_API int zinf_param_group(struct zinf *zinf, uint32_t param, uint32_t group);

/**
 * A new job begins with a snapshot: its parameters, optimizer state, step and blobs, without
 * copying. By every rank alike, before zinf_materialize(), which then finds a committed step. The
 * world's size and the offload settings may be others than the snapshot's; blobs go to the ranks of
 * the same number. A job that has a step of its own goes on from there, whatever is loaded: a
 * trainer that is restarted need not take the call away. Over several nodes every one of them has
 * the snapshot: all of it, or what it made itself of its part (docs/CHECKPOINT.md).
 * @source: "JOB/NAME".
 * Return: 0; -ENOENT no such snapshot, or another uid's; -EINVAL dtype or optimizer are others
 * than the snapshot's (zinf_materialize() refuses another model, parts of another placement, nodes
 * with different steps); -EBUSY it is being made or removed, or the job is materialised; -EUCLEAN,
 * -ENODEV it cannot be read; -EOPNOTSUPP an older daemon. is_forward_only: parameters alone, of any
 * optimizer; what such a job kept trains nobody.
 */
ZINF_API int zinf_load(struct zinf *zinf, const char *source);

/**
 * Collective: compares the model over all ranks and with the stored job, reserves space, loads the
 * last committed parameters and maps everything.
 * Return: 0; -EINVAL a parameter differs (rank, name and both shapes in the text); -ENOSPC or
 * -EDQUOT memory or store, with the figures; -EBADMSG stored data is damaged; -ETIMEDOUT naming
 * the ranks that did not come.
 */
ZINF_API int zinf_materialize(struct zinf *zinf);

/** The newest committed step that this rank knows of; -1 when nothing was ever committed. After
 * zinf_materialize(). */
ZINF_API int64_t zinf_committed_step(const struct zinf *zinf);

/** How many steps changed the parameters so far, of those in force: by it schedules of learning
 * rates count, so that a resumed run goes on in its curve. A step that was skipped does not count.
 * After zinf_materialize(); then of the newest step that was waited for. -1: an older daemon does
 * not say. */
ZINF_API int64_t zinf_update_count(const struct zinf *zinf);

/**
 * What the loss, or its gradient, of the next backward is to be multiplied by: of zinf_options.
 * scaler, as the last step left it; 1 without one. The state is committed with each step, so that a
 * job that is resumed goes on in the same curve. A forward of the next step may begin before the
 * last one was waited for, as long as only backward asks.
 * Return: 0; -EBUSY a step was not waited for, and may move the scale; -EINVAL before
 * zinf_materialize().
 */
ZINF_API int zinf_loss_scale(struct zinf *zinf, double *ret_scale);

/** Address of a parameter (read-only, dtype param_dtype, row-major), fixed until detach. What is
 * behind it is defined between zinf_unshard() and zinf_reshard() of its unit. NULL: no such. */
ZINF_API const void *zinf_param_data(const struct zinf *zinf, uint32_t param);

/** Address of this rank's gradient of a parameter (grad_dtype). Writable between
 * zinf_grad_acquire() and zinf_reduce() of its unit. NULL: none, no such, or of a
 * data-parallel group of others. */
ZINF_API void *zinf_grad_data(const struct zinf *zinf, uint32_t param);

/**
 * Makes a unit's parameters writable in this rank: a private copy of the present values at the same
 * address, until zinf_param_write_end(). Between steps only.
 * Return: 0; -EBUSY a step is under way, or steps are not committed (commit_interval):
 * zinf_commit() first; or, with parameters on NVMe, the unit is unsharded; -EALREADY it is
 * writable.
 */
ZINF_API int zinf_param_write_begin(struct zinf *zinf, uint32_t unit);

/**
 * Collective over all ranks, unit by unit: the values of rank @root, which called write_begin,
 * become the unit's parameters. The unit's optimizer state becomes zero. All ranks pass the same
 * root, a rank of the unit's data-parallel group. zinf_commit() commits the values. With parameters
 * on NVMe they are written to the store at once, and a step may begin only after zinf_commit().
 * Return: 0; -EBUSY naming a rank that has the unit unsharded; -ENOSPC, -EIO of the store.
 */
ZINF_API int zinf_param_write_end(struct zinf *zinf, uint32_t unit, int32_t root);

/**
 * Collective: commits what zinf_param_write_end() stored, and with commit_interval the steps that
 * are not committed yet; a new job then stands at step 0.
 * @blob: as for zinf_step(). Return: 0; -EIO and the like when the store failed: nothing is
 * committed.
 */
ZINF_API int zinf_commit(struct zinf *zinf, const void *blob, size_t blob_bytes);

/** The blob that the rank of this number committed with the present step, on whichever node it was.
 * @buffer: (capacity,) bytes, may be NULL to ask for the size. @ret_bytes: 0 when there is none: it
 * gave none, or there was no such rank. -ENOBUFS when capacity is too small. */
ZINF_API int zinf_blob_get(struct zinf *zinf, void *buffer, size_t capacity, size_t *ret_bytes);

/* ---- a step ---- */

/** Waits until the unit's parameters are present and at the current step, and pins them. Nests.
 * -EBUSY: this step promised update_early and the unit's last gradient was handed over, or the unit
 * is in a data-parallel group of others; it is there again after zinf_step(). With parameters on
 * NVMe: -ENOSPC when param_budget_bytes can never hold what ranks have unsharded and wait for
 * (figures in the text; nobody waits for ever); -EBADMSG, -EIO and the like when they are damaged
 * or cannot be read: the text says where, and the call may be made again. */
ZINF_API int zinf_unshard(struct zinf *zinf, uint32_t unit);

/** Declares this use of the unit over. -EINVAL when it was not unsharded. */
ZINF_API int zinf_reshard(struct zinf *zinf, uint32_t unit);

/** Starts zinf_unshard() without waiting: a hint. */
ZINF_API int zinf_prefetch(struct zinf *zinf, uint32_t unit);

/** Waits until the unit's gradient buffer belongs to this rank again; what is in it is not defined.
 * -EPERM, also of zinf_reduce(): this rank is not in the unit's data-parallel group, or all its
 * parameters are frozen.
 * -EDEADLK (ZINF_ZERO2, ZINF_ZERO3): there is no room for it, nor will there be, since every rank
 * waits; the text names what each of them holds. */
ZINF_API int zinf_grad_acquire(struct zinf *zinf, uint32_t unit);

/** Hands the unit's gradient to the reduction; the buffer belongs to the daemon until the next
 * zinf_grad_acquire(). Does not wait. With update_early the last one of a step declares this rank's
 * uses of the unit's parameters over, but for the one that zinf_reshard() ends. Once per step, or
 * with ZINF_REDUCE_PER_MICRO_BATCH per micro-batch. -EALREADY when it was handed over before;
 * -EINVAL when it was not acquired, or outside zinf_step_begin() … zinf_step(); -ENODATA
 * parameters without a gradient, see zinf_grad_done(); it may be called again. */
ZINF_API int zinf_reduce(struct zinf *zinf, uint32_t unit);

/** Begins a step: hyperparameters, and space on the store is reserved. -ENOSPC with figures;
 * -EINVAL when the options differ between ranks (the text names rank, field and both values). */
ZINF_API int zinf_step_begin(struct zinf *zinf, const struct zinf_step_options *options);

/**
 * Ends this rank's part of a step: every unit of its groups was reduced, and none is unsharded. The
 * ticket completes when the step is committed (with commit_interval: written, as far as it is);
 * unshards of the next forward do not wait for it.
 * @blob: (@blob_bytes,) bytes, at most ZINF_BLOB_BYTES: whatever lets this rank go on from here
 * (random state, position in the data, schedule); committed with the step. May be NULL.
 * Return: 0; -ENODATA gradients are missing, -EBUSY a unit is still unsharded: the text names
 * units, and the call may be made again when that is mended; -ENOBUFS when as many tickets as the
 * ring has entries were never waited for.
 */
ZINF_API int zinf_step(struct zinf *zinf, const void *blob, size_t blob_bytes,
                       zinf_ticket *ret_ticket);

/** Waits for a ticket. @ret_stats may be NULL; set its `bytes` before. A ticket is waited for once
 * (again after -ETIMEDOUT). Return: 0; the error that ended the step; -EINVAL no such ticket. A
 * step that was committed is reported as such even when the session has ended since. -ERANGE: a
 * gradient was not finite at the least loss scale, see zinf_scaler_update() (the text has rank and
 * unit): the step is committed as skipped, and the group is over. */
ZINF_API int zinf_wait(struct zinf *zinf, zinf_ticket ticket, struct zinf_step_stats *ret_stats);

/** As zinf_wait(), with a deadline of its own: after @timeout_ms, more than 0, -ETIMEDOUT, and the
 * ticket stays: wait again, or zinf_cancel() it. A collective whose own deadline passed ends with
 * -ETIMEDOUT as well, and that ticket has been waited for: who must know which it was asks
 * zinf_test() first, and calls zinf_wait() once that says true. */
ZINF_API int zinf_wait_for(struct zinf *zinf, zinf_ticket ticket, uint32_t timeout_ms,
                           struct zinf_step_stats *ret_stats);

/** Whether a ticket has completed; never waits. */
ZINF_API int zinf_test(struct zinf *zinf, zinf_ticket ticket, bool *ret_is_done);

/** Gives the ticket of a tensor, or of a collective that others have not heard of yet, up: it
 * completes with -ECANCELED, and is still waited for. A collective must be given up by all of its
 * members, or by none: to the others this one's next call would be the one that they wait in.
 * -EALREADY it is over; -EBUSY a step, which is every rank's, or a collective under way. */
ZINF_API int zinf_cancel(struct zinf *zinf, zinf_ticket ticket);

/** All ranks of the job have come here. Also the way to share an error-free moment. */
ZINF_API int zinf_barrier(struct zinf *zinf);

#ifdef __cplusplus
}
#endif

#include <zinf/coll.h>
#include <zinf/grad.h>
#include <zinf/lr.h>
#include <zinf/replica.h>
#include <zinf/scaler.h>
#include <zinf/snapshot.h>
#include <zinf/tensor.h>

#endif
