/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file wait.h
 * Tickets and waiting: deadlines, waiting calls ended from outside, descriptors for poll(). Part of
 * zinf.h, which includes it.
 */
#ifndef ZINF_WAIT_H
#define ZINF_WAIT_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** As zinf_wait(), with a deadline of its own, @timeout_ms > 0. After it -ETIMEDOUT: the ticket
 * stays; wait again or zinf_cancel() it. The text of a collective on one node names the ranks that
 * have not come to it. A collective whose own deadline passed also returns
 * -ETIMEDOUT, and ends its ticket. To tell them apart, wait only after zinf_test() is true. */
ZINF_API int zinf_wait_for(struct zinf *zinf, zinf_ticket ticket, uint32_t timeout_ms,
                           struct zinf_step_stats *ret_stats);

/** Whether a ticket has completed; never waits. */
ZINF_API int zinf_test(struct zinf *zinf, zinf_ticket ticket, bool *ret_is_done);

/** Cancels the ticket of a tensor, or of a collective that is not posted yet. It completes with
 * -ECANCELED, and must still be waited for. All members cancel a collective, or none: otherwise
 * this rank's next call would meet the others' cancelled one. Return: 0; -EALREADY it has
 * completed; -EBUSY a step, or a collective under way. */
ZINF_API int zinf_cancel(struct zinf *zinf, zinf_ticket ticket);

/**
 * Interrupts the call that waits in @zinf: the call returns -EINTR. If no call waits now, the next
 * call that would wait returns -EINTR. One zinf_interrupt() ends one call. If zinf_interrupt() is
 * called again before that call has returned, it ends no further call. Signals by themselves
 * interrupt no call.
 *
 * Repeat an interrupted call with the same arguments. The repeated call continues to wait for the
 * same event. The work that the call waits for goes on meanwhile, and other ranks wait for this
 * rank. Until the call is repeated, the calls below return -EBUSY, and the text names the call to
 * repeat:
 *   - after a call on the socket (zinf_load(), zinf_materialize(), zinf_param_write_begin(),
 *     zinf_param_write_end(), zinf_snapshot(), zinf_tensor_open(), zinf_coll_open(),
 *     zinf_coll_group(), zinf_destroy_job()): every other one of these, zinf_blob_get(),
 *     zinf_coll_group_free() and zinf_coll_abort();
 *   - after zinf_barrier(), zinf_commit(), zinf_step_begin(), zinf_step_with() or
 *     zinf_step_discard(): the others of these five;
 *   - after a collective that waits: every other call of its group (zinf/coll.h).
 * A rank may end or discard its step instead of repeating zinf_grad_norm().
 * zinf_detach() is always possible. It is never interrupted, nor are zinf_attach() (which has no
 * struct zinf yet: attach without wait_for_daemon, and repeat it), zinf_blob_get(), and calls that
 * do not wait.
 *
 * Any thread, and async-signal-safe: a signal handler may call it. @zinf is attached, and
 * zinf_detach() has not been called. NULL: does nothing.
 */
ZINF_API void zinf_interrupt(struct zinf *zinf);

/**
 * A file descriptor for poll(): readable when a ticket may have completed (of a step, a tensor or a
 * collective), or the session has ended, since zinf_ticket_clear(). So a program waits for tickets
 * in its own loop, or in another thread than the one that uses @zinf:
 *
 *     lock; zinf_ticket_clear(); done = zinf_test() of each ticket; unlock
 *     if not done: poll() the descriptor, then again
 *
 * Any thread may poll it at any time. The other calls are for one thread at a time, hence the lock,
 * and no thread holds it while polling. A thread that holds the lock in a waiting call delays the
 * others; zinf_interrupt() makes it return. The descriptor may be readable although no ticket has
 * completed. After the first call each completion costs a few microseconds more. Never read or
 * close it.
 * Return: the descriptor, the same each time, valid until zinf_detach(); -EMFILE and the like.
 */
ZINF_API int zinf_ticket_fd(struct zinf *zinf);

/** Makes the descriptor of zinf_ticket_fd() unreadable until another ticket completes. Call it
 * before zinf_test(): a ticket that completes after the look makes the descriptor readable again.
 * Never waits. Return: 0; -EINVAL zinf_ticket_fd() was not called; or the error that ended the
 * session. */
ZINF_API int zinf_ticket_clear(struct zinf *zinf);

/** A file descriptor for poll(): readable when the session has ended. Never read or close it. */
ZINF_API int zinf_event_fd(const struct zinf *zinf);

#ifdef __cplusplus
}
#endif

#endif
