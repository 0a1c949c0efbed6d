/* SPDX-License-Identifier: Apache-2.0 */
/* Whose rights zinf-net has; see rights.h. Floor 3, of zinf-net. */
#include "daemon/worker/net/rights.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/err.h"

/* Linux's own for "none": the uid's groups are nobody's business here. */
#define RIGHTS_NO_GID 65534u

static int parse(const char *uid, uid_t *ret_uid)
{
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(uid, &end, 10);
	if (errno || *end || uid[0] < '0' || uid[0] > '9' || !number || number >= UINT32_MAX)
		return -EINVAL;
	*ret_uid = (uid_t)number;
	return 0;
}

/* The order counts: without root's uid no group can be given up. */
static int become(uid_t uid)
{
	if (setgroups(0, NULL) || setresgid(RIGHTS_NO_GID, RIGHTS_NO_GID, RIGHTS_NO_GID) ||
	    setresuid(uid, uid, uid))
		return -errno;
	/* The kernel has done so at the change of the uid; this does not depend on a sysctl. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return -errno;
	return setresuid(0, 0, 0) ? 0 : -EPERM; /* Root again: then nothing was given up. */
}

/* Documented in the header, as is the other. */
int rights_give_up(const char *uid, struct zi_text *text)
{
	uid_t number;
	int r;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return err_origin(zi_text_error(text, -errno, "no_new_privs: %s", strerror(errno)));
	if (!uid)
		return 0;
	if (parse(uid, &number))
		return err_origin(zi_text_error(text, -EINVAL, "'%.40s' is no uid of a user", uid));
	r = become(number);
	if (r)
		return err_origin(
			zi_text_error(text, r, "becoming user %u: %s", number, strerror(-r)));
	return 0;
}

int rights_check_port(uint16_t port, struct zi_text *text)
{
	if (!port || port >= RIGHTS_PORT_MIN || !geteuid())
		return 0;
	return err_origin(zi_text_error(
		text, -EACCES,
		"port %u (ZINF_PORT) is below %u, for root's jobs only: set ZINF_PORT to a port "
		"from %u to 65535 on all nodes",
		port, RIGHTS_PORT_MIN, RIGHTS_PORT_MIN));
}
