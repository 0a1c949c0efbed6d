/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: host and port of the store come from the launcher's variables, and this node's address from
 * the configuration or the way to the store; what is wrong is named. Method: values, and what every
 * machine has (loopback).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "daemon/worker/place.h"

Test(place, zinf_port_counts_and_else_the_port_after_torchruns)
{
	struct place place;
	struct zi_text text;

	cr_expect_eq(place_from_variables("a.example", "29500", NULL, &text, &place), 0);
	cr_expect_eq(place.port, 29501);
	cr_expect_str_eq(place.host, "a.example");
	cr_expect_eq(place_from_variables("::1", "29500", "700", &text, &place), 0);
	cr_expect_eq(place.port, 700);
	cr_expect_eq(place_from_variables("::1", NULL, "700", &text, &place), 0);
}

Test(place, variables_that_are_missing_or_wrong_are_named)
{
	static const struct {
		const char *addr, *master, *zinf, *says;
	} cases[] = {
		{ NULL, "29500", NULL, "MASTER_ADDR is not set" },
		{ "", "29500", NULL, "MASTER_ADDR is not set" },
		{ "a", NULL, NULL, "neither ZINF_PORT nor MASTER_PORT" },
		{ "a", "", "", "neither ZINF_PORT nor MASTER_PORT" },
		{ "a", "0", NULL, "MASTER_PORT is '0': 1 to 65535" },
		{ "a", "29500x", NULL, "MASTER_PORT is '29500x'" },
		{ "a", "65535", NULL, "set ZINF_PORT" },
		{ "a", "29500", "65536", "ZINF_PORT is '65536'" },
		{ "a", "29500", "-1", "ZINF_PORT is '-1'" },
		{ "a", "29500", " 1", "ZINF_PORT is ' 1'" },
	};
	char longer[PLACE_HOST_BYTES + 1];
	struct place place;
	struct zi_text text;

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_expect_eq(place_from_variables(cases[i].addr, cases[i].master, cases[i].zinf,
		                                  &text, &place),
		             -EINVAL);
		cr_expect(strstr(text.chars, cases[i].says), "%s", text.chars);
	}
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	cr_expect_eq(place_from_variables(longer, "1", NULL, &text, &place), -EINVAL);
	cr_expect(strstr(text.chars, "256 characters: at most 255"), "%s", text.chars);
}

Test(place, the_way_to_loopback_is_loopback)
{
	struct place place = { .host = "127.0.0.1", .port = 29501 };
	struct place_address address;
	struct zi_text text;

	cr_assert_eq(place_own_address(&place, NULL, &text, &address), 0, "%s", text.chars);
	cr_expect(address.is_loopback);
	cr_expect_str_eq(address.address, "127.0.0.1");
	cr_expect_str_eq(address.interface, "lo");
	cr_assert_eq(place_own_address(&place, "lo", &text, &address), 0, "%s", text.chars);
	cr_expect_str_eq(address.address, "127.0.0.1");
}

Test(place, an_interface_or_a_name_that_is_not_there_is_named)
{
	struct place place = { .host = "no.such.name.invalid", .port = 1 };
	struct place_address address;
	struct zi_text text;

	cr_expect_eq(place_own_address(&place, NULL, &text, &address), -ENOENT);
	cr_expect(strstr(text.chars, "no.such.name.invalid"), "%s", text.chars);
	cr_expect_eq(place_own_address(&place, "nosuch0", &text, &address), -ENODEV);
	cr_expect(strstr(text.chars, "'nosuch0' on this node (ZINF_NET_INTERFACE)"), "%s",
	          text.chars);
}
