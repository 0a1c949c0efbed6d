/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinf_interrupt(): a waiting call returns -EINTR, and goes on when it is repeated. Floor 2.
 *
 * One word says that an interrupt is pending. Any thread or signal handler raises the word, then
 * rings an eventfd (for calls that sleep in poll()) and wakes sleepers on the word (for
 * collectives). The thread of the calls looks at the word before each sleep, and lowers the word
 * when it uses the interrupt up. A ring that comes late wakes a sleeper for nothing.
 *
 * An interrupted call leaves what it waits for under way:
 *   - an operation on the rings stays in the table (call.c), or its ticket stays with the unit;
 *   - a request on the socket stays pending (request.c): the daemon allows one, so every other
 *     request is refused until the call was repeated;
 *   - a collective stays with its group (coll/calls.c).
 * A repeated call is recognized by its arguments.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/futex.h"
#include "libclient/client.h"

int zi_client_interrupt_init(struct zinf *zinf)
{
	zinf->interrupt = aligned_alloc(ZI_LINE_BYTES, sizeof(*zinf->interrupt));
	if (!zinf->interrupt)
		return err_origin(-ENOMEM);
	memset(zinf->interrupt, 0, sizeof(*zinf->interrupt));
	zinf->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return zinf->interrupt_fd < 0 ? err_origin(-errno) : 0;
}

void zi_client_interrupt_deinit(struct zinf *zinf)
{
	zinf->interrupt_fd = zi_close(zinf->interrupt_fd);
	free(zinf->interrupt);
	zinf->interrupt = NULL;
}

/* Only what POSIX allows in a signal handler, and system calls. */
void zinf_interrupt(struct zinf *zinf)
{
	const uint64_t one = 1;
	int saved = errno;

	if (!zinf)
		return;
	zi_line_store(zinf->interrupt, 1); /* pairs with zi_client_take_interrupt() */
	/* A full eventfd has rung already. */
	while (write(zinf->interrupt_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	zi_futex_wake(&zinf->interrupt->value);
	errno = saved;
}

/* See client.h. */
bool zi_client_take_interrupt(struct zinf *zinf)
{
	uint64_t count;

	if (zinf->holds_interrupts)
		return false;
	/* The bell first: what rings after this is either seen in the word, or wakes the next
	 * sleep. */
	while (read(zinf->interrupt_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	if (!zi_line_load(zinf->interrupt))
		return false;
	zi_line_store(zinf->interrupt, 0);
	return true;
}

/* See client.h. */
int zi_client_interrupted(struct zinf *zinf)
{
	return zi_client_error(zinf, -EINTR,
	                       "interrupted by zinf_interrupt(): repeat the call with the same "
	                       "arguments, and it goes on");
}
