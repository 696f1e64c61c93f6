/* Progress: how far a command is that takes a while, told now and then, on the terminal or as lines of JSON.
 */
#ifndef TIERD_CLIENT_TIERCTL_PROGRESS_H
#define TIERD_CLIENT_TIERCTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool is_json, is_terminal;
	uint64_t next_ns;
};

void progress_begin(struct progress *progress, bool is_json);
/* It is time to tell something, and somebody who listens: true now and then. */
bool progress_is_due(struct progress *progress);
/* Tells that this many of all bytes are done. Most calls print nothing. */
void progress_tell(struct progress *progress, uint64_t bytes, uint64_t all);
/* The terminal's line is free for other things. */
void progress_end(const struct progress *progress);

#endif
