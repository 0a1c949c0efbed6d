/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the store at which nodes meet, under messages of several clients that greet or do
 * not, set, wait, leave wills and go in any order. Each reply must be one of the protocol's. Waits
 * have no time, so that they end in the loop's next turn; nothing here waits for a clock.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/loop.h"
#include "common/wire/control.h"
#include "daemon/worker/store.h"
#include "daemon/worker/store_server.h"
#include "tests/fuzz/fuzz.h"

#define CLIENTS 4u
#define STEPS   64u

static struct zi_loop *loop;
static struct store_server *server;
static int clients[CLIENTS];

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	return 0;
}

static void stop(struct zi_post *post)
{
	(void)post;
	zi_loop_stop(loop);
}

/* Some turns of the loop: what was sent is taken, and what is due ends. */
static void turns(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct zi_post post;

		zi_loop_post(loop, &post, stop);
		fuzz_check(!zi_loop_run(loop), "the loop");
	}
}

/* By a reset: the ports of thousands of runs would not be free again at once. */
static void hang_up(uint32_t client)
{
	static const struct linger at_once = { .l_onoff = 1 };

	if (clients[client] < 0)
		return;
	(void)setsockopt(clients[client], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	(void)close(clients[client]);
	clients[client] = -1;
}

static void come(uint32_t client)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_port = htons(store_server_port(server)),
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int one = 1;

	hang_up(client);
	clients[client] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fuzz_check(clients[client] >= 0, "a socket");
	(void)setsockopt(clients[client], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fuzz_check(!connect(clients[client], (struct sockaddr *)&address, sizeof(address)),
	           "a connection");
}

/* The whole of a reply is there at once: it is small, and on loopback. */
static void hear(uint32_t client)
{
	static char bytes[sizeof(struct store_header) + STORE_MESSAGE_BYTES_MAX];
	struct store_header header;
	ssize_t r = recv(clients[client], bytes, sizeof(header), MSG_DONTWAIT);

	if (r <= 0)
		return;
	fuzz_check(r == sizeof(header), "half a header");
	memcpy(&header, bytes, sizeof(header));
	fuzz_check(header.magic == STORE_MAGIC && header.type == STORE_REPLY && header.error <= 0 &&
	                   header.bytes <= STORE_MESSAGE_BYTES_MAX,
	           "a reply");
	r = recv(clients[client], bytes, header.bytes, MSG_DONTWAIT);
	fuzz_check(!header.bytes || r == (ssize_t)header.bytes, "half a reply");
}

/* A greeting that is right but for what the input spoils. */
static uint32_t hello(struct fuzz_input *input, char *payload)
{
	struct store_hello greeting = { .version = STORE_VERSION,
		                        .coll_version = ZI_COLL_VERSION,
		                        .job = "gpt",
		                        .incarnation = "run.0",
		                        .name = "fuzz" };
	uint8_t spoils = fuzz_u8(input);

	if (spoils & 1)
		fuzz_take(input, (char *)&greeting + spoils, 4);
	memcpy(payload, &greeting, sizeof(greeting));
	return spoils & 2 ? fuzz_u8(input) % sizeof(greeting) : sizeof(greeting);
}

static const char *const keys[] = {
	"a",      "b", STORE_REFUSED_KEY, STORE_STRANGERS_KEY, STORE_MET_KEY, STORE_ENDED_KEY,
	"rank/1", "c"
};

/* One or more of the keys above, as they are or cut. */
static uint32_t list(struct fuzz_input *input, char *payload, uint32_t count)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < count; i++) {
		const char *key = keys[fuzz_u8(input) % 8];

		memcpy(payload + bytes, key, strlen(key) + 1);
		bytes += (uint32_t)strlen(key) + 1;
	}
	return bytes;
}

static void say(struct fuzz_input *input, uint32_t client)
{
	static char message[sizeof(struct store_header) + 4096];
	char *payload = message + sizeof(struct store_header);
	struct store_header header = { .magic = STORE_MAGIC };
	uint8_t how = fuzz_u8(input);

	header.type = how % _STORE_COUNT;
	header.flags = fuzz_u8(input) & STORE_FLAGS;
	if (header.type == STORE_HELLO) {
		header.bytes = hello(input, payload);
	} else {
		header.bytes = list(input, payload, 1 + fuzz_u8(input) % 8);
		header.number = header.type == STORE_WAIT ? 0 : (int64_t)fuzz_u64(input);
	}
	if (how & 64) { /* Anything behind it. */
		fuzz_text(input, payload + header.bytes, 256);
		header.bytes += (uint32_t)strlen(payload + header.bytes);
	}
	if (how & 128)
		fuzz_take(input, (char *)&header + fuzz_u8(input) % sizeof(header), 1);
	memcpy(message, &header, sizeof(header));
	(void)send(clients[client], message,
	           sizeof(header) + (header.bytes < 4000 ? header.bytes : 100),
	           MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void step(struct fuzz_input *input)
{
	uint8_t what = fuzz_u8(input);
	uint32_t client = what % CLIENTS;

	switch (what / CLIENTS % 8) {
	case 0:
		hang_up(client);
		break;
	case 1:
		come(client);
		break;
	default:
		if (clients[client] < 0)
			come(client);
		say(input, client);
	}
	turns(what / 32 % 4);
	for (uint32_t i = 0; i < CLIENTS; i++)
		if (clients[i] >= 0 && what & 128)
			hear(i);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };
	struct store_server_options options = { .host = "127.0.0.1",
		                                .job = "gpt",
		                                .incarnation = "run.0",
		                                .connections_max = CLIENTS - 1 };
	struct zi_text text;

	for (uint32_t i = 0; i < CLIENTS; i++)
		clients[i] = -1;
	fuzz_check(!zi_loop_new(&loop) && !store_server_open(loop, &options, &text, &server),
	           "a store");
	for (uint32_t i = 0; i < STEPS && input.byte_count; i++)
		step(&input);
	for (uint32_t i = 0; i < CLIENTS; i++)
		hang_up(i);
	turns(2); /* Wills are run. */
	server = store_server_close(server);
	loop = zi_loop_free(loop);
	return 0;
}
