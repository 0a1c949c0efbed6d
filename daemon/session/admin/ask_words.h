/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a question. Floor 6, private to daemon/session, control thread. */
#pragma once

#include "daemon/session/sess.h"

/* -EINVAL, -ENAMETOOLONG: @text says what is allowed. */
int sess_ask_words(const char *command, struct sess_inquiry *inquiry, struct zi_text *text);
