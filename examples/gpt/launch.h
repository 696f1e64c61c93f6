/* Starts the ranks of a world on this machine, each a process of its own. */
#ifndef GPT_LAUNCH_H
#define GPT_LAUNCH_H

#include "options.h"

/* Runs this program with the same flags once for each rank, and waits for them. A rank that dies by a signal
 * is started again, at most options->restarts times in all; where that is used up, or a rank fails, the
 * others are ended. Errors have been reported: -ECHILD if a rank failed. */
int launch(char **argv, const struct options *options);

#endif
