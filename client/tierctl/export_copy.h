/* The copying of an export: values from the daemon into files that appear when all of them are complete. */
#ifndef TIERD_CLIENT_TIERCTL_EXPORT_COPY_H
#define TIERD_CLIENT_TIERCTL_EXPORT_COPY_H

#include "client/tierctl/export_files.h"

struct export_copy {
	struct tierd_reader *reader;
	const struct export_list *list;
	const struct export_files *files;
	bool may_replace;
	/* Tells how many bytes are written. */
	void (*progress)(struct export_copy *copy, uint64_t bytes);
	uint64_t bytes;
	bool is_stale; /* the job has moved on: nothing was said, and nothing is left */
};

/* An exit code, after a message: a file is in the way. */
int export_copy_check(const struct export_copy *copy);

/* An exit code, after a message. */
int export_copy_run(struct export_copy *copy);

#endif
