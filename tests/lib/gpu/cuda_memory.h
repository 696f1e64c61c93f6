/* GPU memory of the stand-in: a memory file, which other processes can have. */
#ifndef TIERD_TESTS_LIB_GPU_CUDA_MEMORY_H
#define TIERD_TESTS_LIB_GPU_CUDA_MEMORY_H

#include "tests/lib/gpu/standin.h"

/* Behind the bytes, in the same file. */
struct tail {
	uint64_t magic;
	struct race_table table;
};
#define TAIL_BYTES ((sizeof(struct tail) + 4095) & ~(size_t)4095)

/* The file is locked by whoever has it, in any process. So the other descriptor tells when all have let go.
 */
struct allocation {
	int fd, watch;
	size_t bytes;
	unsigned handles, mappings;
	int device;
	struct tail *tail;
	struct queue link;
};

/* All with the lock held. What no handle and no mapping has is let go by allocation_collect(). */
struct allocation *allocation_find(driver_allocation handle);
bool allocation_is_whole(size_t bytes);
void allocation_collect(void);

#endif
