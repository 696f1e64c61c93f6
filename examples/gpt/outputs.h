/* The files that a run writes at its end. They are opened at its start: a path that cannot be written must
 * not cost the training. What is there under their names stays until the run has succeeded. */
#ifndef GPT_OUTPUTS_H
#define GPT_OUTPUTS_H

#include <stdio.h>

#include "common/cleanup.h"
#include "options.h"

struct output {
	FILE *file; /* NULL: not wanted */
	const char *path;
	char *partial; /* beside it, where it is written; NULL: there itself, as a device is */
};

struct outputs {
	struct output json, dump;
};

/* Opens what the options name, on rank 0 only. Errors have been reported. */
int outputs_open(const struct options *options, struct outputs *ret_outputs);
/* They are complete, and get their names. Errors have been reported. */
int outputs_keep(struct outputs *outputs);
/* Removes what has no name yet. */
void outputs_close(struct outputs *outputs);

/* The path of the file that could not be written; NULL: all could. */
const char *outputs_failed(const struct outputs *outputs);

#endif
