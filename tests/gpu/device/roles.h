/* SPDX-License-Identifier: Apache-2.0 */
/* What a child process of a run does (peer.h). Each role reads its settings from the socket, and
 * ends when the parent closes it. */
#pragma once

/* Return: the exit code of the process; -1: there is no such role. */
int role_run(const char *name);

int maker_role(int fd);  /* maker.h */
int victim_role(int fd); /* victim.h */
int rank_role(int fd);   /* rank_peer.h */
int nccl_role(int fd);   /* nccl_peer.h */
