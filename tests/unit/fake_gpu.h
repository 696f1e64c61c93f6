/* The fake GPU is what a fake peer has of GPU 0: the daemon's pages there, and a process that has its memory
 * and its events, because the driver opens no events of the same process. */
#ifndef TIERD_TESTS_FAKE_GPU_H
#define TIERD_TESTS_FAKE_GPU_H

#include "proto/gpu_pages.h"
#include "tests/unit/fake_peer.h"

#define FAKE_GPU_BYTES ((uint64_t)2 << 20)
#define FAKE_GPU_SLOT_BYTES 65536
#define FAKE_GPU_SLOTS 16
#define FAKE_GPU_NAME "fake-gpu" /* its first argument */

struct fake_gpu {
	bool is_whole;
	bool is_lying; /* it says that copies have arrived */
	bool is_late;  /* the client may have gone, with its events, when it answers */
	/* Changes what the peer answers to GpuAttach, before it is sent. */
	void (*spoil)(struct fake_gpu *gpu, Tierd__Wire__GpuAttachReply *reply);

	int process, socket;
	bool has_raced;
	unsigned char values[FAKE_GPU_SLOTS]; /* in the slots; 0: none yet */
	struct directory_header *directory;
	struct gpu_lease_header *leases;
	uint32_t unit_count;
	int fds[3]; /* of an answer; -1: none */
	_Atomic unsigned attached, gathers;
	char uuid[GPU_UUID_BYTES];
	uint64_t budget;
	float update_fraction;
};

void fake_gpu_start(struct fake_gpu *gpu);
/* That of the event behind copies into a slot. */
const void *fake_gpu_handle(unsigned slot);
/* Its process ends, and has seen no race. */
void fake_gpu_stop(struct fake_gpu *gpu);
/* What main() does with arguments: it is that process. */
int fake_gpu_main(char **argv);

/* In a peer's hook: the requests about GPUs. */
bool fake_gpu_answer(struct fake_gpu *gpu, struct fake_peer *peer, uint32_t number,
		     const Tierd__Wire__Request *request);

/* The byte of which all bytes of the unit are at that step. */
unsigned char fake_gpu_value(uint32_t unit, uint64_t step);

/* Copies wait from now on, or go on. */
void fake_gpu_hold(struct fake_gpu *gpu, bool is_held);
/* Waits for all copies, and shows the unit in the directory at that step. */
void fake_gpu_publish(struct fake_gpu *gpu, uint32_t unit, uint64_t step);
/* Fills the unit's slot with another value, behind that event of the client's (0: none), and waits for it.
 * False: its process has ended, because streams race. */
bool fake_gpu_overwrite(struct fake_gpu *gpu, uint32_t unit, uint64_t event);

static inline uint64_t fake_gpu_released(struct fake_gpu *gpu, uint32_t unit)
{
	return gpu_lease_released(gpu->leases, gpu->unit_count)[unit];
}

static inline uint32_t fake_gpu_leases(struct fake_gpu *gpu, uint32_t unit)
{
	return gpu_lease_counters(gpu->leases)[unit];
}

#endif
