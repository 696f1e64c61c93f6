#include "offload/store/superblock.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>

#include <xxhash.h>

#include "offload/store/store.h"

/* A record; docs/store.md describes it. Every format has magic, format and the checksum at the end. */
enum {
	AT_MAGIC = 0,
	AT_FORMAT = 8,
	AT_MEMBER = 12,
	AT_MEMBER_COUNT = 14,
	AT_STORE = 16,
	AT_GENERATION = 32,
	AT_EPOCH = 40,
	AT_STEP = 48,
	AT_ROOT = 56,
	AT_PREVIOUS = 80,
	AT_MEMBERS = 104,
	MEMBER_BYTES = 24,
	AT_PLACE_BYTES = AT_MEMBERS + SUPERBLOCK_MAX_MEMBERS * MEMBER_BYTES, /* zeros in format 1 */
	AT_RESERVED = AT_PLACE_BYTES + 8,
	AT_CHECKSUM = SUPERBLOCK_RECORD_BYTES - 8,
};
_Static_assert(AT_RESERVED <= AT_CHECKSUM, "a record holds all members");

static const char magic[8] = "tierd-sb";

/* The number of the copy is the seed, so that a copy at another one's place is bad. */
static uint64_t checksum(const uint8_t *record, unsigned copy)
{
	return XXH3_64bits_withSeed(record, AT_CHECKSUM, copy + 1);
}

static void put_member(uint8_t *bytes, const struct superblock_member *member)
{
	put64(bytes, member->identity);
	put32(bytes + 8, member->extents);
	put32(bytes + 12, member->nodes);
	put32(bytes + 16, member->state);
}

static struct superblock_member get_member(const uint8_t *bytes)
{
	return (struct superblock_member){ get64(bytes), get32(bytes + 8), get32(bytes + 12),
					   get32(bytes + 16) };
}

uint32_t superblock_format(uint64_t place_bytes)
{
	return place_bytes == STORE_EXTENT_BYTES ? 1 : 2;
}

void superblock_encode(const struct superblock *superblock, unsigned copy, uint8_t bytes[SUPERBLOCK_BYTES])
{
	assert(copy < SUPERBLOCK_COPIES && superblock->member_count <= SUPERBLOCK_MAX_MEMBERS);
	memset(bytes, 0, SUPERBLOCK_RECORD_BYTES);
	memcpy(bytes + AT_MAGIC, magic, sizeof(magic));
	put32(bytes + AT_FORMAT, superblock->format);
	put16(bytes + AT_MEMBER, superblock->member);
	put16(bytes + AT_MEMBER_COUNT, superblock->member_count);
	memcpy(bytes + AT_STORE, superblock->store, SUPERBLOCK_IDENTITY_BYTES);
	put64(bytes + AT_GENERATION, superblock->generation);
	put64(bytes + AT_EPOCH, superblock->epoch);
	put64(bytes + AT_STEP, superblock->step);
	node_pointer_put(bytes + AT_ROOT, &superblock->root);
	node_pointer_put(bytes + AT_PREVIOUS, &superblock->previous);
	for (unsigned i = 0; i < superblock->member_count; i++)
		put_member(bytes + AT_MEMBERS + i * MEMBER_BYTES, &superblock->members[i]);
	if (superblock->format > 1)
		put64(bytes + AT_PLACE_BYTES, superblock->place_bytes);
	put64(bytes + AT_CHECKSUM, checksum(bytes, copy));
	for (unsigned at = SUPERBLOCK_RECORD_BYTES; at < SUPERBLOCK_BYTES; at += SUPERBLOCK_RECORD_BYTES)
		memcpy(bytes + at, bytes, SUPERBLOCK_RECORD_BYTES);
}

static bool is_whole(const uint8_t *record, unsigned copy)
{
	return memcmp(record + AT_MAGIC, magic, sizeof(magic)) == 0 &&
	       get64(record + AT_CHECKSUM) == checksum(record, copy);
}

/* The whole record of the highest generation, because a torn write leaves two generations. NULL: none is
 * whole. */
static const uint8_t *best_record(const uint8_t *bytes, unsigned copy)
{
	const uint8_t *best = NULL;

	for (unsigned at = 0; at < SUPERBLOCK_BYTES; at += SUPERBLOCK_RECORD_BYTES)
		if (is_whole(bytes + at, copy) &&
		    (!best || get64(bytes + at + AT_GENERATION) > get64(best + AT_GENERATION)))
			best = bytes + at;
	return best;
}

static bool is_possible(const struct superblock *superblock)
{
	if (superblock->member_count == 0 || superblock->member_count > SUPERBLOCK_MAX_MEMBERS ||
	    superblock->member >= superblock->member_count)
		return false;
	for (unsigned i = 0; i < superblock->member_count; i++)
		if (superblock->members[i].state != MEMBER_PRESENT &&
		    superblock->members[i].state != MEMBER_MISSING)
			return false;
	return true;
}

static struct superblock read_record(const uint8_t *record)
{
	struct superblock superblock = {
		.generation = get64(record + AT_GENERATION),
		.epoch = get64(record + AT_EPOCH),
		.step = get64(record + AT_STEP),
		.format = get32(record + AT_FORMAT),
		.root = node_pointer_get(record + AT_ROOT),
		.previous = node_pointer_get(record + AT_PREVIOUS),
		.member = get16(record + AT_MEMBER),
		.member_count = get16(record + AT_MEMBER_COUNT),
	};

	superblock.place_bytes = superblock.format > 1 ? get64(record + AT_PLACE_BYTES) : STORE_EXTENT_BYTES;
	memcpy(superblock.store, record + AT_STORE, SUPERBLOCK_IDENTITY_BYTES);
	for (unsigned i = 0; i < superblock.member_count && i < SUPERBLOCK_MAX_MEMBERS; i++)
		superblock.members[i] = get_member(record + AT_MEMBERS + i * MEMBER_BYTES);
	return superblock;
}

int superblock_decode(const uint8_t bytes[SUPERBLOCK_BYTES], unsigned copy, struct superblock *ret_superblock,
		      uint32_t *ret_format)
{
	const uint8_t *record = best_record(bytes, copy);
	struct superblock superblock;

	if (!record)
		return -ENODATA;
	superblock = read_record(record);
	if (superblock.format < 1 || superblock.format > SUPERBLOCK_FORMAT) {
		*ret_format = superblock.format;
		return -EPROTONOSUPPORT;
	}
	if (!is_possible(&superblock))
		return -EBADMSG;
	*ret_superblock = superblock;
	return 0;
}
