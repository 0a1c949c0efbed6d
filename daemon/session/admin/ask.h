/* SPDX-License-Identifier: Apache-2.0 */
/* A question and the way of its answer. Floor 6, private to daemon/session, control thread. */
#pragma once

#include "daemon/session/sess.h"

/* An ADMIN message of a GREETED session. */
int sess_ask(struct sess *session, const struct zi_admin *admin);
/* The client of a session whose question is out has gone: what the question waits for is told. */
void sess_ask_withdraw(struct sess *session);
/* Forgets the answer, sent or not. */
void sess_ask_end(struct sess *session);
/* Sends pieces of the answer while the socket takes them. */
void sess_ask_flush(struct sess *session);
