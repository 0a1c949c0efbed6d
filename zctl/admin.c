/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question to the daemon: HELLO, ADMIN, and the pieces of the JSON answer. Everything received
 * is checked by wire/control before it is looked at.
 */
#include <errno.h>
#include <poll.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/control.h"
#include "common/wire/starting.h"
#include "zctl/zctl.h"

/* An administrator waits for people's time, not a program's: long enough for a busy daemon. */
#define ANSWER_TIMEOUT_NS (10 * ZI_NS_PER_S)
/* No answer is larger; a daemon that sends more is not one of ours. */
#define ANSWER_BYTES_MAX (64u << 20)

struct packet {
	alignas(8) unsigned char bytes[ZI_MESSAGE_BYTES_MAX];
};

struct zctl_link {
	const struct zctl_context *context;
	int socket_fd;
	uint32_t sequence;
	int fd; /* that came with the answer; -1: none */
	struct packet packet;
};

/* Receives the next message within the deadline. */
static int receive(struct zctl_link *link, uint64_t deadline_ns)
{
	struct zi_text text;
	struct pollfd poller = { .fd = link->socket_fd, .events = POLLIN };
	int fds[ZI_MESSAGE_FDS_MAX];
	uint32_t fd_count = 0;
	int r;

	r = poll(&poller, 1, zi_clock_poll_ms(deadline_ns));
	if (r < 0)
		return err_origin(-errno);
	if (!r)
		return err_origin(-ETIMEDOUT);
	r = zi_message_receive(link->socket_fd, link->packet.bytes, fds, &fd_count);
	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < fd_count; i++) {
		link->fd = zi_close(link->fd);
		link->fd = fds[i];
	}
	return err_trace(
		zi_message_check((const struct zi_message_header *)link->packet.bytes, &text));
}

/* Prints what the daemon refused. Always -EREMOTEIO, whatever it was: told, and no error of ours.
 */
static int refused(const struct zi_message_header *header)
{
	const struct zi_error_message *message = (const void *)header;

	zctl_complain("zinfd answered: %.*s (%s)", (int)sizeof message->text.chars,
	              message->text.chars, zi_err_name(message->error));
	return err_origin(-EREMOTEIO);
}

static int say_hello(struct zctl_link *link, uint64_t deadline_ns)
{
	struct zi_hello hello = {
		.major = ZI_PROTOCOL_MAJOR,
		.minor = ZI_PROTOCOL_MINOR,
		.program = "zctl " ZINF_VERSION,
	};
	const struct zi_message_header *header = (const void *)link->packet.bytes;
	int r;

	zi_message_init(&hello.header, ZI_MESSAGE_HELLO, sizeof hello, ++link->sequence);
	r = zi_message_send(link->socket_fd, &hello.header, NULL, 0);
	if (!r)
		r = receive(link, deadline_ns);
	if (r)
		return err_trace(r);
	if (header->type == ZI_MESSAGE_ERROR)
		return refused(header);
	return header->type == ZI_MESSAGE_HELLO ? 0 : err_origin(-EPROTO);
}

/* Collects the pieces of the answer. *ret_text: heap, owned by the caller. */
static int collect(struct zctl_link *link, uint64_t deadline_ns, char **ret_text, size_t *ret_bytes)
{
	const struct zi_message_header *header = (const void *)link->packet.bytes;
	_cleanup_(zi_freep) char *text = NULL;
	size_t total_bytes = 0;

	for (;;) {
		size_t piece_bytes;
		char *grown;
		int r = receive(link, deadline_ns);

		if (r)
			return err_trace(r);
		if (header->type == ZI_MESSAGE_ERROR)
			return refused(header);
		if (header->type != ZI_MESSAGE_ADMIN_REPLY)
			return err_origin(-EPROTO);
		piece_bytes = header->bytes - sizeof *header;
		if (total_bytes + piece_bytes > ANSWER_BYTES_MAX)
			return err_origin(-EMSGSIZE);
		grown = realloc(text, total_bytes + piece_bytes + 1);
		if (!grown)
			return err_origin(-ENOMEM);
		text = grown;
		memcpy(text + total_bytes, link->packet.bytes + sizeof *header, piece_bytes);
		total_bytes += piece_bytes;
		if (!(header->flags & ZI_MESSAGE_MORE))
			break;
	}
	*ret_text = zi_steal(text);
	*ret_bytes = total_bytes;
	return 0;
}

static int tell(struct zctl_link *link, const char *command)
{
	struct zi_admin admin = { 0 };
	int r = zi_copy_name(admin.command, sizeof admin.command, command);

	if (r)
		return err_trace(r);
	zi_message_init(&admin.header, ZI_MESSAGE_ADMIN, sizeof admin, ++link->sequence);
	return err_trace(zi_message_send(link->socket_fd, &admin.header, NULL, 0));
}

static int hear(struct zctl_link *link, uint64_t timeout_ns, json_t **ret_json)
{
	_cleanup_(zi_freep) char *text = NULL;
	json_error_t error;
	size_t bytes = 0;
	int r = collect(link, zi_clock_deadline_ns(timeout_ns), &text, &bytes);

	if (r)
		return err_trace(r);
	*ret_json = json_loadb(text, bytes, 0, &error);
	return *ret_json ? 0 : err_origin(-EBADMSG);
}

/* A socket that is not the caller's to use. */
static void complain_access(const char *path)
{
	struct stat status;

	if (stat(path, &status))
		zctl_complain("uid %u may not use zinfd's socket %s: a folder of its path admits "
		              "only other users; name your own daemon's socket with --socket or "
		              "ZINF_SOCKET",
		              geteuid(), path);
	else
		zctl_complain("uid %u may not use zinfd's socket %s of uid %u and gid %u: join its "
		              "group, or name your own daemon's socket with --socket or "
		              "ZINF_SOCKET; daemon.socket_mode says who may use it",
		              geteuid(), path, status.st_uid, status.st_gid);
}

/* What went wrong, for people. */
static void complain(const struct zctl_context *context, int r, uint64_t timeout_ns)
{
	pid_t starting = zi_starting_pid(context->socket_path);

	if (context->is_quiet)
		return;
	if (starting && (r == -ENOENT || r == -ECONNREFUSED || r == -ETIMEDOUT))
		zctl_complain("zinfd (pid %d) is starting: it recovers its stores, then it listens "
		              "at %s; ask again, its log says how far it is",
		              (int)starting, context->socket_path);
	else if (r == -ENOENT || r == -ECONNREFUSED)
		zctl_complain("no zinfd listens at %s; start it (systemctl start zinfd, or "
		              "zinfd --user), or name its socket with --socket or ZINF_SOCKET",
		              context->socket_path);
	else if (r == -EACCES)
		complain_access(context->socket_path);
	else if (r == -ETIMEDOUT)
		zctl_complain("zinfd at %s did not answer within %u s", context->socket_path,
		              (unsigned)(timeout_ns / ZI_NS_PER_S));
	else if (r == -ECONNRESET || r == -EPIPE)
		zctl_complain("zinfd at %s went away", context->socket_path);
	else if (r != -EREMOTEIO)
		zctl_complain("asking zinfd at %s failed: %s", context->socket_path, strerror(-r));
}

/* NULL is fine. Return: NULL. */
struct zctl_link *zctl_link_close(struct zctl_link *link)
{
	if (!link)
		return NULL;
	link->socket_fd = zi_close(link->socket_fd);
	link->fd = zi_close(link->fd);
	free(link);
	return NULL;
}

/* See zctl.h. */
struct zctl_link *zctl_link_open(const struct zctl_context *context)
{
	struct zctl_link *link = calloc(1, sizeof *link);
	int r = link ? 0 : err_origin(-ENOMEM);

	if (link) {
		link->context = context;
		link->socket_fd = -1;
		link->fd = -1;
		r = zi_control_connect(context->socket_path, &link->socket_fd);
	}
	if (!r)
		r = say_hello(link, zi_clock_deadline_ns(ANSWER_TIMEOUT_NS));
	if (!r)
		return link;
	complain(context, r, ANSWER_TIMEOUT_NS);
	return zctl_link_close(link);
}

/* See zctl.h. */
int zctl_link_tell(struct zctl_link *link, const char *command)
{
	int r = tell(link, command);

	if (!r)
		return 0;
	complain(link->context, r, 0);
	return 1;
}

/* See zctl.h. */
json_t *zctl_link_hear(struct zctl_link *link, unsigned work_s, int *ret_fd)
{
	uint64_t timeout_ns = ANSWER_TIMEOUT_NS + work_s * ZI_NS_PER_S;
	json_t *json = NULL;
	int r = hear(link, timeout_ns, &json);

	if (r)
		complain(link->context, r, timeout_ns);
	else if (ret_fd)
		*ret_fd = zi_steal_fd(link->fd);
	return json;
}

/* See zctl.h. */
json_t *zctl_link_ask(struct zctl_link *link, const char *command, unsigned work_s, int *ret_fd)
{
	return zctl_link_tell(link, command) ? NULL : zctl_link_hear(link, work_s, ret_fd);
}

/**
 * zctl_ask() - ask the daemon one question
 * @context: where it listens
 * @command: the question, at most ZI_ADMIN_COMMAND_BYTES - 1 bytes
 *
 * Return: the answer, owned by the caller; NULL after saying why on stderr.
 */
json_t *zctl_ask(const struct zctl_context *context, const char *command)
{
	return zctl_ask_long(context, command, 0);
}

/* As zctl_ask(); waits @work_s longer. */
json_t *zctl_ask_long(const struct zctl_context *context, const char *command, unsigned work_s)
{
	struct zctl_link *link = zctl_link_open(context);
	json_t *json = link ? zctl_link_ask(link, command, work_s, NULL) : NULL;

	(void)zctl_link_close(link); /* NULL. */
	return json;
}

/**
 * zctl_print_json() - the answer as programs want it
 * @json: borrowed
 *
 * Return: 0, or 1 when memory is short, or stdout cannot be written: main() says so.
 */
int zctl_print_json(const json_t *json)
{
	if (!json_dumpf(json, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER) &&
	    putchar('\n') != EOF && !fflush(stdout))
		return 0;
	if (!ferror(stdout))
		zctl_complain("no memory to write the answer");
	return 1;
}
