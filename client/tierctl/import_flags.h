/* The flags of an import: what its tensors become, and what its job is made with. */
#ifndef TIERD_CLIENT_TIERCTL_IMPORT_FLAGS_H
#define TIERD_CLIENT_TIERCTL_IMPORT_FLAGS_H

#include "client/tierctl/command.h"
#include "client/tierctl/import_list.h"

struct import_flags {
	struct import_options tensors;
	struct tierd_job_options job; /* but for its name and rank; its groups are the one here */
	struct tierd_group group;
};

/* An exit code, after a message. What is read points to itself and to the context: neither moves. */
int import_flags_read(const struct command_context *context, struct import_flags *flags);

#endif
