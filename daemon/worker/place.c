/* SPDX-License-Identifier: Apache-2.0 */
/* Where nodes meet; see place.h. Floor 3. Any thread. */
#include "daemon/worker/place.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"

#define PLACE_PORT_MAX 65535ul

static int parse_port(const char *name, const char *value, struct zi_text *text,
                      unsigned long *ret_port)
{
	char *end;
	unsigned long port;

	errno = 0;
	port = strtoul(value, &end, 10);
	if (*value < '0' || *value > '9' || *end || errno || !port || port > PLACE_PORT_MAX)
		return err_origin(zi_text_error(text, -EINVAL, "%s is '%.32s': 1 to %lu", name,
		                                value, PLACE_PORT_MAX));
	*ret_port = port;
	return 0;
}

/* Documented in the header. */
int place_from_variables(const char *master_addr, const char *master_port, const char *zinf_port,
                         struct zi_text *text, struct place *ret_place)
{
	struct place place;
	unsigned long port;
	int r;

	if (!master_addr || !*master_addr)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"MASTER_ADDR is not set: set it in all ranks to the address of the "
			"node of rank 0, as scripts of torchrun, srun and mpirun do"));
	r = zi_copy_name(place.host, sizeof(place.host), master_addr);
	if (r)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "MASTER_ADDR has %zu characters: at most %u",
		                                strlen(master_addr), PLACE_HOST_BYTES - 1));
	if (zinf_port && *zinf_port) {
		r = parse_port("ZINF_PORT", zinf_port, text, &port);
	} else if (master_port && *master_port) {
		r = parse_port("MASTER_PORT", master_port, text, &port);
		if (!r && ++port > PLACE_PORT_MAX)
			r = err_origin(
				zi_text_error(text, -EINVAL,
			                      "MASTER_PORT is %lu, so the store's port would "
			                      "be %lu: set ZINF_PORT",
			                      PLACE_PORT_MAX, PLACE_PORT_MAX + 1));
	} else {
		r = err_origin(zi_text_error(
			text, -EINVAL,
			"neither ZINF_PORT nor MASTER_PORT is set: the store listens at "
			"MASTER_ADDR, port ZINF_PORT or MASTER_PORT + 1"));
	}
	if (r)
		return err_trace(r);
	place.port = (uint16_t)port;
	*ret_place = place;
	return 0;
}

static bool is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET6) {
		const struct in6_addr *ipv6 = &((const struct sockaddr_in6 *)address)->sin6_addr;

		return IN6_IS_ADDR_LOOPBACK(ipv6);
	}
	/* 127.0.0.0/8 */
	return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
}

static socklen_t address_bytes(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
	                                      : sizeof(struct sockaddr_in);
}

static bool is_same_host(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET6)
		return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		               &((const struct sockaddr_in6 *)b)->sin6_addr,
		               sizeof(struct in6_addr));
	return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
	       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

static int describe(const struct sockaddr *address, const char *interface,
                    struct place_address *ret_address)
{
	struct place_address place = { .is_loopback = is_loopback(address) };

	if (getnameinfo(address, address_bytes(address), place.address, sizeof(place.address), NULL,
	                0, NI_NUMERICHOST))
		return err_origin(-EADDRNOTAVAIL);
	(void)snprintf(place.interface, sizeof(place.interface), "%s", interface); /* Fits. */
	*ret_address = place;
	return 0;
}

/* IPv4 before IPv6, and no link-local ones, which other nodes cannot name. */
static const struct ifaddrs *find_named(const struct ifaddrs *all, const char *name)
{
	for (int pass = 0; pass < 2; pass++)
		for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
			const struct sockaddr_in6 *ipv6 = (const void *)one->ifa_addr;

			if (!ipv6 || strcmp(one->ifa_name, name))
				continue;
			if (one->ifa_addr->sa_family == (pass ? AF_INET6 : AF_INET) &&
			    (!pass || !IN6_IS_ADDR_LINKLOCAL(&ipv6->sin6_addr)))
				return one;
		}
	return NULL;
}

static int configured_address(const char *interface, const struct ifaddrs *all,
                              struct zi_text *text, struct place_address *ret_address)
{
	const struct ifaddrs *found;

	if (!if_nametoindex(interface))
		return err_origin(zi_text_error(text, -ENODEV,
		                                "there is no network interface '%.32s' on this "
		                                "node (ZINF_NET_INTERFACE): see `ip address`",
		                                interface));
	found = find_named(all, interface);
	if (!found)
		return err_origin(
			zi_text_error(text, -EADDRNOTAVAIL,
		                      "the network interface '%s' (ZINF_NET_INTERFACE) has "
		                      "no address: see `ip address`",
		                      interface));
	return err_trace(describe(found->ifa_addr, interface, ret_address));
}

/* Asks the kernel, which sends nothing for it, by which address it would go to @target. */
static int source_of(const struct addrinfo *target, struct sockaddr_storage *ret_source)
{
	_cleanup_(zi_closep) int fd = -1;
	socklen_t bytes = sizeof(*ret_source);

	fd = socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, target->ai_addr, target->ai_addrlen) ||
	    getsockname(fd, (struct sockaddr *)ret_source, &bytes))
		return -errno;
	return 0;
}

static int routed_address(const struct place *place, const struct ifaddrs *all,
                          struct zi_text *text, struct place_address *ret_address)
{
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM }, *targets;
	struct sockaddr_storage source = { 0 };
	const char *interface = "";
	char port[8];
	int r;

	(void)snprintf(port, sizeof(port), "%u", place->port); /* Fits. */
	r = getaddrinfo(place->host, port, &hints, &targets);
	if (r)
		return err_origin(zi_text_error(text, -ENOENT,
		                                "the name '%s' (MASTER_ADDR) is not resolved: %s",
		                                place->host, gai_strerror(r)));
	r = -ENETUNREACH;
	for (const struct addrinfo *target = targets; target && r; target = target->ai_next)
		r = source_of(target, &source);
	freeaddrinfo(targets);
	if (r)
		return err_origin(zi_text_error(
			text, -ENETUNREACH,
			"this node has no route to '%s' (MASTER_ADDR): %s; see `ip route`, or "
			"set ZINF_NET_INTERFACE",
			place->host, strerror(-r)));
	for (const struct ifaddrs *one = all; one; one = one->ifa_next)
		if (one->ifa_addr && is_same_host(one->ifa_addr, (struct sockaddr *)&source))
			interface = one->ifa_name;
	return err_trace(describe((struct sockaddr *)&source, interface, ret_address));
}

/* Documented in the header. */
int place_own_address(const struct place *place, const char *interface, struct zi_text *text,
                      struct place_address *ret_address)
{
	struct ifaddrs *all;
	int r;

	if (getifaddrs(&all))
		return err_origin(-errno);
	r = interface && *interface ? configured_address(interface, all, text, ret_address)
	                            : routed_address(place, all, text, ret_address);
	freeifaddrs(all);
	return err_trace(r);
}
