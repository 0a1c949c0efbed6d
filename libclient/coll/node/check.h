/* SPDX-License-Identifier: Apache-2.0 */
/* What a member refuses before it posts a call. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* Checks @call as far as this member knows, and prepares group->run for it. Return: 0; -EINVAL,
 * -EOVERFLOW, what the caller refuses it by; with @text. */
int zi_node_check(struct zi_node_group *group, const struct zi_node_call *call,
                  struct zi_text *text);
/* As above, of a message. */
int zi_node_check_p2p(const struct zi_node_group *group, const struct zi_node_p2p *p2p,
                      struct zi_text *text);
