/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration for a plain user, in one command: everything in one folder, or where XDG says.
 * Floor 7. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* @directory as it is called from everywhere: it need not exist yet. */
static int make_absolute(char *target, const char *directory, struct zi_text *text)
{
	_cleanup_(zi_freep) char *here = NULL;
	size_t bytes;
	int r = 0;

	if (directory[0] == '/') {
		if (zi_copy_name(target, CONFIG_TEXT_BYTES, directory))
			r = zi_text_error(text, err_origin(-ENAMETOOLONG),
			                  "%.80s…: a path has at most %u bytes", directory,
			                  CONFIG_TEXT_BYTES - 1);
	} else {
		here = getcwd(NULL, 0);
		r = here ? join(target, here, directory, text)
		         : zi_text_error(text, err_origin(-errno),
		                         "%.80s: the present folder has no name (%s)", directory,
		                         strerror(errno));
	}
	if (r)
		return err_trace(r);
	for (bytes = strlen(target); bytes > 1 && target[bytes - 1] == '/'; bytes--)
		target[bytes - 1] = '\0';
	return 0;
}

/* A store was made there before. */
static bool is_store_there(const char *folder)
{
	char path[CONFIG_TEXT_BYTES];
	struct stat status;

	if (join(path, folder, "store", NULL) || stat(path, &status))
		return false;
	return S_ISBLK(status.st_mode) || (S_ISREG(status.st_mode) && status.st_size > 0);
}

static int set_store(struct config *config, const char *folder, uint64_t store_bytes,
                     struct zi_text *text)
{
	char assignment[CONFIG_TEXT_BYTES];
	char path[CONFIG_TEXT_BYTES];
	int r;

	r = join(path, folder, "store", text);
	if (r)
		return err_trace(r);
	if (snprintf(assignment, sizeof(assignment), "nvme disk.path=%s", path) >=
	    (int)sizeof(assignment))
		return zi_text_error(text, err_origin(-ENAMETOOLONG), "%s is too long", path);
	r = config_set(config, assignment, text);
	if (r)
		return err_trace(r);
	config->stores[0].bytes = store_bytes;
	config->stores[0].direct = CONFIG_DIRECT_TRY;
	return 0;
}

/**
 * config_set_user() - socket, state and store of a plain user
 * @directory: everything in here; NULL: $XDG_RUNTIME_DIR/zinf and $XDG_STATE_HOME/zinf (else
 *   ~/.local/state/zinf)
 * @store_bytes: of a store "disk" beside the state; 0: the store that is there, as it is, if any
 *
 * Makes nothing. Return: 0; -ENOENT no place is named; -ENAMETOOLONG. Context: main thread.
 */
int config_set_user(struct config *config, const char *directory, uint64_t store_bytes,
                    struct zi_text *text)
{
	char socket_folder[CONFIG_TEXT_BYTES];
	char state_folder[CONFIG_TEXT_BYTES];
	const char *store_folder;
	int r;

	if (directory) {
		r = make_absolute(socket_folder, directory, text);
		if (!r)
			r = join(state_folder, socket_folder, "state", text);
	} else {
		r = find_xdg(socket_folder, state_folder, text);
	}
	if (!r)
		r = join(config->socket, socket_folder, "zinfd.sock", text);
	if (r)
		return err_trace(r);
	(void)zi_copy_name(config->state_dir, sizeof(config->state_dir), state_folder); /* Fits. */
	config->socket_mode = 0600;
	store_folder = directory ? socket_folder : state_folder;
	if (!store_bytes && !is_store_there(store_folder))
		return 0;
	return err_trace(set_store(config, store_folder, store_bytes, text));
}

/**
 * config_make_user() - the folders that config_set_user() named
 *
 * Those of a socket or a state that an option has put elsewhere are made as well. Return: 0, or an
 * errno of mkdir() with @text. Context: main thread.
 */
int config_make_user(const struct config *config, struct zi_text *text)
{
	char folder[CONFIG_TEXT_BYTES];
	char *slash;
	int r;

	(void)zi_copy_name(folder, sizeof(folder), config->socket); /* Of the same size. */
	slash = strrchr(folder, '/');
	*slash = '\0'; /* config_check(): it begins with one. */
	r = make_folders(folder, text);
	if (!r)
		r = make_folders(config->state_dir, text);
	return err_trace(r);
}
