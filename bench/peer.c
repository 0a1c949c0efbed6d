/* SPDX-License-Identifier: Apache-2.0 */
/* Two pipes to a program; see peer.h. */
#include "bench/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"

static json_t *peer_read(struct bench_peer *peer)
{
	char line[4096];

	if (!fgets(line, sizeof line, peer->out))
		return NULL;
	return json_loads(line, 0, NULL);
}

static _Noreturn void run(const char *const *words, int in, int out)
{
	if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
		(void)execvp(words[0], (char *const *)words);
	_exit(1);
}

int bench_peer_start(struct bench_peer *peer, const char *const *words)
{
	int in[2], out[2];

	*peer = (struct bench_peer){ 0 };
	(void)signal(SIGPIPE, SIG_IGN); /* A program that ended is an answer that is missing. */
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) { /* A suite that fails ends at once. */
		fprintf(stderr, "bench: a pipe to %s: %s\n", words[0], strerror(errno));
		return -1;
	}
	peer->pid = fork();
	if (!peer->pid)
		run(words, in[0], out[1]);
	(void)zi_close(in[0]);
	(void)zi_close(out[1]);
	peer->in = fdopen(in[1], "w");
	peer->out = fdopen(out[0], "r");
	if (peer->pid > 0 && peer->in && peer->out)
		return 0;
	fprintf(stderr, "bench: starting %s: %s\n", words[0], strerror(errno));
	return -1;
}

bool bench_peer_is_ready(struct bench_peer *peer, const char *name)
{
	json_t *answer = peer_read(peer);
	const char *words = json_string_value(json_object_get(answer, "ready"));
	const char *reason = json_string_value(json_object_get(answer, "skip"));
	bool is_ready = words != NULL;

	if (is_ready)
		printf("%s: %s\n", name, words);
	else
		printf("skipped: %s: %s\n", name, reason ? reason : "its process ended");
	json_decref(answer);
	return is_ready;
}

json_t *bench_peer_ask(struct bench_peer *peer, const char *command)
{
	json_t *answer = NULL;

	if (fprintf(peer->in, "%s\n", command) >= 0 && !fflush(peer->in))
		answer = peer_read(peer);
	if (!answer)
		fprintf(stderr, "bench: no answer to '%s'\n", command);
	return answer;
}

void bench_peer_stop(struct bench_peer *peer)
{
	if (peer->in)
		(void)fclose(peer->in);
	if (peer->out)
		(void)fclose(peer->out);
	if (peer->pid > 0)
		while (waitpid(peer->pid, NULL, 0) < 0 && errno == EINTR)
			;
	*peer = (struct bench_peer){ 0 };
}
