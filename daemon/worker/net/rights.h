/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rights of zinf-net: those of the job's user, before it reads a byte of the network. Floor 3,
 * of zinf-net. Before other threads start.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

/* Ports below belong to root's programs, wherever the system lets others have them. */
#define RIGHTS_PORT_MIN 1024u

/**
 * rights_give_up() - become the job's user, for good
 * @uid: a number, as zinfd that is root gives it; NULL: this process keeps its user
 *
 * No group, capability or way to gain either is left; the user whose uid this is can neither trace
 * the process nor read its memory. What zinf-net needs of the daemon comes as descriptors.
 * Return: 0; -EINVAL @uid is no number of a user; -EPERM, with @text.
 */
int rights_give_up(const char *uid, struct zi_text *text);
/* Whether a job of this process's user may use @port. Return: 0; -EACCES with @text. */
int rights_check_port(uint16_t port, struct zi_text *text);
