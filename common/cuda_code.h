/* What the code of CUDA kernels is written in: their lanes, and accesses to memory. It comes before all other
 * headers, whose inline functions it has compiled for the GPU.
 *
 * A test compiles kernels for the processor, too (tests/unit/cuda/shim.h): there one call is a whole warp,
 * whose lanes run one after the other. So what lanes know of each other they exchange between loops over
 * them. */
#ifndef TIERD_COMMON_CUDA_CODE_H
#define TIERD_COMMON_CUDA_CODE_H

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WARP_LANES 32

#ifdef __CUDACC__
/* By force: arrays of a lane are registers only where all that they are handed to is inlined. */
#define inline __device__ __forceinline__
/* Of a warp, how many lanes run in one call. */
#define LANES_HERE 1
#define PRAGMA(text) _Pragma(#text)
#else
#define LANES_HERE WARP_LANES
#define PRAGMA(text)
#endif

/* Before a loop over arrays of a lane, for the same reason. */
#define UNROLL PRAGMA(unroll)
/* So many passes of a loop read before they wait for what they have read. */
#define UNROLL_BY(times) PRAGMA(unroll times)

/* The lanes that this call runs. */
#define FOREACH_LANE(lane)                                                                                   \
	for (unsigned lane = threadIdx.x % WARP_LANES, lane##_end = lane + LANES_HERE; lane < lane##_end;    \
	     lane++)

/* Of this warp, in the grid. */
static inline size_t warp_number()
{
	return ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP_LANES;
}

/* The greatest that the lanes of the warp have, all of which call this, with the values of those that run
 * here. */
static inline uint32_t warp_greatest(const uint32_t *values, unsigned count)
{
	uint32_t greatest = values[0];

	UNROLL
	for (unsigned i = 1; i < count; i++)
		greatest = values[i] > greatest ? values[i] : greatest;
#ifdef __CUDACC__
	greatest = __reduce_max_sync(~0U, greatest);
#endif
	return greatest;
}

/* ---- Memory ---- */

/* As many elements as a lane takes at once, with one access of up to 16 bytes. Arrays begin where a group of
 * them is aligned. What is streamed through leaves the caches first. */
#define GROUP 4

template <size_t element_size> struct group_word;
template <> struct group_word<1> {
	typedef unsigned type;
};
template <> struct group_word<2> {
	typedef uint2 type;
};
template <> struct group_word<4> {
	typedef uint4 type;
};

/* How many of so many elements a group has that begins with this one. */
static inline unsigned group_count(size_t first, size_t count)
{
	return first >= count ? 0 : count - first < GROUP ? (unsigned)(count - first) : GROUP;
}

/* Reads each element once. */
template <typename element> static inline void group_load(element *to, const element *from, unsigned count)
{
	typedef typename group_word<sizeof(element)>::type word;

	if (count == GROUP) {
		word whole = __ldcs((const word *)from);

		memcpy(to, &whole, sizeof(whole));
		return;
	}
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		if (i < count)
			to[i] = __ldcs(from + i);
}

template <typename element> static inline void group_store(element *to, const element *from, unsigned count)
{
	typedef typename group_word<sizeof(element)>::type word;

	if (count == GROUP) {
		word whole;

		memcpy(&whole, from, sizeof(whole));
		__stcs((word *)to, whole);
		return;
	}
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		if (i < count)
			__stcs(to + i, from[i]);
}

#endif
