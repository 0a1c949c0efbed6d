/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One TCP connection to each other node, made before Gloo has it. Both ends prove that they are of
 * this group: each node gives each peer a random key of its own through the store. Anybody may
 * connect to the port meanwhile. A connection without the key costs a place among few
 * (strangers.h), for a second at most, and no node's start. Floor 3, of zinf-net. One thread.
 *
 *   node J > I                                      node I listens
 *   struct links_hello: J, I's key for J  ───────▶  closes, if the key is another
 *   closes, if the key is another         ◀───────  struct links_hello: I, J's key for I
 *   LINKS_MAGIC                           ───────▶  the connection is this pair's
 *
 * A caller whose attempt fails calls again, until the deadline. The newest proven call counts.
 */
#pragma once

#include <assert.h>
#include <netinet/in.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"

#define LINKS_KEY_BYTES 32u
#define LINKS_MAGIC     0x4b4c5a4eu /* "NZLK" */

/* What a node publishes for one peer. */
struct links_card {
	char address[INET6_ADDRSTRLEN]; /* numeric */
	uint16_t port;
	uint8_t key[LINKS_KEY_BYTES];
};
static_assert(sizeof(struct links_card) == 80, "links card");

struct links_hello {
	uint32_t magic;
	uint32_t node; /* the sender's */
	uint8_t key[LINKS_KEY_BYTES];
};
static_assert(sizeof(struct links_hello) == 40, "links hello");

struct links;

/**
 * links_new() - listen at @address, with a key for each peer
 * @address: numeric, of this node
 * @node: this node's index, below @node_count
 * @ret_links: links_free()
 *
 * Return: 0; -EADDRNOTAVAIL, -EACCES, -EMFILE, with @text; -ENOMEM.
 */
int links_new(const char *address, uint32_t node, uint32_t node_count, struct zi_text *text,
              struct links **ret_links);
/* Closes the connections that links_connect() has not handed over. NULL-safe. Return: NULL. */
struct links *links_free(struct links *links);
ZI_DEFINE_CLEANUP(struct links *, links_free)

/* (node_count,): what peer I is to get as the I-th. The own one is empty. */
const struct links_card *links_cards(const struct links *links);

/**
 * links_connect() - connect to all peers
 * @cards: (node_count,) what each peer published for this node; the own one is not read
 * @ret_fds: (node_count,) non-blocking, the caller's; the own one is -1. Untouched on failure
 * @ret_missing: on failure, the first peer without a connection
 *
 * Return: 0; -ETIMEDOUT with @text: what happened to the last attempt. Waits until @deadline_ns at
 * most.
 */
int links_connect(struct links *links, const struct links_card *cards, uint64_t deadline_ns,
                  struct zi_text *text, int *ret_fds, uint32_t *ret_missing);
