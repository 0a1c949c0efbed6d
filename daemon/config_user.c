/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration for a plain user, in one command: everything in one folder, or where XDG says.
 * Floor 7. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/config.h"

/* "%s/%s" into a text of the configuration. */
static int join(char *target, const char *folder, const char *name, struct zi_text *text)
{
	int bytes = snprintf(target, CONFIG_TEXT_BYTES, "%s/%s", folder, name);

	if (bytes >= (int)CONFIG_TEXT_BYTES)
		return zi_text_error(text, err_origin(-ENAMETOOLONG),
		                     "%s/%s: a path has at most %u bytes", folder, name,
		                     CONFIG_TEXT_BYTES - 1);
	return 0;
}

/* mkdir -p; what is made is the user's alone. */
static int make_folders(const char *folder, struct zi_text *text)
{
	char path[CONFIG_TEXT_BYTES];
	int r = join(path, folder, "", text); /* Ends with a slash: the last one is made as well. */

	for (char *slash = strchr(path + 1, '/'); !r && slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0700) && errno != EEXIST)
			r = zi_text_error(text, err_origin(-errno), "making the folder %s: %s",
			                  path, strerror(errno));
		*slash = '/';
	}
	return err_trace(r);
}

static int find_xdg(char *socket_folder, char *state_folder, struct zi_text *text)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	const char *state = getenv("XDG_STATE_HOME");
	const char *home = getenv("HOME");
	int r;

	if (!runtime || runtime[0] != '/')
		return zi_text_error(
			text, err_origin(-ENOENT),
			"XDG_RUNTIME_DIR is not set: say where the socket and the state "
			"go with --dir DIR");
	r = join(socket_folder, runtime, "zinf", text);
	if (r)
		return err_trace(r);
	if (state && state[0] == '/')
		return err_trace(join(state_folder, state, "zinf", text));
	if (!home || home[0] != '/')
		return zi_text_error(text, err_origin(-ENOENT),
		                     "neither XDG_STATE_HOME nor HOME is set: use --dir DIR");
	return err_trace(join(state_folder, home, ".local/state/zinf", text));
}

/**
 * config_set_user() - socket, state and store of a plain user
 * @directory: everything in here, made when missing; NULL: $XDG_RUNTIME_DIR/zinf and
 *   $XDG_STATE_HOME/zinf (else ~/.local/state/zinf)
 * @store_bytes: of a store "disk" beside the state; 0: none
 *
 * Return: 0; -ENOENT no place is named; -ENAMETOOLONG; an errno of mkdir(). Context: main thread.
 */
int config_set_user(struct config *config, const char *directory, uint64_t store_bytes,
                    struct zi_text *text)
{
	char socket_folder[CONFIG_TEXT_BYTES];
	char state_folder[CONFIG_TEXT_BYTES];
	char absolute[CONFIG_TEXT_BYTES];
	int r;

	if (directory) {
		_cleanup_(zi_freep) char *real = NULL;

		r = make_folders(directory, text);
		if (r)
			return err_trace(r);
		real = realpath(directory, NULL);
		if (!real || zi_copy_name(absolute, sizeof(absolute), real))
			return zi_text_error(text, err_origin(-ENAMETOOLONG),
			                     "%s cannot be resolved to a path of at most %u bytes",
			                     directory, CONFIG_TEXT_BYTES - 1);
		r = join(socket_folder, absolute, ".", text);
		if (!r)
			r = join(state_folder, absolute, "state", text);
		if (!r)
			r = join(config->socket, absolute, "zinfd.sock", text);
	} else {
		r = find_xdg(socket_folder, state_folder, text);
		if (!r)
			r = join(config->socket, socket_folder, "zinfd.sock", text);
	}
	if (!r)
		r = make_folders(socket_folder, text);
	if (!r)
		r = make_folders(state_folder, text);
	if (r)
		return err_trace(r);
	(void)zi_copy_name(config->state_dir, sizeof(config->state_dir), state_folder); /* Fits. */
	config->socket_mode = 0600;
	if (store_bytes) {
		char assignment[CONFIG_TEXT_BYTES];
		char path[CONFIG_TEXT_BYTES];

		r = join(path, directory ? absolute : state_folder, "store", text);
		if (r)
			return err_trace(r);
		if (snprintf(assignment, sizeof(assignment), "nvme disk.path=%s", path) >=
		    (int)sizeof(assignment))
			return zi_text_error(text, err_origin(-ENAMETOOLONG), "%s is too long",
			                     path);
		r = config_set(config, assignment, text);
		if (r)
			return err_trace(r);
		config->stores[0].bytes = store_bytes;
		config->stores[0].direct = CONFIG_DIRECT_TRY;
	}
	return 0;
}
