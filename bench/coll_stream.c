/* SPDX-License-Identifier: Apache-2.0 */
/* A plain TCP connection between two nodes; see coll_stream.h. */
#include "bench/coll_stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/team.h"
#include "common/base/cleanup.h"
#include "common/base/fd.h"

#define ENDS    2u
#define ADDRESS "10.99.0.1"
/* Of one system call. */
#define CHUNK_BYTES (1u << 20)
/* Sent from and received to, over and over: more than the caches hold. */
#define MEMORY_BYTES (64u << 20)

struct end {
	int fd;
	uint64_t sent_bytes, received_bytes; /* that it is to send and to receive */
	char *source, *target;
	bool is_gone;
};

struct coll_stream {
	struct team *team;
	unsigned world;
	struct end ends[ENDS];
};

/* Both ends of a connection from node 1 to node 0. */
static int connect_ends(struct coll_stream *stream, const struct network *network)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t bytes = sizeof address;
	_cleanup_(zi_closep) int listener = -1;
	int at_once = 1;

	(void)inet_pton(AF_INET, ADDRESS, &address.sin_addr); /* it is one */
	network_enter(network->nodes[0]);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	network_enter(network->nodes[1]);
	stream->ends[1].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	network_enter(network->home);
	if (listener < 0 || stream->ends[1].fd < 0 ||
	    bind(listener, (struct sockaddr *)&address, bytes) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &bytes) ||
	    connect(stream->ends[1].fd, (struct sockaddr *)&address, bytes))
		return -1;
	stream->ends[0].fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (stream->ends[0].fd < 0)
		return -1;
	for (unsigned i = 0; i < ENDS; i++)
		if (setsockopt(stream->ends[i].fd, IPPROTO_TCP, TCP_NODELAY, &at_once,
		               sizeof at_once) ||
		    zi_fd_set_nonblock(stream->ends[i].fd, true))
			return -1;
	return 0;
}

struct coll_stream *coll_stream_new(const struct network *network, unsigned world)
{
	struct coll_stream *stream = calloc(1, sizeof *stream);

	if (!stream)
		abort();
	stream->world = world;
	stream->ends[0].fd = stream->ends[1].fd = -1;
	stream->team = team_new();
	if (!stream->team || team_member_count(stream->team) < ENDS) {
		printf("skipped: the TCP stream: it takes two CPUs\n");
		return coll_stream_free(stream);
	}
	for (unsigned i = 0; i < ENDS; i++) {
		stream->ends[i].source = coll_rank_memory(MEMORY_BYTES);
		stream->ends[i].target = coll_rank_memory(MEMORY_BYTES);
		if (!stream->ends[i].source || !stream->ends[i].target)
			abort();
	}
	if (connect_ends(stream, network)) {
		printf("skipped: the TCP stream: %s\n", strerror(errno));
		return coll_stream_free(stream);
	}
	return stream;
}

static void unmap(void *memory)
{
	if (memory)
		(void)munmap(memory, MEMORY_BYTES); /* ours: cannot fail */
}

struct coll_stream *coll_stream_free(struct coll_stream *stream)
{
	if (!stream)
		return NULL;
	for (unsigned i = 0; i < ENDS; i++) {
		(void)zi_close(stream->ends[i].fd);
		unmap(stream->ends[i].source);
		unmap(stream->ends[i].target);
	}
	if (stream->team)
		(void)team_free(stream->team);
	free(stream);
	return NULL;
}

void coll_stream_choose(struct coll_stream *stream, enum coll_operation operation, uint64_t bytes)
{
	uint64_t first = bytes, second = bytes;

	if (operation == COLL_REDUCE_SCATTER || operation == COLL_ALL_GATHER)
		first = second = bytes / 2;
	else if (operation == COLL_ALL_TO_ALL)
		first = second = stream->world / 2 * (bytes / 2);
	else if (operation == COLL_BROADCAST)
		second = 0;
	stream->ends[0].sent_bytes = stream->ends[1].received_bytes = first;
	stream->ends[1].sent_bytes = stream->ends[0].received_bytes = second;
}

/* Bytes for the next system call, @done being behind, which wraps around. */
static size_t chunk(uint64_t done, uint64_t all)
{
	uint64_t left = ZI_MIN(all - done, (uint64_t)CHUNK_BYTES);

	return (size_t)ZI_MIN(left, MEMORY_BYTES - done % MEMORY_BYTES);
}

/* Whether the connection goes on; *done grows by what was moved, else *is_full. */
static bool moved(ssize_t bytes, uint64_t *done, bool *is_full)
{
	if (bytes > 0)
		*done += (uint64_t)bytes;
	else
		*is_full = true;
	return bytes > 0 || (bytes < 0 && (errno == EAGAIN || errno == EINTR));
}

static void run_end(void *work, unsigned member, unsigned member_count)
{
	struct coll_stream *stream = work;
	struct end *end = &stream->ends[member];
	uint64_t sent = 0, received = 0;

	(void)member_count;
	while (!end->is_gone && (sent < end->sent_bytes || received < end->received_bytes)) {
		struct pollfd poll_fd = { .fd = end->fd };
		bool is_full = false;

		if (sent < end->sent_bytes) {
			poll_fd.events |= POLLOUT;
			end->is_gone |= !moved(send(end->fd, end->source + sent % MEMORY_BYTES,
			                            chunk(sent, end->sent_bytes), MSG_NOSIGNAL),
			                       &sent, &is_full);
		}
		if (received < end->received_bytes) {
			poll_fd.events |= POLLIN;
			end->is_gone |= !moved(recv(end->fd, end->target + received % MEMORY_BYTES,
			                            chunk(received, end->received_bytes), 0),
			                       &received, &is_full);
		}
		/* What is asked for too often comes in small pieces. */
		if (is_full && poll(&poll_fd, 1, 1000) < 0 && errno != EINTR)
			end->is_gone = true;
	}
}

double coll_stream_seconds(struct coll_stream *stream)
{
	uint64_t ns = team_run(stream->team, run_end, stream, ENDS);

	return stream->ends[0].is_gone || stream->ends[1].is_gone ? -1 : (double)ns / 1e9;
}
