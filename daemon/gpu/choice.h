/* Which of two ways bytes go between host memory and GPUs: plainly, each copy by itself, or together. Packs
 * for several GPUs: each copies all of it from host memory, or a part, and gets the rest from the others.
 * What ranks push: each contribution comes to host memory, or the GPUs sum them, and the sum comes. Which is
 * faster depends on how the GPUs are connected, with the host and with one another, so it is measured: some
 * go each way, and then all the faster one. */
#ifndef TIERD_DAEMON_GPU_CHOICE_H
#define TIERD_DAEMON_GPU_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum gpu_way { GPU_WAY_PLAIN, GPU_WAY_TOGETHER };
#define GPU_WAYS (GPU_WAY_TOGETHER + 1)

/* The first of a way may have something to set up: the best of these counts. */
#define GPU_CHOICE_TRIES 6
/* Smaller ones take as long as their calls, of which the plain way has fewest: they go it, and tell nothing.
 */
#define GPU_CHOICE_LEAST_BYTES (UINT64_C(256) << 10)

/* All zeros: nothing is known. */
struct gpu_choice {
	bool is_given; /* they go together, whatever is measured */
	uint64_t next;
	struct {
		unsigned seen;
		double best; /* nanoseconds per byte */
	} ways[GPU_WAYS];
};

/* That of one which has that number, or of the next one. While nothing is known those with even numbers go
 * together. */
enum gpu_way gpu_choice_way(const struct gpu_choice *choice, uint64_t number);
enum gpu_way gpu_choice_next(struct gpu_choice *choice);
void gpu_choice_note(struct gpu_choice *choice, enum gpu_way way, uint64_t bytes, uint64_t ns);
/* The plain way has turned out to be faster. */
bool gpu_choice_is_plain(const struct gpu_choice *choice);

#endif
