/* Placement: the tiers that a job's parameters, optimizer state and sums of gradients go to; where that is
 * tierd's to choose, those that leave the least to move in each step. Arithmetic only. */
#ifndef TIERD_DAEMON_PLACEMENT_H
#define TIERD_DAEMON_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/vocabulary.h"

#define PLACEMENT_CHOICES 8

struct job;

struct placement {
	bool has_nvme_parameters, has_nvme_optimizer, has_nvme_sums;
};

/* What a choice depends on. */
struct placement_job {
	uint32_t parameters, optimizer; /* enum wire_placement, as asked for; DEFAULT is resolved */
	uint32_t stage;
	bool has_paths;
	bool is_durable;
	bool may_spill; /* its sums of gradients, which are tierd's to place, too */
	uint64_t trainable_bytes, frozen_bytes, state_bytes, sums_bytes;
};

/* Something of it is tierd's to choose. */
bool placement_is_chosen(const struct job *job);

/* When it has come to rest, all of its state is on NVMe, whatever of it lives in host memory meanwhile. */
bool placement_may_release(const struct job *job);

/* Of a job that has its packs. */
struct placement_job placement_describe(const struct job *job);

/* All that may be tried, best first; the last one takes the least host memory. How many: at least one. */
unsigned placement_choices(const struct placement_job *job, struct placement choices[PLACEMENT_CHOICES]);

/* Bytes that go to and from NVMe in a step of one micro-batch if nothing of the parameters is cached. */
uint64_t placement_traffic(const struct placement_job *job, struct placement placement);

static inline const char *placement_name(bool is_nvme)
{
	return is_nvme ? "nvme" : "host";
}

#endif
