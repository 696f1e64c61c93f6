/* The files that a run writes at its end. They are opened at its start: a path that cannot be written must
 * not cost the training. */
#ifndef GPT_OUTPUTS_H
#define GPT_OUTPUTS_H

#include <stdio.h>

#include "common/cleanup.h"
#include "options.h"

struct outputs {
	FILE *json, *dump; /* NULL: not wanted */
};

/* Opens what the options name, on rank 0 only. Errors have been reported. */
int outputs_open(const struct options *options, struct outputs *ret_outputs);
void outputs_close(struct outputs *outputs);

/* The path of the file that could not be written; NULL: all could. */
const char *outputs_failed(const struct outputs *outputs, const struct options *options);

#endif
