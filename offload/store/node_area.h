/* The node area of a store's devices has the nodes of maps, each twice, on two devices if there are two.
 * Nodes are written and read in batches. */
#ifndef TIERD_OFFLOAD_NODE_AREA_H
#define TIERD_OFFLOAD_NODE_AREA_H

#include <stdbool.h>

#include "offload/store/map_node.h"
#include "offload/store/places.h"
#include "offload/device/tier.h"

#define NODE_BATCH 64

struct node_area;

/* An area of so many places at this offset of each device. tiers are borrowed. -ENOMEM, -EINVAL. */
int node_area_new(struct tier *const *tiers, unsigned device_count, uint64_t offset, uint32_t places,
		  struct node_area **ret_area);
struct node_area *node_area_free(struct node_area *area);
DEFINE_FREEP(struct node_area *, node_area_free)

/* Host memory that an area takes. */
uint64_t node_area_host_bytes(unsigned device_count, uint32_t places);

/* A buffer for the next node of the batch; NULL: the batch is full. */
uint8_t *node_area_next(struct node_area *area);

/* Adds that node to the batch, at free places, until node_area_give(). -ENOSPC. */
int node_area_add(struct node_area *area, struct node_pointer *ret_pointer);
/* The same, at the places of a former node. -ENOSPC: they are not free. */
int node_area_add_at(struct node_area *area, const struct node_pointer *former,
		     struct node_pointer *ret_pointer);

/* Frees all places. */
void node_area_clear(struct node_area *area);
/* From now on only node_area_add_at() gives places out. */
void node_area_lock(struct node_area *area);

/* Writes the batch, of one node at least, and begins another. A write that fails is tried again once. done()
 * runs once, on the loop, when nothing of it is in flight; after an error here, never. */
int node_area_write(struct node_area *area, void (*done)(void *argument, int status), void *argument);

struct node_read {
	struct node_pointer pointer;
	struct node_header expected; /* without generation and epoch */
	const uint8_t *bytes;	     /* result; valid until the area is used again */
};

/* Reads up to NODE_BATCH nodes, each from its second place if the first one is bad. done() as above;
 * -EBADMSG: both places of a node are bad, and node_area_failure() says which. */
int node_area_read(struct node_area *area, struct node_read *reads, unsigned count,
		   void (*done)(void *argument, int status), void *argument);

/* Where the last batch failed. */
struct node_failure {
	const char *device;
	uint64_t device_offset;
};
struct node_failure node_area_failure(const struct node_area *area);

/* Adds a name to a node, or removes one; true: it was the last, and the node is free. -EINVAL: the pointer is
 * not into this area; -EMFILE. */
int node_area_name(struct node_area *area, const struct node_pointer *pointer);
bool node_area_give(struct node_area *area, const struct node_pointer *pointer);
/* How many names it has. -EINVAL. */
int node_area_names(const struct node_area *area, const struct node_pointer *pointer);
/* The device and offset of a place of a pointer that node_area_names() accepts. */
void node_area_locate(const struct node_area *area, uint64_t place, unsigned *ret_device,
		      uint64_t *ret_device_offset);
/* Free places of all devices. */
uint64_t node_area_free_places(const struct node_area *area);

#endif
