/* SPDX-License-Identifier: Apache-2.0 */
/* Connections whose other end says nothing; see store_alive.h. Floor 3. Any thread. */
#include "daemon/worker/store_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* Documented in the header, as are the others. TCP_USER_TIMEOUT is left alone: it would end a
 * connection with a word on its way within what a cable is out. */
void store_alive_watch(int fd)
{
	int one = 1, idle = STORE_ALIVE_IDLE_S, again = STORE_ALIVE_AGAIN_S,
	    tries = STORE_ALIVE_TRIES;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &again, sizeof(again));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

void store_alive_end_by_reset(int fd)
{
	struct linger at_once = { .l_onoff = 1 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)); /* Late, else. */
}

bool store_alive_is_silent(int fd)
{
	struct tcp_info info = { .tcpi_last_ack_recv = 0 };
	socklen_t bytes = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes))
		return false;
	return info.tcpi_last_ack_recv * ZI_NS_PER_MS >= STORE_SILENT_NS;
}
