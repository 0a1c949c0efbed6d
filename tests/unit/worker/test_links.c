/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the connection that a node gets for a peer is that peer's, whoever else connects to its
 * port; and a peer that does not come is named. Method: nodes in threads of this process, and
 * callers with another key, with half a greeting, with none, or that hang up.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/thread.h"
#include "daemon/worker/net/links.h"
#include "daemon/worker/strangers.h"

#define NODES_MAX 4u
/* No limit of a test's own: what is under test ends by itself. */
#define LONG_NS (60 * ZI_NS_PER_S)

struct node {
	struct links *links;
	struct links_card cards[NODES_MAX]; /* of the peers, for this node */
	struct zi_thread thread;
	uint64_t limit_ns;
	int fds[NODES_MAX];
	uint32_t missing;
	int result;
	struct zi_text text;
};

static struct node nodes[NODES_MAX];
static uint32_t node_count;

static void make(uint32_t count)
{
	node_count = count;
	for (uint32_t i = 0; i < count; i++) {
		nodes[i] = (struct node){ .limit_ns = LONG_NS };
		cr_assert_eq(links_new("127.0.0.1", i, count, &nodes[i].text, &nodes[i].links), 0,
		             "%s", nodes[i].text.chars);
	}
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t peer = 0; peer < count; peer++)
			nodes[i].cards[peer] = links_cards(nodes[peer].links)[i];
}

static int connect_main(void *arg)
{
	struct node *node = arg;

	node->result = links_connect(node->links, node->cards, zi_clock_deadline_ns(node->limit_ns),
	                             &node->text, node->fds, &node->missing);
	return 0;
}

static void begin(uint32_t index)
{
	cr_assert_eq(zi_thread_start(&nodes[index].thread, "node", connect_main, &nodes[index]), 0);
}

static void end(uint32_t index)
{
	cr_assert_eq(zi_thread_join(&nodes[index].thread), 0);
}

/* What @from sends to @to comes there, and nothing else. */
static void expect_linked(uint32_t from, uint32_t to)
{
	uint32_t word = from * 16 + to, came = 0;

	cr_assert_eq(zi_fd_set_nonblock(nodes[to].fds[from], false), 0);
	cr_assert_eq(send(nodes[from].fds[to], &word, sizeof(word), MSG_NOSIGNAL), sizeof(word));
	cr_expect_eq(recv(nodes[to].fds[from], &came, sizeof(came), MSG_WAITALL), sizeof(came));
	cr_expect_eq(came, word, "from %u to %u: %x", from, to, came);
}

static void expect_all_linked(void)
{
	for (uint32_t i = 0; i < node_count; i++) {
		cr_assert_eq(nodes[i].result, 0, "%u: %s", i, nodes[i].text.chars);
		cr_expect_eq(nodes[i].fds[i], -1);
	}
	for (uint32_t i = 0; i < node_count; i++)
		for (uint32_t peer = 0; peer < node_count; peer++)
			if (i != peer)
				expect_linked(i, peer);
	for (uint32_t i = 0; i < node_count; i++) {
		for (uint32_t peer = 0; peer < node_count; peer++)
			zi_close(nodes[i].fds[peer]);
		nodes[i].links = links_free(nodes[i].links);
	}
}

/* A call to the port that @card names. */
static int call(const struct links_card *card)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(card->port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(inet_pton(AF_INET, card->address, &address.sin_addr), 1);
	cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void greet(int fd, uint32_t node, const uint8_t *key, size_t bytes)
{
	struct links_hello hello = { .magic = LINKS_MAGIC, .node = node };

	memcpy(hello.key, key, sizeof(hello.key));
	cr_assert_eq(send(fd, &hello, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* Until the node closes it. Return: what it said before, in bytes. */
static size_t drain(int fd)
{
	char bytes[256];
	size_t count = 0;
	ssize_t r;

	while ((r = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		count += (size_t)r;
	zi_close(fd);
	return count;
}

Test(links, each_two_nodes_share_a_connection)
{
	make(4);
	for (uint32_t i = 4; i--;)
		begin(i);
	for (uint32_t i = 0; i < 4; i++)
		end(i);
	expect_all_linked();
}

Test(links, a_call_without_the_key_is_closed_without_a_word)
{
	uint8_t key[LINKS_KEY_BYTES];
	int fd;

	make(2);
	begin(0);
	memcpy(key, nodes[1].cards[0].key, sizeof(key));
	key[LINKS_KEY_BYTES - 1] ^= 1; /* Nearly. */
	fd = call(&nodes[1].cards[0]);
	greet(fd, 1, key, sizeof(struct links_hello));
	cr_expect_eq(drain(fd), 0);
	fd = call(&nodes[1].cards[0]);
	greet(fd, 0, nodes[1].cards[0].key, sizeof(struct links_hello)); /* Itself. */
	cr_expect_eq(drain(fd), 0);
	fd = call(&nodes[1].cards[0]);
	greet(fd, UINT32_MAX, nodes[1].cards[0].key, sizeof(struct links_hello));
	cr_expect_eq(drain(fd), 0);
	fd = call(&nodes[1].cards[0]);
	greet(fd, 1, nodes[1].cards[0].key, sizeof(struct links_hello) - 1);
	cr_expect_eq(drain(fd), 0, "half a greeting ends by its time");
	begin(1);
	end(0);
	end(1);
	expect_all_linked();
}

Test(links, silent_calls_in_all_places_give_way_to_a_peer)
{
	int fds[STRANGERS_HERE_MAX + 1];

	make(2);
	for (uint32_t i = 0; i < ZI_COUNT_OF(fds); i++)
		fds[i] = call(&nodes[1].cards[0]);
	begin(0);
	cr_expect_eq(drain(fds[0]), 0); /* By the last one, or its time. */
	begin(1);
	end(0);
	end(1);
	for (uint32_t i = 1; i < ZI_COUNT_OF(fds); i++)
		zi_close(fds[i]);
	expect_all_linked();
}

/* A peer whose connection breaks before it is the pair's calls again. */
Test(links, a_peer_that_hangs_up_may_call_again)
{
	struct links_hello reply;
	uint32_t nonsense = ~LINKS_MAGIC;
	int fd;

	make(2);
	begin(0);
	for (uint32_t i = 0; i < 3; i++) {
		fd = call(&nodes[1].cards[0]);
		greet(fd, 1, nodes[1].cards[0].key, sizeof(reply));
		if (i)
			cr_assert_eq(recv(fd, &reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
		if (i == 2) {
			cr_assert_eq(send(fd, &nonsense, sizeof(nonsense), MSG_NOSIGNAL),
			             sizeof(nonsense));
			(void)drain(fd);
		} else {
			zi_close(fd);
		}
	}
	cr_expect_eq(reply.node, 0);
	cr_expect_arr_eq(reply.key, nodes[0].cards[1].key, sizeof(reply.key));
	begin(1);
	end(0);
	end(1);
	expect_all_linked();
}

/* What a caller meets at the peer's port may be somebody else, who came first. */
Test(links, an_answer_without_the_key_is_no_peers)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	struct links_hello hello = { .magic = LINKS_MAGIC };
	uint16_t port;
	int listener, fd;

	make(2);
	port = nodes[1].cards[0].port;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(listener, 1), 0);
	cr_assert_eq(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
	nodes[1].cards[0].port = ntohs(address.sin_port);
	nodes[1].limit_ns = 300 * ZI_NS_PER_MS;
	begin(1);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	cr_assert_eq(send(fd, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
	end(1);
	cr_expect_eq(nodes[1].result, -ETIMEDOUT);
	cr_expect_eq(nodes[1].missing, 0);
	cr_expect(strstr(nodes[1].text.chars, "no connection within"), "%s", nodes[1].text.chars);
	zi_close(fd);
	zi_close(listener);
	nodes[1].cards[0].port = port;
	nodes[1].limit_ns = LONG_NS;
	begin(0);
	begin(1);
	end(0);
	end(1);
	expect_all_linked();
}

Test(links, the_first_peer_that_does_not_come_is_named)
{
	make(3);
	nodes[2].links = links_free(nodes[2].links); /* Its port is closed. */
	nodes[0].limit_ns = nodes[1].limit_ns = 2 * ZI_NS_PER_S;
	begin(0);
	begin(1);
	end(0);
	end(1);
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_eq(nodes[i].result, -ETIMEDOUT);
		cr_expect_geq(nodes[i].missing, 1 - i);
		nodes[i].links = links_free(nodes[i].links);
	}
}

Test(links, an_address_that_is_not_this_nodes_is_refused)
{
	struct links *links = NULL;
	struct zi_text text = { "" };

	cr_expect_eq(links_new("192.0.2.1", 0, 2, &text, &links), -EADDRNOTAVAIL);
	cr_expect(strstr(text.chars, "ZINF_NET_INTERFACE"), "%s", text.chars);
	cr_expect_neq(links_new("no.address", 0, 2, &text, &links), 0);
	cr_expect_null(links);
}
