/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the store's client: one TCP connection, bytes out and in until a deadline, and a word
 * by which another thread breaks off whatever is waited for. Floor 3. One thread at a time.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

struct store_link {
	int fd;        /* -1: not connected */
	int cancel_fd; /* eventfd; readable from store_link_cancel() on */
};

int store_link_init(struct store_link *link);
void store_link_deinit(struct store_link *link);

/* Resolves, and tries every address again and again until the deadline. Return: as
 * store_client_open(), -ECANCELED. */
int store_link_connect(struct store_link *link, const char *host, uint16_t port,
                       uint64_t deadline_ns, struct zi_text *text);
/* A header and what follows. Return: 0, -ETIMEDOUT, -ECANCELED, -EPIPE the other side is gone. */
int store_link_send(struct store_link *link, const void *header, size_t header_bytes,
                    const void *payload, size_t payload_bytes, uint64_t deadline_ns);
/* All of it. Return: as store_link_send(). */
int store_link_receive(struct store_link *link, void *target, size_t bytes, uint64_t deadline_ns);
/* Closes; until the next attempt. Return: 0; -ETIMEDOUT the deadline is past; -ECANCELED. */
int store_link_pause(struct store_link *link, uint64_t deadline_ns);
/* Any thread. */
void store_link_cancel(struct store_link *link);
