/* The checksum of a block: XXH3-64 with a seed. The shared library has it in vectors of 16 bytes, which every
 * processor has. Here it is compiled for wider ones, too, and the first call measures for a millisecond which
 * of them this processor does fastest. All give the same bits. */
#ifndef TIERD_OFFLOAD_CHECKSUM_H
#define TIERD_OFFLOAD_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#include "common/simd.h"

typedef uint64_t checksum_kernel(const void *bytes, size_t length, uint64_t seed);

checksum_kernel checksum;

/* That of a level, which is at most simd_level(). */
checksum_kernel *checksum_find_kernel(enum simd_level level);

#endif
