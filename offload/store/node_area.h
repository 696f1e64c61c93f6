/* The node area is the part of a store's devices where the nodes of maps lie, each twice, on two devices if
 * there are two. Nodes are written and read in batches. */
#ifndef TIERD_OFFLOAD_NODE_AREA_H
#define TIERD_OFFLOAD_NODE_AREA_H

#include <stdbool.h>

#include "offload/store/map_node.h"
#include "offload/store/places.h"
#include "offload/device/tier.h"

#define NODE_BATCH 64

struct node_area;

/* It begins at that offset of each device, and has as many places on each. tiers are borrowed. -ENOMEM,
 * -EINVAL. */
int node_area_new(struct tier *const *tiers, unsigned device_count, uint64_t offset, uint32_t places,
		  struct node_area **ret_area);
struct node_area *node_area_free(struct node_area *area);
DEFINE_FREEP(struct node_area *, node_area_free)

/* Host memory that an area takes. */
uint64_t node_area_host_bytes(unsigned device_count, uint32_t places);

/* Where the next node of the batch is to be made; NULL: the batch is full. */
uint8_t *node_area_next(struct node_area *area);

/* It has been made; it gets free places, which nobody else gets until node_area_give(). -ENOSPC. */
int node_area_add(struct node_area *area, struct node_pointer *ret_pointer);
/* The same, but it gets the places of a pointer to a node that nobody names any more. -ENOSPC: somebody does.
 */
int node_area_add_at(struct node_area *area, const struct node_pointer *former,
		     struct node_pointer *ret_pointer);

/* Nobody names anything any more. */
void node_area_clear(struct node_area *area);
/* From now on no place is given out but by node_area_add_at(). */
void node_area_withhold(struct node_area *area);

/* Writes the batch, of one node at least, and begins another; a write that fails is tried twice. done() runs
 * once, on the loop, when nothing of it is in flight any more; after an error here, never. */
int node_area_write(struct node_area *area, void (*done)(void *argument, int status), void *argument);

struct node_read {
	struct node_pointer pointer;
	struct node_header expected; /* but generation and epoch */
	const uint8_t *bytes;	     /* set; valid until the area is used again */
};

/* Reads up to NODE_BATCH nodes, each from its second place if what is in the first is not it. done() as
 * above; -EBADMSG: neither of one's places has it, and node_area_failure() says which. */
int node_area_read(struct node_area *area, struct node_read *reads, unsigned count,
		   void (*done)(void *argument, int status), void *argument);

/* Of the last batch that failed: where the first error was. */
struct node_failure {
	const char *device;
	uint64_t device_offset;
};
struct node_failure node_area_failure(const struct node_area *area);

/* A root, or another node, names it too; or does not any more, and if nobody else did it is free: true.
 * -EINVAL: it is no pointer into this area; -EMFILE. */
int node_area_name(struct node_area *area, const struct node_pointer *pointer);
bool node_area_give(struct node_area *area, const struct node_pointer *pointer);
/* How many name it. -EINVAL. */
int node_area_names(const struct node_area *area, const struct node_pointer *pointer);
/* Where a place of a pointer lies that node_area_names() knows. */
void node_area_locate(const struct node_area *area, uint64_t place, unsigned *ret_device,
		      uint64_t *ret_device_offset);
/* Of all devices. */
uint64_t node_area_free_places(const struct node_area *area);

#endif
