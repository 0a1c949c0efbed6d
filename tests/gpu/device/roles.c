/* SPDX-License-Identifier: Apache-2.0 */
/* The roles by their names; see roles.h. */
#include "tests/gpu/device/roles.h"

#include <stddef.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "tests/gpu/device/peer.h"

static const struct {
	const char *name;
	int (*run)(int fd);
} roles[] = {
	{ "maker", maker_role },
	{ "victim", victim_role },
	{ "rank", rank_role },
	{ "nccl", nccl_role },
};

int role_run(const char *name)
{
	for (size_t i = 0; i < ZI_COUNT_OF(roles); i++)
		if (!strcmp(roles[i].name, name))
			return roles[i].run(PEER_SOCKET_FD);
	return -1;
}
