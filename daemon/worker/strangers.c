/* SPDX-License-Identifier: Apache-2.0 */
/* Connections before their HELLO; see strangers.h. Floor 3. The server's thread. */
#include "daemon/worker/strangers.h"

#include <netinet/in.h>
#include <string.h>

#include "common/base/assert.h"

/* Documented in the header, as are the others. */
void strangers_init(struct strangers *strangers)
{
	*strangers = (struct strangers){ .count = 0 };
	zi_list_init(&strangers->list);
}

static struct stranger_address address_of(const struct sockaddr_storage *from)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
	const struct sockaddr_in *four = (const struct sockaddr_in *)from;
	struct stranger_address address = { { 0 } };

	if (from->ss_family == AF_INET)
		memcpy(address.bytes + 4, &four->sin_addr, 4);
	else if (from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		memcpy(address.bytes + 4, six->sin6_addr.s6_addr + 12, 4);
	else if (from->ss_family == AF_INET6)
		memcpy(address.bytes, six->sin6_addr.s6_addr, 8);
	return address;
}

/* @from: as accept4() gives it. */
void strangers_add(struct strangers *strangers, struct stranger *stranger,
                   const struct sockaddr_storage *from)
{
	stranger->address = address_of(from);
	zi_list_push_back(&strangers->list, &stranger->link);
	strangers->count++;
}

void strangers_remove(struct strangers *strangers, struct stranger *stranger)
{
	if (!zi_list_is_linked(&stranger->link))
		return;
	assert(strangers->count > 0);
	zi_list_remove(&stranger->link);
	strangers->count--;
}

struct stranger *strangers_displaced(const struct strangers *strangers,
                                     const struct sockaddr_storage *from)
{
	struct stranger_address address = address_of(from);
	struct stranger *oldest = NULL, *oldest_here = NULL;
	uint32_t here_count = 0;

	zi_list_for_each(link, &strangers->list) {
		struct stranger *stranger = container_of(link, struct stranger, link);

		oldest = oldest ? oldest : stranger;
		if (memcmp(&stranger->address, &address, sizeof(address)))
			continue;
		oldest_here = oldest_here ? oldest_here : stranger;
		here_count++;
	}
	if (here_count >= STRANGERS_HERE_MAX)
		return oldest_here;
	return strangers->count >= STRANGERS_MAX ? oldest : NULL;
}
