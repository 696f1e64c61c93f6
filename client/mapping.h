/* A mapping is shared memory of the daemon in this process; a forked child does not inherit it. */
#ifndef TIERD_CLIENT_MAPPING_H
#define TIERD_CLIENT_MAPPING_H

#include <stddef.h>
#include <stdint.h>

struct mapping {
	void *address; /* NULL: none */
	size_t bytes;
};

/* Maps the first bytes of fd, at an address where huge pages fit. -EPROTO: the file is shorter. */
int mapping_new(int fd, uint64_t bytes, int protection, struct mapping *ret_mapping);

/* The first bytes of a file, at an offset of the mapping. */
struct mapping_part {
	int fd;
	uint64_t offset, bytes;
};

/* Several files, in ascending order; what lies between them cannot be used. -EPROTO also where they overlap.
 */
int mapping_new_parts(const struct mapping_part *parts, unsigned count, int protection,
		      struct mapping *ret_mapping);
void mapping_free(struct mapping *mapping);

#endif
