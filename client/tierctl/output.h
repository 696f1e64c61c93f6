/* An output: where a command writes what it was told to: the standard output, what is no regular file, or a
 * file that appears when it is complete. */
#ifndef TIERD_CLIENT_TIERCTL_OUTPUT_H
#define TIERD_CLIENT_TIERCTL_OUTPUT_H

#include <stdio.h>

#include "client/tierctl/command.h"

struct output;

/* path: "-" is the standard output; in a folder the file gets that name (NULL: none, and a folder is
 * refused). A file that is there is in the way, unless it may be replaced. An exit code, after a message. */
int output_open(const char *path, const char *name, bool may_replace, struct output **ret_output);
/* Nothing is left of what was not published. */
struct output *output_free(struct output *output);
DEFINE_FREEP(struct output *, output_free)

/* Owned by the output. */
FILE *output_stream(const struct output *output);
/* NULL: the standard output. */
const char *output_path(const struct output *output);
/* A file that is there would be replaced. */
bool output_replaces(const struct output *output);

/* Once, when all is written. An exit code, after a message. */
int output_publish(struct output *output);

#endif
