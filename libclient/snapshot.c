/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: keeping the committed step, and beginning with one that was kept. Floor 2. */
#include <string.h>

#include "common/base/err.h"
#include "libclient/client.h"

static int check_daemon(struct zinf *zinf)
{
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (zinf->features & ZI_FEATURE_SNAPSHOTS)
		return 0;
	return zi_client_error(zinf, -EOPNOTSUPP, "zinfd at %s is too old for snapshots",
	                       zinf->path);
}

int zinf_load(struct zinf *zinf, const char *source)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, source, source);
	const struct zi_message_header *reply;
	const char *slash = strchr(source, '/');
	struct zi_load message = { 0 };
	size_t job_bytes = slash ? (size_t)(slash - source) : 0;
	int r = check_daemon(zinf);

	if (r)
		return err_trace(r);
	if (!slash || !job_bytes || job_bytes >= sizeof(message.job) || !slash[1] ||
	    zi_copy_name(message.name, sizeof(message.name), slash + 1))
		return zi_client_error(zinf, -EINVAL, "'%.140s' is not JOB/NAME of a snapshot",
		                       source);
	memcpy(message.job, source, job_bytes);
	r = zi_client_request(zinf, &message.header, ZI_MESSAGE_LOAD, sizeof(message),
	                      ZI_MESSAGE_DONE, &reply, NULL, 0);
	return err_trace(r);
}

int zinf_snapshot(struct zinf *zinf, const struct zinf_snapshot_options *options, int64_t *ret_step)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	const struct zinf_snapshot_options none = ZINF_SNAPSHOT_OPTIONS_INIT;
	const struct zi_message_header *reply;
	struct zi_snapshot message = { 0 };
	int r = check_daemon(zinf);

	if (r)
		return err_trace(r);
	if (!options)
		options = &none;
	if (options->bytes < sizeof(*options))
		return zi_client_error(zinf, -EINVAL,
		                       "zinf_snapshot_options.bytes is %u, at least %zu are known",
		                       options->bytes, sizeof(*options));
	if (options->name && zi_copy_name(message.name, sizeof(message.name), options->name))
		return zi_client_error(zinf, -EINVAL, "the name of a snapshot has at most %u bytes",
		                       ZI_NAME_BYTES - 1);
	message.keep_count = options->keep_count;
	message.flags = options->keep_count ? ZI_SNAPSHOT_AUTOMATIC : 0;
	r = zi_client_request(zinf, &message.header, ZI_MESSAGE_SNAPSHOT, sizeof(message),
	                      ZI_MESSAGE_SNAPSHOTTED, &reply, NULL, 0);
	if (r)
		return err_trace(r);
	if (ret_step)
		*ret_step = ((const struct zi_snapshotted *)reply)->step;
	return 0;
}
