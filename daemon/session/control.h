/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of sessions: what is silent too long, or over, goes. Floor 6, private to
 * daemon/session; control thread but for what says otherwise.
 */
#pragma once

#include "daemon/session/sess.h"

/* The connection has said something (or just came): it may be silent for handshake_ns again. */
void sess_wait_on(struct sess *session);
/* Frees the slot of a session that neither the shard nor a post knows. */
void sess_drop(struct sess *session);
/* Hands a LEAVING session back. Context: shard thread. */
void sess_control_take_back(struct sess *session);
/* A slot that is taken, CONNECTED, with a new id; NULL: all are. */
struct sess *sess_control_take_slot(struct sess_control *control);
