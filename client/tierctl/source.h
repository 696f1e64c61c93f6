/* A source: a job that is looked at by a reader, for its values. */
#ifndef TIERD_CLIENT_TIERCTL_SOURCE_H
#define TIERD_CLIENT_TIERCTL_SOURCE_H

#include <stdbool.h>

#include "client/tierctl/choice.h"
#include "client/tierd.h"

struct source {
	struct tierd_node *node;
	struct tierd_reader *reader;
	bool is_trained;    /* ranks were there, a moment ago, and it is no snapshot that is read */
	bool is_kept;	    /* what it reads stays as it is, whatever the job does */
	char refusal[1024]; /* why it is not, where it was to be */
};

/* An exit code, after a message; whose job it is the daemon's list says, as for the other commands. What is
 * opened is closed by source_close(), also after an error. shall_keep: a job that is trained, or is said to
 * be in source->is_trained, keeps its step for it, on its devices, if it can. */
int source_open(const struct command_context *context, const struct choice *choice, bool shall_keep,
		struct source *source);
void source_close(struct source *source);

/* The number of the tensor's elements. */
uint64_t source_elements(const struct tierd_tensor *tensor);

/* Says what libtierd has said of that negative errno, and returns COMMAND_FAILED. */
int source_fail(int r);

#endif
