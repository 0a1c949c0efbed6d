/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a session. The uplink is the client's to write, the downlink the daemon's; each has
 * half of every ring. Floor 6, shard thread.
 */
#include "daemon/session/rings.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/sess.h"

/* Beside those of the rings: the socket, the pidfd and two doorbells. */
#define SESS_FDS 4u

/* One small region, charged to the uid, with no huge pages: a ring is 80 KiB. */
static int sess_make_region(struct sess_shard *shard, struct tier_account *account,
                            const char *name, uint64_t bytes, struct zi_text *text,
                            struct tier_segment **ret_segment)
{
	return err_trace(tier_segment_new(shard->ring_tier, account, name, bytes, TIER_PAGES_SMALL,
	                                  text, ret_segment));
}

/* See rings.h. */
int sess_rings_make(struct sess_shard *shard, struct sess *session, struct zi_text *text)
{
	uint32_t entries = shard->limits.ring_entries;
	struct tier_account *account = zero_account(shard->zero, session->uid);
	struct zi_downlink_header *downlink;
	int r;

	if (!account)
		return err_origin(-ENOMEM);
	if (tier_account_take_fds(account, SESS_FDS, text))
		return err_origin(-EDQUOT);
	session->fd_count = SESS_FDS;
	r = sess_make_region(shard, account, "zinf-uplink", zi_uplink_bytes(entries), text,
	                     &session->uplink);
	if (r)
		return err_trace(r);
	r = sess_make_region(shard, account, "zinf-downlink", zi_downlink_bytes(entries), text,
	                     &session->downlink);
	if (r)
		return err_trace(r);
	downlink = session->downlink->region.base;
	downlink->magic = ZI_DOWNLINK_MAGIC;
	downlink->version = ZI_REGION_VERSION;
	downlink->entries = entries;
	zi_ring_sq_consumer(&session->sq, session->uplink->region.base, downlink, entries);
	zi_ring_cq_producer(&session->cq, session->uplink->region.base, downlink, entries);
	return 0;
}

/* See rings.h. */
int sess_rings_make_doorbells(struct sess *session, int *ret_read_fd)
{
	int pipe_fds[2];

	session->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (session->doorbell_fd < 0)
		return err_origin(-errno);
	if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK))
		return err_origin(-errno);
	session->client_doorbell_fd = pipe_fds[1];
	*ret_read_fd = pipe_fds[0];
	return 0;
}

/* See rings.h. */
void sess_rings_free(struct sess *session)
{
	session->client_doorbell_fd = zi_close(session->client_doorbell_fd);
	session->doorbell_fd = zi_close(session->doorbell_fd);
	session->downlink = tier_segment_unref(session->downlink);
	session->uplink = tier_segment_unref(session->uplink);
	if (session->fd_count)
		tier_account_give_fds(zero_account(session->shard->zero, session->uid),
		                      session->fd_count);
	session->fd_count = 0;
}

/* See rings.h. */
void sess_rings_publish_spin(struct sess_shard *shard)
{
	uint32_t spin_us = shard->polled_count + 1 <= shard->cpu_count
	                           ? (uint32_t)(shard->limits.spin_ns / ZI_NS_PER_US)
	                           : 0;

	for (uint32_t i = 0; i < shard->polled_count; i++) {
		struct zi_downlink_header *downlink = shard->polled[i]->downlink->region.base;

		zi_line_store(&downlink->spin_us, spin_us);
	}
	/* Ranks that wait for each other do not need this thread meanwhile. */
	zero_coll_spin(shard->zero, shard->cpu_count,
	               (uint32_t)(shard->limits.spin_ns / ZI_NS_PER_US));
}
