/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between the nodes of a group, proven by keys; see links.h. Floor 3, of zinf-net. */
#include "daemon/worker/net/links.h"

#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/worker/strangers.h"
#include "daemon/worker/subtree.h"

/* All peers call at once. */
#define LINKS_BACKLOG 128
/* Between two attempts; and while no descriptor is left for a call. */
#define LINKS_PAUSE_NS (50 * ZI_NS_PER_MS)
/* An attempt may take so long: the peer may be late, or the call lost on the way. */
#define LINKS_ATTEMPT_NS (3 * ZI_NS_PER_S)

/*
 * A peer that this node calls:   IDLE ──▶ CALLING ──▶ GREETED ──▶ DONE
 *                                 ▲──────────┴───────────┘ after a failure, and a pause
 * A peer that calls this node:   IDLE ──▶ PROVEN ──▶ DONE
 *                                 ▲──────────┘ the call ended
 */
enum links_state { LINKS_IDLE, LINKS_CALLING, LINKS_GREETED, LINKS_PROVEN, LINKS_DONE };

/* A message that comes in. */
struct links_input {
	uint32_t bytes; /* that are there */
	union {
		struct links_hello hello;
		uint32_t end;
	} message;
};

struct links_peer {
	enum links_state state;
	int fd;          /* -1: none */
	uint64_t due_ns; /* IDLE: the next attempt; CALLING, GREETED: the end of this one */
	int error;       /* of the last attempt */
	struct links_input input;
};

/* A call that has not proven whose it is. */
struct links_guest {
	struct stranger stranger;
	int fd; /* -1: the place is free */
	uint64_t due_ns;
	struct links_input input;
};

struct links {
	uint32_t node, node_count;
	int listen_fd;
	uint64_t listen_ns; /* no call is taken before: descriptors were short */
	struct strangers strangers;
	struct links_guest guests[STRANGERS_MAX];
	struct links_peer peers[SUBTREE_NODES_MAX];
	struct links_card cards[SUBTREE_NODES_MAX];
	const struct links_card *theirs; /* links_connect()'s */
};

/* ---- bytes ---- */

/* @bytes of @input's message. Return: 0; -EAGAIN not all is there; -EPIPE the other side closed. */
static int receive(int fd, struct links_input *input, uint32_t bytes)
{
	while (input->bytes < bytes) {
		ssize_t r = recv(fd, (char *)&input->message + input->bytes, bytes - input->bytes,
		                 MSG_DONTWAIT);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return -EAGAIN;
		if (r <= 0)
			return r < 0 ? -errno : -EPIPE;
		input->bytes += (uint32_t)r;
	}
	input->bytes = 0;
	return 0;
}

/* Into an empty buffer, which takes it whole. */
static int send_all(int fd, const void *message, size_t bytes)
{
	ssize_t r = send(fd, message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

	return r == (ssize_t)bytes ? 0 : r < 0 ? -errno : -EPIPE;
}

/* Proves this node to @peer. */
static int greet(const struct links *links, uint32_t peer, int fd)
{
	struct links_hello hello = { .magic = LINKS_MAGIC, .node = links->node };
	int r;

	memcpy(hello.key, links->theirs[peer].key, sizeof(hello.key));
	r = send_all(fd, &hello, sizeof(hello));
	explicit_bzero(&hello, sizeof(hello));
	return r;
}

/* Compares all of the key: the time tells nothing of where the difference lies. */
static bool is_from(const struct links *links, const struct links_hello *hello, uint32_t peer)
{
	const uint8_t *key = links->cards[peer].key;
	unsigned char difference = 0;

	for (uint32_t i = 0; i < LINKS_KEY_BYTES; i++)
		difference |= key[i] ^ hello->key[i];
	return hello->magic == LINKS_MAGIC && hello->node == peer && !difference;
}

/* ---- peers ---- */

static void peer_fail(struct links_peer *peer, int error)
{
	peer->fd = zi_close(peer->fd);
	peer->state = LINKS_IDLE;
	peer->error = error;
	peer->due_ns = zi_clock_deadline_ns(LINKS_PAUSE_NS);
	peer->input.bytes = 0;
}

static int address_of(const struct links_card *card, struct addrinfo **ret_address)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
		                  .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	char port[8];

	(void)snprintf(port, sizeof(port), "%u", card->port); /* Fits. */
	return getaddrinfo(card->address, port, &hints, ret_address) ? -EINVAL : 0;
}

static int call(const struct links_card *card, int *ret_fd)
{
	_cleanup_(zi_closep) int fd = -1;
	struct addrinfo *address;
	int r = address_of(card, &address);

	if (r)
		return r;
	fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || (connect(fd, address->ai_addr, address->ai_addrlen) && errno != EINPROGRESS))
		r = -errno;
	freeaddrinfo(address);
	*ret_fd = r ? -1 : zi_steal_fd(fd);
	return r;
}

static void peer_call(struct links *links, uint32_t index)
{
	struct links_peer *peer = &links->peers[index];
	int r = call(&links->theirs[index], &peer->fd);

	if (r) {
		peer_fail(peer, r);
		return;
	}
	peer->state = LINKS_CALLING;
	peer->due_ns = zi_clock_deadline_ns(LINKS_ATTEMPT_NS);
}

/* Return: 0; or why the call has failed. */
static int peer_called(struct links *links, uint32_t index)
{
	struct links_peer *peer = &links->peers[index];
	socklen_t bytes = sizeof(int);
	int error = 0;

	if (getsockopt(peer->fd, SOL_SOCKET, SO_ERROR, &error, &bytes))
		return -errno;
	if (error)
		return -error;
	peer->state = LINKS_GREETED;
	return greet(links, index, peer->fd);
}

/* Return: 0; -EAGAIN; or why the call has failed. */
static int peer_answered(struct links *links, uint32_t index)
{
	static const uint32_t end = LINKS_MAGIC;
	struct links_peer *peer = &links->peers[index];
	int r = receive(peer->fd, &peer->input, sizeof(struct links_hello));

	if (r)
		return r;
	if (!is_from(links, &peer->input.message.hello, index))
		return -EPROTO;
	r = send_all(peer->fd, &end, sizeof(end));
	if (!r)
		peer->state = LINKS_DONE;
	return r;
}

/* Return: 0; -EAGAIN; or why the call has failed. */
static int peer_ended(struct links_peer *peer)
{
	int r = receive(peer->fd, &peer->input, sizeof(uint32_t));

	if (!r && peer->input.message.end != LINKS_MAGIC)
		return -EPROTO;
	if (!r)
		peer->state = LINKS_DONE;
	return r;
}

static void peer_ready(struct links *links, uint32_t index)
{
	struct links_peer *peer = &links->peers[index];
	int r = peer->state == LINKS_CALLING   ? peer_called(links, index)
	        : peer->state == LINKS_GREETED ? peer_answered(links, index)
	                                       : peer_ended(peer);

	if (r && r != -EAGAIN)
		peer_fail(peer, r);
}

/* ---- guests ---- */

static void guest_end(struct links *links, struct links_guest *guest)
{
	strangers_remove(&links->strangers, &guest->stranger);
	guest->fd = zi_close(guest->fd);
}

static struct links_guest *guest_place(struct links *links)
{
	for (uint32_t i = 0; i < STRANGERS_MAX; i++)
		if (links->guests[i].fd < 0)
			return &links->guests[i];
	return NULL;
}

/* One in a turn: a member's greeting is read before seven others take the places behind it. */
static void guest_take(struct links *links)
{
	struct sockaddr_storage from = { .ss_family = AF_UNSPEC };
	socklen_t bytes = sizeof(from);
	struct stranger *displaced;
	struct links_guest *guest;
	int fd = accept4(links->listen_fd, (struct sockaddr *)&from, &bytes,
	                 SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			links->listen_ns = zi_clock_deadline_ns(LINKS_PAUSE_NS);
		return;
	}
	displaced = strangers_displaced(&links->strangers, &from);
	if (displaced)
		guest_end(links, container_of(displaced, struct links_guest, stranger));
	guest = guest_place(links);
	assert(guest); /* As many as strangers_displaced() allows. */
	guest->fd = fd;
	guest->due_ns = zi_clock_deadline_ns(STRANGERS_HELLO_MS * ZI_NS_PER_MS);
	guest->input.bytes = 0;
	strangers_add(&links->strangers, &guest->stranger, &from);
}

/* The call is @index's: a call of it that was here before is given up by its caller. */
static void guest_prove(struct links *links, struct links_guest *guest, uint32_t index)
{
	struct links_peer *peer = &links->peers[index];

	if (peer->state != LINKS_DONE && !greet(links, index, guest->fd)) {
		(void)zi_close(peer->fd);
		peer->fd = zi_steal_fd(guest->fd);
		peer->state = LINKS_PROVEN;
		peer->input.bytes = 0;
	}
	guest_end(links, guest);
}

static void guest_ready(struct links *links, struct links_guest *guest)
{
	const struct links_hello *hello = &guest->input.message.hello;
	int r = receive(guest->fd, &guest->input, sizeof(*hello));

	if (r == -EAGAIN)
		return;
	if (!r && hello->node > links->node && hello->node < links->node_count &&
	    is_from(links, hello, hello->node))
		guest_prove(links, guest, hello->node);
	else
		guest_end(links, guest);
}

/* ---- turns ---- */

/* What poll() is asked: the listener, peers, guests, in their order. */
struct links_turn {
	struct pollfd polled[1 + SUBTREE_NODES_MAX + STRANGERS_MAX];
	uint64_t due_ns;
};

static void turn_prepare(struct links *links, uint64_t deadline_ns, struct links_turn *turn)
{
	uint64_t now_ns = zi_clock_now_ns();

	turn->due_ns = deadline_ns;
	for (uint32_t i = 0; i < SUBTREE_NODES_MAX; i++) {
		struct links_peer *peer = &links->peers[i];
		bool is_called = i < links->node;

		if (peer->state == LINKS_IDLE && is_called && peer->due_ns <= now_ns)
			peer_call(links, i);
		if (is_called && peer->state != LINKS_DONE)
			turn->due_ns = ZI_MIN(turn->due_ns, peer->due_ns);
		turn->polled[1 + i] =
			(struct pollfd){ .fd = peer->state == LINKS_DONE ? -1 : peer->fd,
			                 .events =
			                         peer->state == LINKS_CALLING ? POLLOUT : POLLIN };
	}
	for (uint32_t i = 0; i < STRANGERS_MAX; i++) {
		struct links_guest *guest = &links->guests[i];

		if (guest->fd >= 0)
			turn->due_ns = ZI_MIN(turn->due_ns, guest->due_ns);
		turn->polled[1 + SUBTREE_NODES_MAX + i] =
			(struct pollfd){ .fd = guest->fd, .events = POLLIN };
	}
	turn->polled[0] = (struct pollfd){ .fd = links->listen_fd, .events = POLLIN };
	if (links->listen_ns > now_ns) {
		turn->polled[0].fd = -1;
		turn->due_ns = ZI_MIN(turn->due_ns, links->listen_ns);
	}
}

/* What is due, or ready. Guests go first: new ones take the places of the oldest. */
static void turn_run(struct links *links, const struct links_turn *turn)
{
	uint64_t now_ns = zi_clock_now_ns();

	for (uint32_t i = 0; i < STRANGERS_MAX; i++) {
		struct links_guest *guest = &links->guests[i];

		if (turn->polled[1 + SUBTREE_NODES_MAX + i].revents)
			guest_ready(links, guest);
		if (guest->fd >= 0 && guest->due_ns <= now_ns)
			guest_end(links, guest);
	}
	for (uint32_t i = 0; i < SUBTREE_NODES_MAX; i++) {
		struct links_peer *peer = &links->peers[i];

		if (turn->polled[1 + i].revents && peer->fd == turn->polled[1 + i].fd)
			peer_ready(links, i);
		if ((peer->state == LINKS_CALLING || peer->state == LINKS_GREETED) &&
		    peer->due_ns <= now_ns)
			peer_fail(peer, -ETIMEDOUT);
	}
	if (turn->polled[0].revents)
		guest_take(links);
}

/* Return: the first peer without a connection; node_count: there is none. */
static uint32_t first_missing(const struct links *links)
{
	uint32_t i = 0;

	while (i < links->node_count && (i == links->node || links->peers[i].state == LINKS_DONE))
		i++;
	return i;
}

/* Documented in the header, as are the others below. */
int links_connect(struct links *links, const struct links_card *cards, uint64_t deadline_ns,
                  struct zi_text *text, int *ret_fds, uint32_t *ret_missing)
{
	uint64_t started_ns = zi_clock_now_ns();
	struct links_turn turn;
	uint32_t missing;

	links->theirs = cards;
	while ((missing = first_missing(links)) < links->node_count &&
	       zi_clock_now_ns() < deadline_ns) {
		turn_prepare(links, deadline_ns, &turn);
		if (poll(turn.polled, ZI_COUNT_OF(turn.polled), zi_clock_poll_ms(turn.due_ns)) >= 0)
			turn_run(links, &turn);
	}
	if (missing < links->node_count) {
		int error = links->peers[missing].error;

		*ret_missing = missing;
		return err_origin(zi_text_error(
			text, -ETIMEDOUT, "no connection within %lu ms (%s)",
			(unsigned long)((zi_clock_now_ns() - started_ns) / ZI_NS_PER_MS),
			error ? strerror(-error) : "nothing came"));
	}
	for (uint32_t i = 0; i < links->node_count; i++)
		ret_fds[i] = i == links->node ? -1 : zi_steal_fd(links->peers[i].fd);
	return 0;
}

/* ---- life ---- */

static int listen_at(const char *address, uint16_t *ret_port, int *ret_fd)
{
	_cleanup_(zi_closep) int fd = -1;
	struct sockaddr_storage name = { 0 };
	struct links_card card = { .port = 0 };
	socklen_t bytes = sizeof(name);
	struct addrinfo *found;
	int r;

	r = zi_copy_name(card.address, sizeof(card.address), address);
	r = r ? r : address_of(&card, &found);
	if (r)
		return r;
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, LINKS_BACKLOG) ||
	    getsockname(fd, (struct sockaddr *)&name, &bytes))
		r = -errno;
	freeaddrinfo(found);
	if (r)
		return r;
	*ret_port = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
	                                             : ((struct sockaddr_in *)&name)->sin_port);
	*ret_fd = zi_steal_fd(fd);
	return 0;
}

int links_new(const char *address, uint32_t node, uint32_t node_count, struct zi_text *text,
              struct links **ret_links)
{
	_cleanup_(links_freep) struct links *links = calloc(1, sizeof(*links));
	uint16_t port;
	int r;

	assert(node < node_count);
	assert(node_count <= SUBTREE_NODES_MAX);
	if (!links)
		return err_origin(-ENOMEM);
	links->node = node;
	links->node_count = node_count;
	links->listen_fd = -1;
	strangers_init(&links->strangers);
	for (uint32_t i = 0; i < SUBTREE_NODES_MAX; i++)
		links->peers[i].fd = -1;
	for (uint32_t i = 0; i < STRANGERS_MAX; i++) {
		zi_list_init(&links->guests[i].stranger.link);
		links->guests[i].fd = -1;
	}
	r = listen_at(address, &port, &links->listen_fd);
	if (r)
		return err_origin(zi_text_error(
			text, r,
			"listening at %s: %s; set ZINF_NET_INTERFACE to the interface that the "
			"other nodes reach",
			address, strerror(-r)));
	for (uint32_t i = 0; i < node_count; i++) {
		struct links_card *card = &links->cards[i];

		if (i == node)
			continue;
		card->port = port;
		(void)zi_copy_name(card->address, sizeof(card->address), address); /* It fit. */
		if (getrandom(card->key, sizeof(card->key), 0) != sizeof(card->key))
			return err_origin(zi_text_error(text, -EIO, "no random number"));
	}
	*ret_links = zi_steal(links);
	return 0;
}

struct links *links_free(struct links *links)
{
	if (!links)
		return NULL;
	for (uint32_t i = 0; i < STRANGERS_MAX; i++)
		guest_end(links, &links->guests[i]);
	for (uint32_t i = 0; i < SUBTREE_NODES_MAX; i++)
		links->peers[i].fd = zi_close(links->peers[i].fd);
	links->listen_fd = zi_close(links->listen_fd);
	explicit_bzero(links->cards, sizeof(links->cards));
	free(links);
	return NULL;
}

const struct links_card *links_cards(const struct links *links)
{
	return links->cards;
}
