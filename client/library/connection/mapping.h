/* A mapping is memory that this process shares with the daemon; a forked child does not inherit it. */
#ifndef TIERD_CLIENT_MAPPING_H
#define TIERD_CLIENT_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mapping {
	void *address; /* NULL: none */
	size_t bytes;
};

/* Maps the first bytes of fd, at an address where huge pages fit. -EPROTO: the file is shorter. */
int mapping_new(int fd, uint64_t bytes, int protection, struct mapping *ret_mapping);

/* The first bytes of a file, at an offset of the mapping. */
struct mapping_file {
	int fd;
	uint64_t offset, bytes;
};

/* Several files, in ascending order; what lies between them cannot be used. -EPROTO also where they overlap.
 */
int mapping_new_files(const struct mapping_file *files, unsigned count, int protection,
		      struct mapping *ret_mapping);

/* Whether the mapping, which may be absent, has all these bytes, at an address that is aligned for every
 * format. */
bool mapping_has(const struct mapping *mapping, const void *address, uint64_t bytes);

/* Maps an exchange window, to be read and written. -EPROTO: it has less than a page. */
int mapping_new_window(int fd, uint64_t bytes, struct mapping *ret_mapping);

void mapping_free(struct mapping *mapping);

#endif
