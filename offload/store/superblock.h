/* A superblock says which commit of a store is the newest, and where its map begins. Bytes only, no I/O.
 *
 * Each device of a store has four copies, two pairs; a commit writes the pair that the newest commit is not
 * in. A copy is eight identical records of a sector each, and as good as its best record: whatever a power
 * failure leaves of a write, a copy is the old one or the new one. */
#ifndef TIERD_OFFLOAD_SUPERBLOCK_H
#define TIERD_OFFLOAD_SUPERBLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "common/little_endian.h"

/* The newest; 1 is all that is older. */
#define SUPERBLOCK_FORMAT 2
#define SUPERBLOCK_BYTES 4096
#define SUPERBLOCK_RECORD_BYTES 512
#define SUPERBLOCK_COPIES 4
/* On its device, from copy to copy: so far apart that one bad spot takes one of them. */
#define SUPERBLOCK_STRIDE (1 << 18)
#define SUPERBLOCK_MAX_MEMBERS 16
#define SUPERBLOCK_IDENTITY_BYTES 16

/* Where a node of the map lies, twice, and what it must be. */
struct node_pointer {
	uint64_t places[2];
	uint64_t checksum;
};

/* As 24 bytes. */
static inline void node_pointer_put(uint8_t *bytes, const struct node_pointer *pointer)
{
	put64(bytes, pointer->places[0]);
	put64(bytes + 8, pointer->places[1]);
	put64(bytes + 16, pointer->checksum);
}

static inline struct node_pointer node_pointer_get(const uint8_t *bytes)
{
	return (struct node_pointer){ { get64(bytes), get64(bytes + 8) }, get64(bytes + 16) };
}

enum superblock_state { MEMBER_PRESENT = 1, MEMBER_MISSING };

struct superblock_member {
	uint64_t identity; /* of the device's file; random */
	uint32_t extents;  /* places that it has for them */
	uint32_t nodes;
	uint32_t state; /* enum superblock_state */
};

struct superblock {
	uint8_t store[SUPERBLOCK_IDENTITY_BYTES]; /* random: the same on all of its devices, and on no others
						   */
	uint64_t generation;		    /* of the commit: no two have the same (epoch, generation) */
	uint64_t epoch;			    /* counts how often the store was opened */
	uint64_t step;			    /* that the commit contains; for people */
	uint64_t place_bytes;		    /* of a place for an extent */
	struct node_pointer root, previous; /* previous: of the commit before */
	uint32_t format;		    /* superblock_format() */
	uint16_t member, member_count;	    /* member: this device */
	struct superblock_member members[SUPERBLOCK_MAX_MEMBERS];
};

/* The first format that can express this size: 1 is for STORE_EXTENT_BYTES. */
uint32_t superblock_format(uint64_t place_bytes);

/* copy: 0 to 3, the number of the copy on its device. */
void superblock_encode(const struct superblock *superblock, unsigned copy, uint8_t bytes[SUPERBLOCK_BYTES]);

/* The best record of a copy. -ENODATA: none is whole; -EPROTONOSUPPORT: it is of another format, ret_format;
 * -EBADMSG: its content is impossible, though its checksum matches. Sizes and numbers of places may have any
 * value. */
int superblock_decode(const uint8_t bytes[SUPERBLOCK_BYTES], unsigned copy, struct superblock *ret_superblock,
		      uint32_t *ret_format);

#endif
