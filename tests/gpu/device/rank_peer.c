/* SPDX-License-Identifier: Apache-2.0 */
/* A rank in a process of its own; see rank_peer.h. */
#include "tests/gpu/device/rank_peer.h"

#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/gpu/device/roles.h"
#include "tests/harness/patience.h"

#define AWAIT_NS       (120 * ZI_NS_PER_S)
#define END_TIMEOUT_MS 60000u

struct rank_order {
	uint64_t deed;      /* enum rank_deed */
	uint64_t last_step; /* trains up to it; 0: on and on */
};

/* ---- the rank ---- */

static int send_news(int fd, struct rank *rank, struct rank_news *news, int error)
{
	news->error = error;
	news->text = rank->text;
	news->call_ns = rank->call_ns;
	news->limit_ns = rank->settings.timeout_ms * ZI_NS_PER_MS;
	if (error)
		news->event = RANK_FAILED;
	/* Nobody may be listening to steps. All else is waited for. */
	return news->event == RANK_STEPPED ? peer_try_send(fd, news, sizeof(*news))
	                                   : peer_send(fd, news, sizeof(*news), NULL, 0);
}

/* Return: 0; -EPIPE the parent has ended. */
static int train(int fd, struct rank *rank, struct rank_news *news)
{
	struct rank_order order = { .deed = RANK_TRAINS, .last_step = rank->settings.last_step };
	int r = 0;

	while (!r) {
		int heard = peer_receive(fd, 0, &order, sizeof(order), NULL, 0);

		if (heard == -EPIPE)
			return heard;
		if (order.last_step && news->step >= order.last_step)
			break;
		if (order.deed == RANK_HANGS)
			rank_await_pins(rank); /* A copy through buffers would wait. */
		r = rank_step(rank, (enum rank_deed)order.deed);
		news->event = RANK_STEPPED;
		news->step += !r;
		if (send_news(fd, rank, news, r) == -EPIPE)
			return -EPIPE;
	}
	if (!r) {
		news->event = RANK_DONE;
		r = rank_hash(rank, &news->hash);
		(void)send_news(fd, rank, news, r); /* The end follows either way. */
	}
	return 0;
}

int rank_role(int fd)
{
	struct rank_settings settings;
	struct rank_news news = { .event = RANK_READY };
	struct rank rank;
	char byte;
	int r = peer_receive(fd, AWAIT_NS, &settings, sizeof(settings), NULL, 0);

	if (r)
		return 1;
	settings.timeout_ms = (uint32_t)(settings.timeout_ms * patience());
	r = rank_open(&rank, &settings);
	if (!r)
		r = rank_compare(&rank, &news.wrong_count);
	if (send_news(fd, &rank, &news, r))
		return 1;
	if (!r)
		r = train(fd, &rank, &news);
	/* What has failed keeps what it holds until it is killed, or its parent closes. */
	if (news.event == RANK_FAILED)
		(void)peer_receive(fd, ZI_DEADLINE_NEVER, &byte, sizeof(byte), NULL, 0);
	else
		rank_close(&rank, true);
	return 0;
}

/* ---- its parent ---- */

int rank_peer_start(struct peer *peer, const struct rank_settings *settings, const char *fake)
{
	return peer_start(peer, "rank", fake, settings, sizeof(*settings));
}

int rank_peer_await(const struct peer *peer, enum rank_event event, struct rank_news *ret_news)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(AWAIT_NS);
	int r;

	do {
		if (zi_clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		r = peer_receive(peer->fd, AWAIT_NS, ret_news, sizeof(*ret_news), NULL, 0);
		if (r)
			return r;
		if (ret_news->event == RANK_FAILED && event != RANK_FAILED)
			return -ECANCELED;
	} while (ret_news->event != event);
	return 0;
}

int rank_peer_await_steps(const struct peer *peer, uint32_t count, struct rank_news *ret_news)
{
	int r;

	/* What was told before is no step of now. */
	do {
		r = peer_receive(peer->fd, 0, ret_news, sizeof(*ret_news), NULL, 0);
		if (!r && ret_news->event == RANK_FAILED)
			return -ECANCELED;
	} while (!r);
	if (r != -ETIMEDOUT)
		return r;
	/* The first one may have been under way. */
	for (uint32_t i = 0; i < count + 1; i++) {
		r = rank_peer_await(peer, RANK_STEPPED, ret_news);
		if (r)
			return r;
	}
	return 0;
}

static int send_order(const struct peer *peer, enum rank_deed deed, uint64_t last_step)
{
	struct rank_order order = { .deed = deed, .last_step = last_step };

	return peer_send(peer->fd, &order, sizeof(order), NULL, 0);
}

int rank_peer_order(const struct peer *peer, enum rank_deed deed)
{
	return send_order(peer, deed, 0);
}

int rank_peer_await_end(struct peer *peer, struct rank_news *ret_news)
{
	int r = rank_peer_await(peer, RANK_DONE, ret_news);

	if (r)
		(void)peer_kill(peer); /* The first error says more. */
	return r ? r : peer_end(peer, END_TIMEOUT_MS);
}

int rank_peer_finish(struct peer *peer, struct rank_news *ret_news)
{
	/* The first step is over, or under way. */
	int r = send_order(peer, RANK_TRAINS, 1);

	if (r)
		(void)peer_kill(peer); /* The first error says more. */
	return r ? r : rank_peer_await_end(peer, ret_news);
}
