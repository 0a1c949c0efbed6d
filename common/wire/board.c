/* SPDX-License-Identifier: Apache-2.0 */
/* Names of what ranks call together; see board.h. Floor 1, any thread. */
#include "common/wire/board.h"

#include <stddef.h>

static const char *const names[_ZI_COLL_COUNT] = {
	[ZI_COLL_BARRIER] = "barrier",
	[ZI_COLL_ALL_REDUCE] = "all_reduce",
	[ZI_COLL_REDUCE] = "reduce",
	[ZI_COLL_REDUCE_SCATTER] = "reduce_scatter",
	[ZI_COLL_ALL_GATHER] = "all_gather",
	[ZI_COLL_BROADCAST] = "broadcast",
	[ZI_COLL_GATHER] = "gather",
	[ZI_COLL_SCATTER] = "scatter",
	[ZI_COLL_ALL_TO_ALL] = "all_to_all",
	[ZI_COLL_ALL_TO_ALLV] = "all_to_allv",
	[ZI_COLL_SEND] = "send",
	[ZI_COLL_RECV] = "recv",
};

const char *zi_coll_operation_name(uint32_t operation)
{
	return operation < _ZI_COLL_COUNT && names[operation] ? names[operation] : "?";
}
