/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A descriptor that tells of completed tickets. Floor 2.
 *
 * Completions of the rings are in shared memory, where only the thread that uses the struct zinf
 * takes them in. Once the descriptor exists, zi_client_reap() leaves the ring armed: the daemon
 * rings its doorbell for each completion, whether anybody sleeps or not. The thread may take a
 * completion in during another call, which also takes the doorbell's ring. So a ticket that is
 * taken in rings an eventfd of its own, as the thread of collectives does for each call that is
 * done. The descriptor is an epoll over the doorbell, this eventfd, and the end of the session.
 */
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "libclient/client.h"

/* See client.h. A full eventfd has rung already. */
void zi_client_ring_tickets(const struct zinf *zinf)
{
	const uint64_t one = 1;

	while (zinf->ticket_event_fd >= 0 && write(zinf->ticket_event_fd, &one, sizeof(one)) < 0 &&
	       errno == EINTR)
		;
}

void zi_client_ticket_fd_deinit(struct zinf *zinf)
{
	zinf->ticket_fd = zi_close(zinf->ticket_fd);
	zinf->ticket_event_fd = zi_close(zinf->ticket_event_fd);
}

static int open_fds(struct zinf *zinf)
{
	struct epoll_event readable = { .events = EPOLLIN };

	zinf->ticket_event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	zinf->ticket_fd = epoll_create1(EPOLL_CLOEXEC);
	if (zinf->ticket_event_fd < 0 || zinf->ticket_fd < 0 ||
	    epoll_ctl(zinf->ticket_fd, EPOLL_CTL_ADD, zinf->ticket_event_fd, &readable) < 0 ||
	    epoll_ctl(zinf->ticket_fd, EPOLL_CTL_ADD, zinf->wakeup_fd, &readable) < 0 ||
	    epoll_ctl(zinf->ticket_fd, EPOLL_CTL_ADD, zinf->event_fd, &readable) < 0)
		return err_origin(-errno);
	return 0;
}

int zinf_ticket_fd(struct zinf *zinf)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r;

	if (zinf->ticket_fd >= 0)
		return zinf->ticket_fd;
	r = open_fds(zinf);
	if (r) {
		zi_client_ticket_fd_deinit(zinf);
		return zi_client_error(zinf, r, "opening a descriptor of tickets: %s",
		                       strerror(-r));
	}
	(void)zi_client_reap(zinf); /* Arms the ring; an end makes the descriptor readable. */
	zi_client_coll_notify(zinf);
	zi_client_ring_tickets(zinf);
	return zinf->ticket_fd;
}

int zinf_ticket_clear(struct zinf *zinf)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	uint64_t count;
	int r;

	if (zinf->ticket_fd < 0)
		return zi_client_error(zinf, -EINVAL, "call zinf_ticket_fd() first");
	/* The doorbell before the ring, and the ring before the eventfd that it rings. */
	zi_client_drain_doorbell(zinf);
	r = zi_client_reap(zinf);
	while (read(zinf->ticket_event_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	if (!r)
		r = zi_client_enter(zinf);
	if (!r)
		r = zi_client_read_notices(zinf);
	return err_trace(r);
}
