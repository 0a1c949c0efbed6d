/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the connections between nodes before Gloo has them. The target is the other node, or
 * strangers beside it: greetings are right, spoiled, cut or endless, and connections end at any
 * byte. A node takes a connection only from whom has its key. Whether a right one comes in time is
 * not looked at: each turn has a millisecond.
 */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "daemon/worker/net/links.h"
#include "tests/fuzz/fuzz.h"

#define ENDS        4u
#define ACTIONS_MAX 24u
#define TURNS_MAX   6u

static struct links *links;
static struct links_card theirs[2]; /* what the other node published for this one */
static uint32_t self;               /* 0 listens, 1 calls */
static int listen_fd;
static int ends[ENDS];
static int is_right[ENDS]; /* a right greeting, or a part of it, went out there */

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	return 0;
}

/* By a reset: the ports of thousands of runs would not be free again at once. */
static void hang_up(uint32_t end)
{
	static const struct linger at_once = { .l_onoff = 1 };

	if (ends[end] < 0)
		return;
	(void)setsockopt(ends[end], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	ends[end] = zi_close(ends[end]);
}

static struct sockaddr_in address_of(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
		                     .sin_port = htons(port),
		                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

/* To the node that listens, or from the one that calls. */
static void come(uint32_t end)
{
	struct sockaddr_in address;

	hang_up(end);
	if (self) {
		ends[end] = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		return; /* Or none calls now. */
	}
	address = address_of(links_cards(links)[1].port);
	ends[end] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fuzz_check(ends[end] >= 0 &&
	                   !connect(ends[end], (struct sockaddr *)&address, sizeof(address)),
	           "a connection");
}

/* A whole greeting and its end, or a part of it, or with a byte that is another. */
static void say(struct fuzz_input *input, uint32_t end)
{
	struct {
		struct links_hello hello;
		uint32_t magic;
	} message = { { .magic = LINKS_MAGIC, .node = 1 - self }, LINKS_MAGIC };
	uint8_t how = fuzz_u8(input);
	size_t bytes = sizeof(message), place = sizeof(message);

	memcpy(message.hello.key, links_cards(links)[1 - self].key, LINKS_KEY_BYTES);
	if (how & 1) {
		place = fuzz_u8(input) % sizeof(message);
		((uint8_t *)&message)[place] ^= fuzz_u8(input) | 1;
	}
	if (how & 2)
		bytes = fuzz_u8(input) % (sizeof(message) + 1);
	if (ends[end] < 0)
		return;
	/* Who is called sends no more than its greeting. */
	is_right[end] |= place >= (self ? sizeof(message.hello) : sizeof(message));
	(void)send(ends[end], &message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Return: whether the node has its connection, which must be of a key that went out. */
static int turn(void)
{
	struct zi_text text = { "" };
	int fds[2] = { -1, -1 }, is_any = 0;
	uint32_t missing = 2;
	int r = links_connect(links, theirs, zi_clock_deadline_ns(ZI_NS_PER_MS), &text, fds,
	                      &missing);

	if (r) {
		fuzz_check(missing == 1 - self && text.chars[0], "who is missing");
		return 0;
	}
	for (uint32_t i = 0; i < ENDS; i++)
		is_any |= is_right[i];
	fuzz_check(is_any && fds[1 - self] >= 0 && fds[self] < 0, "a connection of a stranger");
	(void)zi_close(fds[1 - self]); /* Always -1. */
	return 1;
}

static int act(struct fuzz_input *input)
{
	uint8_t what = fuzz_u8(input);
	uint32_t end = what % ENDS;

	switch (what / ENDS % 4) {
	case 0:
		hang_up(end);
		return 0;
	case 1:
		come(end);
		return 0;
	case 2:
		return turn();
	default:
		say(input, end);
		return 0;
	}
}

static void start(uint8_t which)
{
	struct sockaddr_in address = address_of(0);
	socklen_t bytes = sizeof(address);
	struct zi_text text = { "" };

	self = which % 2;
	for (uint32_t i = 0; i < ENDS; i++)
		ends[i] = -1;
	memset(is_right, 0, sizeof(is_right));
	listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	fuzz_check(listen_fd >= 0 &&
	                   !bind(listen_fd, (struct sockaddr *)&address, sizeof(address)) &&
	                   !listen(listen_fd, 16) &&
	                   !getsockname(listen_fd, (struct sockaddr *)&address, &bytes),
	           "a port");
	memset(theirs, 0, sizeof(theirs));
	(void)snprintf(theirs[1 - self].address, sizeof(theirs[0].address),
	               "127.0.0.1"); /* Fits. */
	theirs[1 - self].port = ntohs(address.sin_port);
	fuzz_check(!links_new("127.0.0.1", self, 2, &text, &links), text.chars);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };
	uint32_t turns = 0;

	start(fuzz_u8(&input));
	for (uint32_t i = 0; i < ACTIONS_MAX && turns < TURNS_MAX && input.byte_count; i++) {
		turns += input.bytes[0] / ENDS % 4 == 2;
		if (act(&input))
			break;
	}
	for (uint32_t i = 0; i < ENDS; i++)
		hang_up(i);
	links = links_free(links);
	listen_fd = zi_close(listen_fd);
	return 0;
}
