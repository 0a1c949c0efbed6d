/* SPDX-License-Identifier: Apache-2.0 */
/* The store's socket and its connections; see store_server.h. Floor 3. The loop's thread. */
#include "daemon/worker/store_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/worker/store_alive.h"
#include "daemon/worker/store_private.h"

#define STORE_STALL_NS (10 * ZI_NS_PER_S)
/* Until accepting is tried again after descriptors or memory were short. */
#define STORE_PAUSE_NS (100 * ZI_NS_PER_MS)

static void connection_ready(struct zi_source *source, uint32_t events);
static void connection_due(struct zi_timer *timer);

static void arm_stall(struct store_connection *connection)
{
	const struct store_server *server = connection->server;
	bool is_stranger = zi_list_is_linked(&connection->stranger.link);

	zi_loop_arm(server->loop, &connection->timer,
	            zi_clock_deadline_ns(is_stranger ? server->hello_ns : server->stall_ns),
	            connection_due);
}

/* Its end is for the loop's next turn: whoever calls may be walking through the connections. */
static void break_off(struct store_connection *connection)
{
	connection->is_broken = true;
	zi_loop_arm(connection->server->loop, &connection->timer, 0, connection_due);
}

static void connection_free(struct store_connection *connection)
{
	struct store_server *server = connection->server;

	zi_loop_disarm(&connection->timer);
	zi_loop_remove(&connection->source);
	(void)zi_close(connection->source.fd);
	zi_list_remove(&connection->link);
	assert(server->connection_count > 0);
	server->connection_count--;
	strangers_remove(&server->strangers, &connection->stranger);
	free(connection->payload);
	free(connection->reply);
	free(connection->will);
	free(connection);
}

static void connection_end(struct store_connection *connection)
{
	struct store_server *server = connection->server;
	uint32_t met_bytes;

	store_run_will(connection);
	if (connection->has_owned) {
		store_table_disown(&server->table, connection);
		server->has_lost |=
			store_table_get(&server->table, STORE_MET_KEY, &met_bytes) != NULL;
	}
	connection_free(connection);
}

/* Sends what is left of the reply; then listens again. */
static void send_reply(struct store_connection *connection)
{
	while (connection->sent_bytes < connection->reply_bytes) {
		ssize_t bytes =
			send(connection->source.fd, connection->reply + connection->sent_bytes,
		             connection->reply_bytes - connection->sent_bytes,
		             MSG_DONTWAIT | MSG_NOSIGNAL);

		if (bytes < 0 && errno == EINTR)
			continue;
		if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			/* One who does not read is not listened to, and has so long. */
			if (zi_loop_modify(&connection->source, EPOLLOUT))
				break_off(connection);
			else
				arm_stall(connection);
			return;
		}
		if (bytes < 0) {
			break_off(connection);
			return;
		}
		connection->sent_bytes += (uint32_t)bytes;
	}
	free(connection->reply);
	connection->reply = NULL;
	zi_loop_disarm(&connection->timer);
	if (zi_loop_modify(&connection->source, EPOLLIN)) {
		break_off(connection);
		return;
	}
	if (connection->state == STORE_LEAVING) {
		/* Not closed at once: what is unread here would take the reply with it. */
		(void)shutdown(connection->source.fd, SHUT_WR); /* It may be gone already. */
		arm_stall(connection);
	}
}

void store_answer(struct store_connection *connection, int error, int64_t number,
                  const void *payload, uint32_t bytes)
{
	struct store_header header = { .magic = STORE_MAGIC,
		                       .type = STORE_REPLY,
		                       .bytes = bytes,
		                       .error = error,
		                       .number = number };

	assert(!connection->reply);
	assert(bytes <= STORE_MESSAGE_BYTES_MAX);
	if (connection->state == STORE_WAITING)
		connection->state = STORE_READY;
	connection->header_bytes = connection->payload_bytes = 0;
	free(connection->payload);
	connection->payload = NULL;
	connection->reply_bytes = (uint32_t)sizeof(header) + bytes;
	connection->sent_bytes = 0;
	connection->reply = malloc(connection->reply_bytes);
	if (!connection->reply) {
		break_off(connection);
		return;
	}
	memcpy(connection->reply, &header, sizeof(header));
	if (bytes)
		memcpy(connection->reply + sizeof(header), payload, bytes);
	send_reply(connection);
}

void store_refuse(struct store_connection *connection, int error, const struct zi_text *text)
{
	connection->state = STORE_LEAVING; /* A stranger stays one. */
	store_answer(connection, error, 0, text->chars, (uint32_t)strlen(text->chars));
}

/* Return: whether the header can be one of ours. */
static bool check_header(const struct store_connection *connection)
{
	const struct store_header *header = &connection->header;

	return header->magic == STORE_MAGIC && header->type < STORE_REPLY && header->type &&
	       !(header->flags & ~STORE_FLAGS) && !header->error &&
	       header->bytes <= STORE_MESSAGE_BYTES_MAX &&
	       (connection->state != STORE_STRANGER || header->type == STORE_HELLO);
}

/* Return: whether a whole message is there. */
static bool receive(struct store_connection *connection)
{
	static const struct zi_text unknown = {
		"this is the store of a zinf job, which does not know such a message"
	};
	bool is_header = connection->header_bytes < sizeof(connection->header);
	char *target = is_header ? (char *)&connection->header + connection->header_bytes
	                         : connection->payload + connection->payload_bytes;
	size_t wanted = is_header ? sizeof(connection->header) - connection->header_bytes
	                          : connection->header.bytes - connection->payload_bytes;
	ssize_t bytes = recv(connection->source.fd, target, wanted, MSG_DONTWAIT);

	if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return false;
	if (bytes <= 0) {
		break_off(connection);
		return false;
	}
	if (!connection->timer.loop) /* The first of a message: all of it has so long. */
		arm_stall(connection);
	if (!is_header) {
		connection->payload_bytes += (uint32_t)bytes;
		return connection->payload_bytes == connection->header.bytes;
	}
	connection->header_bytes += (uint32_t)bytes;
	if (connection->header_bytes < sizeof(connection->header))
		return false;
	if (!check_header(connection)) {
		store_refuse(connection, -EPROTO, &unknown);
		return false;
	}
	connection->payload = malloc(connection->header.bytes + 1);
	if (!connection->payload) {
		break_off(connection);
		return false;
	}
	connection->payload[connection->header.bytes] = '\0';
	return !connection->header.bytes;
}

/* The client of a request that waits, or one that was refused, has nothing to say but its end. */
static void receive_nothing(struct store_connection *connection)
{
	char bytes[512];
	ssize_t r = recv(connection->source.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (r <= 0 || connection->state == STORE_WAITING)
		connection_end(connection);
}

static void connection_ready(struct zi_source *source, uint32_t events)
{
	struct store_connection *connection = container_of(source, struct store_connection, source);

	if (connection->is_broken)
		return;
	if (connection->reply) {
		if (events & (EPOLLERR | EPOLLHUP))
			connection_end(connection);
		else
			send_reply(connection);
		return;
	}
	if (connection->state == STORE_WAITING || connection->state == STORE_LEAVING) {
		receive_nothing(connection);
		return;
	}
	if (!receive(connection))
		return;
	zi_loop_disarm(&connection->timer);
	store_handle(connection);
}

static void connection_due(struct zi_timer *timer)
{
	struct store_connection *connection = container_of(timer, struct store_connection, timer);

	connection_end(connection);
}

/* Told on a socket whose buffer is empty, and takes it. Who does not hear it sees the end. */
static void turn_away(const struct store_server *server, int fd)
{
	struct {
		struct store_header header;
		char text[ZI_TEXT_BYTES];
	} reply = { .header = { .magic = STORE_MAGIC, .type = STORE_REPLY, .error = -EBUSY } };
	struct zi_text text;

	zi_text_set(&text,
	            "the store of job '%s' has %u connections, %u of them without a greeting "
	            "(limits: %u, and %u without a greeting, %u of these from one address)",
	            server->job, server->connection_count, server->strangers.count,
	            server->connections_max, STRANGERS_MAX, STRANGERS_HERE_MAX);
	reply.header.bytes = (uint32_t)strlen(text.chars);
	memcpy(reply.text, text.chars, reply.header.bytes);
	(void)send(fd, &reply, sizeof(reply.header) + reply.header.bytes,
	           MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A new connection takes the place of this one. Members that wait for others hear of it when they
 * give up. */
static void displace(struct store_connection *connection)
{
	struct store_server *server = connection->server;
	struct zi_text text;

	server->strangers.displaced_count++;
	zi_text_set(&text,
	            "%lu connections to port %u lost their place before they greeted, the last one "
	            "from %s: close the port to that host, or set another ZINF_PORT",
	            (unsigned long)server->strangers.displaced_count, server->port,
	            store_peer_of(connection).chars);
	/* Without room for it, members only see that they lost their places. */
	(void)store_set_key(server, STORE_STRANGERS_KEY, text.chars, (uint32_t)strlen(text.chars),
	                    NULL);
	if (connection->state == STORE_STRANGER)
		turn_away(server, connection->source.fd);
	connection_end(connection);
}

static int connection_new(struct store_server *server, int fd, const struct sockaddr_storage *from)
{
	_cleanup_(zi_freep) struct store_connection *connection = calloc(1, sizeof(*connection));
	int one = 1;
	int r;

	if (!connection)
		return err_origin(-ENOMEM);
	/* A request is one packet that waits for its reply. Where it cannot be set it is slower. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	store_alive_watch(fd);
	r = zi_loop_add(server->loop, &connection->source, fd, EPOLLIN, connection_ready);
	if (r)
		return err_trace(r);
	connection->server = server;
	connection->state = STORE_STRANGER;
	zi_list_push_back(&server->connections, &connection->link);
	server->connection_count++;
	strangers_add(&server->strangers, &connection->stranger, from);
	arm_stall(connection);
	(void)zi_steal(connection); /* The server's list has it. */
	return 0;
}

static void listener_ready(struct zi_source *source, uint32_t events);

static void pause_is_over(struct zi_timer *timer)
{
	struct store_server *server = container_of(timer, struct store_server, pause);

	if (zi_loop_modify(&server->listener, EPOLLIN))
		zi_loop_arm(server->loop, timer, zi_clock_deadline_ns(STORE_PAUSE_NS),
		            pause_is_over);
}

static void listener_ready(struct zi_source *source, uint32_t events)
{
	struct store_server *server = container_of(source, struct store_server, listener);
	struct sockaddr_storage from = { .ss_family = AF_UNSPEC };
	socklen_t from_bytes = sizeof(from);
	struct stranger *displaced;
	_cleanup_(zi_closep) int fd = -1;

	(void)events; /* An error of the listener shows in accept4(). */
	fd = accept4(source->fd, (struct sockaddr *)&from, &from_bytes,
	             SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
			return; /* It went away meanwhile. */
		/* Waiting ones would wake the loop for ever. */
		if (!zi_loop_modify(source, 0))
			zi_loop_arm(server->loop, &server->pause,
			            zi_clock_deadline_ns(STORE_PAUSE_NS), pause_is_over);
		return;
	}
	displaced = strangers_displaced(&server->strangers, &from);
	if (displaced)
		displace(container_of(displaced, struct store_connection, stranger));
	if (server->connection_count >= server->connections_max) {
		turn_away(server, fd);
		return;
	}
	if (!connection_new(server, fd, &from))
		(void)zi_steal_fd(fd);
}

int store_server_open(struct zi_loop *loop, const struct store_server_options *options,
                      struct zi_text *text, struct store_server **ret_server)
{
	_cleanup_(zi_freep) struct store_server *server = calloc(1, sizeof(*server));
	_cleanup_(zi_closep) int fd = -1;
	int r;

	if (!server)
		return err_origin(-ENOMEM);
	assert(!zi_check_name(options->job, ZI_NAME_BYTES));
	r = zi_copy_name(server->job, sizeof(server->job), options->job);
	r = r ? r
	      : zi_copy_name(server->incarnation, sizeof(server->incarnation),
	                     options->incarnation);
	if (!r && options->token)
		r = zi_copy_name(server->token, sizeof(server->token), options->token);
	if (r)
		return err_origin(zi_text_error(text, r,
		                                "a name or the token has more than %u characters",
		                                ZI_NAME_BYTES - 1));
	do /* Not 0, which is none. */
		if (getrandom(&server->run, sizeof(server->run), 0) != sizeof(server->run))
			return err_origin(zi_text_error(text, -EIO, "no random number"));
	while (!server->run);
	r = store_listen(options, text, &server->port, &fd);
	if (r)
		return err_trace(r);
	server->loop = loop;
	server->refused = options->refused;
	server->stall_ns = options->stall_ns ? options->stall_ns : STORE_STALL_NS;
	server->hello_ns = options->hello_ns
	                           ? options->hello_ns
	                           : ZI_MIN(server->stall_ns, STRANGERS_HELLO_MS * ZI_NS_PER_MS);
	server->connections_max =
		options->connections_max ? options->connections_max : STORE_CONNECTIONS_MAX;
	zi_list_init(&server->connections);
	strangers_init(&server->strangers);
	store_table_init(&server->table);
	r = zi_loop_add(loop, &server->listener, fd, EPOLLIN, listener_ready);
	if (r)
		return err_trace(r);
	(void)zi_steal_fd(fd); /* The listener's. */
	*ret_server = zi_steal(server);
	return 0;
}

uint16_t store_server_port(const struct store_server *server)
{
	return server->port;
}

uint32_t store_server_connection_count(const struct store_server *server)
{
	return server->connection_count;
}

void store_server_forget(struct store_server *server, const char *prefix)
{
	store_table_forget(&server->table, prefix);
}

struct store_server *store_server_close(struct store_server *server)
{
	if (!server)
		return NULL;
	zi_list_for_each_safe(link, &server->connections)
		connection_free(container_of(link, struct store_connection, link));
	zi_loop_disarm(&server->pause);
	zi_loop_remove(&server->listener);
	(void)zi_close(server->listener.fd);
	store_table_deinit(&server->table);
	explicit_bzero(server->token, sizeof(server->token));
	free(server);
	return NULL;
}
