/* Which way packs come to several GPUs: each copies all of it from host memory, or a part, and gets the rest
 * from the others. Which is faster depends on how the GPUs are connected, with the host and with one another,
 * so it is measured: some packs are brought each way, and then all by the faster one. */
#ifndef TIERD_DAEMON_GPU_CHOICE_H
#define TIERD_DAEMON_GPU_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum gpu_way { GPU_WAY_PLAIN, GPU_WAY_SHARED };
#define GPU_WAYS (GPU_WAY_SHARED + 1)

/* The first of a way may have something to set up: the best of these counts. */
#define GPU_CHOICE_TRIES 6

/* All zeros: nothing is known. */
struct gpu_choice {
	bool is_given; /* packs are shared, whatever is measured */
	struct {
		unsigned begun, seen;
		double best; /* nanoseconds per byte */
	} ways[GPU_WAYS];
};

/* That of the next pack. */
enum gpu_way gpu_choice_next(struct gpu_choice *choice);
void gpu_choice_note(struct gpu_choice *choice, enum gpu_way way, uint64_t bytes, uint64_t ns);
/* Plain copies have turned out to be faster. */
bool gpu_choice_is_plain(const struct gpu_choice *choice);

#endif
