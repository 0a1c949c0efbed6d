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
/* The reply of a session does not fit into its socket: it has handshake_ns to read some of it. */
void sess_wait_for_reader(struct sess *session);
/* A slot that is taken, CONNECTED, with a new id, for a connection of @uid. -EMFILE: @uid has too
 * many, or everybody together; @text has the figures. -ENOMEM. */
int sess_control_take_slot(struct sess_control *control, uid_t uid, struct zi_text *text,
                           struct sess **ret_session);
