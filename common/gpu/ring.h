/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunk ring: on which chunks of a GPU arena each unit of a model lies, and in which order
 * copies and uses of these chunks follow. Floor 1, owner thread only. Pure: no CUDA, no thread,
 * no clock, no allocation after zi_gpu_ring_new(). A rank has a ring for parameters and a ring for
 * gradients.
 *
 * Places. Units lie on whole chunks, one behind the other in the order of the model; behind
 * the last chunk of the arena comes chunk 0. The place of a unit never changes, so its range
 * of addresses is mapped once. In an arena that is smaller than the model several units share a
 * chunk. At most one of them holds it:
 *
 *            unshard, prefetch, acquire         copied
 *    ABSENT ────────────────────────▶ COMING ─────────▶ PRESENT
 *      ▲                                │                  │
 *      └── cancel, lost, handed ────────┤                  │
 *      └── displaced, void ─────────────┴──────────────────┘
 *
 *   COMING   the place is reserved, and nothing was queued yet. The copy may be queued once the
 *            events of zi_gpu_ring_waits() have come, or behind them on a stream
 *   PRESENT  the copy was queued. Its event orders the uses behind it
 * A unit that holds its place may be in use (counted from the demand on) or pinned. A demand
 * displaces any other unit of its place; a prefetch displaces only present units that are used
 * later than the prefetched unit. Nothing displaces a unit in use or pinned.
 *
 * Events are numbers of the caller, other than 0. The ring stores them and gives them back. The
 * event of a use comes after all earlier uses of the unit, as on one stream.
 *
 * No copy overwrites what is still read. For each chunk the ring knows the unit that was copied
 * there last, and the newest event of each unit. Invariant: that event comes after all work that
 * was queued for the chunk. A copy waits for these events of all its chunks, so its own event
 * comes after them, and keeps the invariant when its unit becomes the last one.
 *
 * No deadlock. Only a unit in use or pinned that shares a chunk refuses a demand. zi_gpu_ring_new()
 * refuses an arena in which `neighbour_count` units that follow one another in the model would
 * share a chunk, and a unit that `is_apart` shares none. So a rank is never refused while its
 * units in use or pinned, with the demanded one, are `neighbour_count` units that follow one
 * another; units apart do not count. With the least count, 1, the rank ends each use before it
 * begins the next. The events that the copy waits for were recorded before the demand: they need
 * no further call of the rank.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_gpu_ring;
struct zi_gpu_units;
struct zi_order;
struct zi_text;

/* No unit. */
#define ZI_GPU_RING_NONE UINT32_MAX

enum zi_gpu_presence {
	ZI_GPU_ABSENT,
	ZI_GPU_COMING,
	ZI_GPU_PRESENT,
};

/* Conditions. FRESH: the place was reserved by this call, nothing of the unit lies there. COMING:
 * it was reserved before. BUSY: nothing has changed; zi_gpu_ring_blocker() names the unit that must
 * end its use first. */
enum { _ZI_GPU_RING_E_SUCCESS, ZI_GPU_RING_E_FRESH, ZI_GPU_RING_E_COMING, ZI_GPU_RING_E_BUSY };

/* A ring on which every unit is absent. @units: not read after this call. @chunk_count: of the
 * arena. Return: 0; -EINVAL, -ENOSPC with @text, as zi_gpu_need() and zi_gpu_need_check();
 * -ENOMEM. */
int zi_gpu_ring_new(const struct zi_gpu_units *units, uint32_t chunk_count, struct zi_text *text,
                    struct zi_gpu_ring **ret_ring);
/* @ring: may be NULL, and may have units in use: a rank that fails frees it. Return: NULL. */
struct zi_gpu_ring *zi_gpu_ring_free(struct zi_gpu_ring *ring);

/* ---- places ---- */

/* Chunks of the unit's range of addresses. */
uint32_t zi_gpu_ring_chunk_count(const struct zi_gpu_ring *ring, uint32_t unit);
/* The chunk of the arena that is the @index-th of the unit's range. */
uint32_t zi_gpu_ring_chunk(const struct zi_gpu_ring *ring, uint32_t unit, uint32_t index);
/* Whether two units share a chunk. A unit shares its own. */
bool zi_gpu_ring_overlaps(const struct zi_gpu_ring *ring, uint32_t one, uint32_t other);
/* Whether every unit has chunks of its own. */
bool zi_gpu_ring_holds_all(const struct zi_gpu_ring *ring);

/* ---- state ---- */

/* Whether the unit holds its place. */
enum zi_gpu_presence zi_gpu_ring_presence(const struct zi_gpu_ring *ring, uint32_t unit);
/* Uses that have begun and not ended. */
uint32_t zi_gpu_ring_use_count(const struct zi_gpu_ring *ring, uint32_t unit);
/* A unit in use or pinned that shares a chunk with @unit; ZI_GPU_RING_NONE: there is none, and a
 * demand goes on. */
uint32_t zi_gpu_ring_blocker(const struct zi_gpu_ring *ring, uint32_t unit);
/* Units that the newest reservation made absent. Return: how many. @ret_units: the ring's, until
 * the next call that reserves. */
uint32_t zi_gpu_ring_displaced(const struct zi_gpu_ring *ring, const uint32_t **ret_units);

/* ---- parameters ---- */

/*
 * A use begins, and is counted unless the answer is BUSY.
 * Return: 0 the unit is present: the use comes after @ret_event, the event of its copy.
 * FRESH: the caller copies the unit, and calls zi_gpu_ring_copied() before the use. COMING: the
 * same, for a copy that was reserved before. BUSY.
 */
int zi_gpu_ring_unshard(struct zi_gpu_ring *ring, uint32_t unit, uint64_t *ret_event);
/*
 * A place is reserved for the next unit of @order that is worth copying. The unit is absent, its
 * place is free of units in use, pinned or coming, and nothing shares its chunks that is used
 * earlier than it.
 * @order: of all units of the ring. @place: of the rank (order.h). Looks at two uses of each unit
 * ahead at most.
 * Return: false: no unit is worth it now, and nothing has changed.
 */
bool zi_gpu_ring_prefetch(struct zi_gpu_ring *ring, const struct zi_order *order, uint32_t place,
                          uint32_t *ret_unit);
/*
 * The events after which the chunks of a coming unit may be written: each once for a unit that had
 * the chunks before.
 * Return: how many. @ret_events: the ring's, until its next call.
 */
uint32_t zi_gpu_ring_waits(struct zi_gpu_ring *ring, uint32_t unit, const uint64_t **ret_events);
/* The copy of a coming unit was queued behind its events. @event: it is complete. */
void zi_gpu_ring_copied(struct zi_gpu_ring *ring, uint32_t unit, uint64_t event);
/* A coming unit does not come, and nothing was queued: its uses are void. */
void zi_gpu_ring_cancel(struct zi_gpu_ring *ring, uint32_t unit);
/* The same, but a part of the copy was queued behind its events. @event: that part has ended. */
void zi_gpu_ring_lost(struct zi_gpu_ring *ring, uint32_t unit, uint64_t event);
/* A use of a present unit ends. @event: of this use; 0: nothing was queued for it. */
void zi_gpu_ring_reshard(struct zi_gpu_ring *ring, uint32_t unit, uint64_t event);
/* The values of the unit have changed elsewhere: it is absent. Precondition: it is not in use. */
void zi_gpu_ring_void(struct zi_gpu_ring *ring, uint32_t unit);
/* A unit that is coming or present stays, in use or not, until zi_gpu_ring_unpin() or until it is
 * absent. */
void zi_gpu_ring_pin(struct zi_gpu_ring *ring, uint32_t unit);
void zi_gpu_ring_unpin(struct zi_gpu_ring *ring, uint32_t unit);

/* ---- gradients ---- */

/*
 * The unit's gradients are about to be written. The unit is coming and in use until
 * zi_gpu_ring_handed().
 * Return: 0 it was acquired before: its gradients go on. FRESH: the first write comes after the
 * events of zi_gpu_ring_waits(). BUSY.
 */
int zi_gpu_ring_acquire(struct zi_gpu_ring *ring, uint32_t unit);
/* The copy of acquired gradients to the host was queued. @event: it is complete, and the chunks are
 * free. (zi_gpu_ring_cancel() gives back what nothing was queued for.) */
void zi_gpu_ring_handed(struct zi_gpu_ring *ring, uint32_t unit, uint64_t event);
