/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the store (store.h): calls that wait, each with a deadline. Floor 3. A client belongs
 * to one thread at a time; store_client_cancel() alone is any thread's.
 *
 * Any error but -ENOENT, -EINVAL, -ERANGE, -ENOSPC and the -ETIMEDOUT that the server answers ends
 * the connection: later calls return -ENOTCONN. @text may be NULL everywhere.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"

struct store_client;

struct store_client_options {
	const char *host; /* MASTER_ADDR */
	uint16_t port;
	const char *job, *incarnation;
	uint32_t run;      /* store_client_run() of the one that met; 0: any */
	const char *token; /* NULL or "": none */
	const char *name;  /* of this client, for people: "node 2" */
};

/**
 * store_client_open() - connect and greet, as soon as there is a server
 * @deadline_ns: until then it is tried again where nobody listens yet
 * @ret_client: store_client_close()
 *
 * Return: 0; -ETIMEDOUT (nobody answered; what was tried last is in @text); -ENOENT the name is
 * not resolved; -EEXIST another job, or a run that goes on; -ESTALE another run; -EACCES another
 * token; -EPROTO no store answered; -EPROTONOSUPPORT another version; -ENOMEM. The resolver itself
 * may take longer than the deadline.
 */
int store_client_open(const struct store_client_options *options, uint64_t deadline_ns,
                      struct zi_text *text, struct store_client **ret_client);
/* NULL-safe; the server then acts on the will, if there is one. Return: NULL. */
struct store_client *store_client_close(struct store_client *client);
/* Which store it is: every start of one has another number. */
uint32_t store_client_run(const struct store_client *client);
/* Whether a further call has a chance: tells the -ETIMEDOUT of the server from that of a server
 * which does not answer. */
bool store_client_is_connected(const struct store_client *client);
ZI_DEFINE_CLEANUP(struct store_client *, store_client_close)

/* @value: (@value_bytes,) copied. Return: 0, -ENOSPC the store is full, … */
int store_client_set(struct store_client *client, const char *key, const void *value,
                     uint32_t value_bytes, uint64_t deadline_ns, struct zi_text *text);
/* Sets @key unless it is there. @ret_present: whether it was, so that @value is not what stands.
 * store_client_claim(): it goes when this client does. */
int store_client_set_new(struct store_client *client, const char *key, const void *value,
                         uint32_t value_bytes, uint64_t deadline_ns, struct zi_text *text,
                         bool *ret_present);
int store_client_claim(struct store_client *client, const char *key, const void *value,
                       uint32_t value_bytes, uint64_t deadline_ns, struct zi_text *text,
                       bool *ret_present);
/* @value: (@capacity,) at least the value's bytes, else -ENOSPC. Return: 0, -ENOENT, … */
int store_client_get(struct store_client *client, const char *key, void *value, uint32_t capacity,
                     uint64_t deadline_ns, struct zi_text *text, uint32_t *ret_value_bytes);
int store_client_add(struct store_client *client, const char *key, int64_t number,
                     uint64_t deadline_ns, struct zi_text *text, int64_t *ret_sum);
/* Until all keys (1 … STORE_WAIT_KEYS_MAX) are there. -ETIMEDOUT: @text names one that is not. */
int store_client_wait(struct store_client *client, const char *const *keys, uint32_t key_count,
                      uint64_t deadline_ns, struct zi_text *text);
/* The same, but that the server waits until @limit_ns alone; its answer may take until
 * @deadline_ns (and the moment that every wait is given more), however slow it is. */
int store_client_wait_until(struct store_client *client, const char *const *keys,
                            uint32_t key_count, uint64_t limit_ns, uint64_t deadline_ns,
                            struct zi_text *text);
/* As store_client_wait(), but that @ender, which is there or comes, ends it. @value: (@capacity,)
 * then @ender's; @ret_value_bytes: of it. @ret_has_ended: whether it did. */
int store_client_wait_unless(struct store_client *client, const char *ender,
                             const char *const *keys, uint32_t key_count, void *value,
                             uint32_t capacity, uint64_t deadline_ns, struct zi_text *text,
                             uint32_t *ret_value_bytes, bool *ret_has_ended);
/* Until one of them is. */
int store_client_wait_any(struct store_client *client, const char *const *keys, uint32_t key_count,
                          uint64_t deadline_ns, struct zi_text *text);
int store_client_delete(struct store_client *client, const char *key, uint64_t deadline_ns,
                        struct zi_text *text);
/* All keys that begin with @prefix; there need be none. */
int store_client_forget(struct store_client *client, const char *prefix, uint64_t deadline_ns,
                        struct zi_text *text);
/* What the server sets, unless it is there, when this connection ends. NULL @key: nothing. */
int store_client_will(struct store_client *client, const char *key, const void *value,
                      uint32_t value_bytes, uint64_t deadline_ns, struct zi_text *text);

/* Any thread: what is being waited for returns -ECANCELED, and so does every later call. */
void store_client_cancel(struct store_client *client);
