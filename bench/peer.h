/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that measures for a suite. The program reads commands, each in a line, and answers each
 * command with a line of JSON. The first line of its output is {"ready": words}, or {"skip":
 * reason} where the program cannot run on this machine.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct bench_peer {
	pid_t pid;
	FILE *in, *out; /* of the program */
};

/* @words: of the command, ended by NULL; the first one is looked for in PATH. Return: 0; -1 after
 * saying why. */
int bench_peer_start(struct bench_peer *peer, const char *const *words);
/* Waits for the first line and prints it with @name. Return: false after saying why not. */
bool bench_peer_is_ready(struct bench_peer *peer, const char *name);
/* The answer to @command, which the caller releases; NULL after saying why not. */
json_t *bench_peer_ask(struct bench_peer *peer, const char *command);
/* The end of its input ends the program. Takes one that was never started. */
void bench_peer_stop(struct bench_peer *peer);
