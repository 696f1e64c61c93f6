/* Completion: what may come next on a command line of tierctl. */
#ifndef TIERD_CLIENT_TIERCTL_COMPLETE_H
#define TIERD_CLIENT_TIERCTL_COMPLETE_H

#include "client/tierctl/verb.h"

/* The words after "tierctl", of which the last is the one that is being typed, and may be empty. Prints a
 * candidate on each line; ":file" and ":user" are for the shell to find. Says nothing of what is wrong. */
void complete(const struct verb verbs[], int count, char *words[]);

#endif
