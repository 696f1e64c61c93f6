/* A source: a job that is looked at by a reader, for its values. */
#ifndef TIERD_CLIENT_TIERCTL_SOURCE_H
#define TIERD_CLIENT_TIERCTL_SOURCE_H

#include <stdbool.h>

#include "client/tierctl/choice.h"
#include "client/tierd.h"

struct source {
	struct tierd_node *node;
	struct tierd_reader *reader;
	bool is_trained; /* ranks were there, a moment ago, and it is no snapshot that is read */
};

/* An exit code, after a message; whose job it is the daemon's list says, as for the other commands. What is
 * opened is closed by source_close(), also after an error. */
int source_open(const struct command_context *context, const struct choice *choice, struct source *source);
void source_close(struct source *source);

/* Says what libtierd has said, and returns COMMAND_FAILED. */
int source_fail(void);

#endif
