/* Spilled sums: where host memory has no room for the gradient sums of all units, it has buffers for some
 * packs' sums, and the others lie on NVMe. */
#ifndef TIERD_DAEMON_SPILL_H
#define TIERD_DAEMON_SPILL_H

#include <stdbool.h>
#include <stdint.h>

struct job;
struct store_layout;

/* ---- spill_plan.c ---- */

/* A buffer has room for the sums of any pack. With one buffer the packs take turns; with a buffer for each
 * pack that has sums (most) nothing is spilled. */
struct spill_plan {
	uint64_t buffer_bytes;
	uint32_t most;
	uint64_t metadata_bytes; /* beside the buffers */
};

struct spill_plan spill_plan(const struct job *job);

/* Bytes of a pack's sums; 0: it has none. */
uint64_t spill_pack_bytes(const struct job *job, uint32_t pack);

/* Whether spilled sums need less host memory than all of them. */
bool spill_is_worth_it(struct job *job, uint64_t sums_bytes);

/* Adds their stream, with a section for each pack; notes where they are in the job. */
int spill_lay_out(struct job *job, struct store_layout *layout);

/* The job's sums may be spilled from now on: their offsets count from the first sum of their pack. */
void spill_take_plan(struct job *job, const struct spill_plan *plan);

/* Bytes for buffers beside the first: half of the spare memory, or what an arena leaves of it, if that is
 * more. */
uint64_t spill_more_bytes(const struct spill_plan *plan, uint64_t spare, uint64_t arena);

/* ---- spill.c ---- */

/* These do nothing for a job whose sums are never spilled. */

/* True: the pack's sums are in host memory, and stay there until they have been pinned and unpinned. False:
 * they are being read; when they are there, additions to them, the sweep and writes of tensors are tried
 * again. */
bool spill_want(struct job *job, uint32_t pack);
/* Somebody does not want them any more. Others who do have to say so again, in the job's next turn. */
void spill_forget(struct job *job, uint32_t pack);
/* After spill_want() has said true. is_changed: what is on NVMe is not what they are now. */
void spill_pin(struct job *job, uint32_t pack, bool is_changed);
void spill_unpin(struct job *job, uint32_t pack);

/* Pins them where they are in host memory now, and is true; else nothing happens. */
bool spill_pin_if_here(struct job *job, uint32_t pack);

/* The pack's sums mean nothing any more. */
void spill_drop(struct job *job, uint32_t pack);

/* Where the pack's sums lie; NULL: not in host memory. They do not move while they are pinned. */
char *spill_address(const struct job *job, uint32_t pack);
/* Of a unit whose sum is not in host memory: the square sums of its blocks, as norm_measure() gives them. */
const double *spill_norm(const struct job *job, uint32_t unit);

/* In the job's turn alone: gives buffers to the packs that wait for them. */
void spill_serve(struct job *job);
/* The job's sums may be spilled. */
bool spill_is_used(const struct job *job);
/* Somebody waits for a buffer, and will get one. */
bool spill_is_wished(const struct job *job);

#endif
