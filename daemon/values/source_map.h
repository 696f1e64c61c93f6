/* A map of what a job has: under which name elements lie in which of its tensors. Rows of a larger tensor are
 * found under that one's name, tied tensors under both of theirs. */
#ifndef TIERD_DAEMON_SOURCE_MAP_H
#define TIERD_DAEMON_SOURCE_MAP_H

#include "daemon/model/model.h"

/* Elements first … end - 1 of what has this name. */
struct source_entry {
	const char *name; /* the catalog's */
	uint64_t first, end;
	uint32_t unit, tensor;
};

struct source_map {
	const struct catalog *catalog; /* borrowed */
	const char *job_name;	       /* borrowed: for messages */
	struct source_entry *entries;  /* sorted by name and first; owned */
	uint64_t count;
};

/* Host memory that it takes. */
uint64_t source_map_bytes(const struct catalog *catalog);
int source_map_new(const struct catalog *catalog, const char *job_name, struct source_map *ret_map);
void source_map_clear(struct source_map *map);

/* Whether the map has all of a tensor: 1, or 0: nothing of this name. -EINVAL with a message: it has another
 * shape, or a part of it only, or bytes where numbers are wanted. */
int source_map_match(const struct source_map *map, const struct tensor *tensor, char *message, size_t size);

/* Where the tensor's element lies, of one that has matched; at: its element there. */
const struct source_entry *source_map_find(const struct source_map *map, const struct tensor *tensor,
					   uint64_t element, uint64_t *ret_at);

#endif
