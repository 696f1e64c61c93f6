#include "daemon/model/region.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"

/* What the allocator adds to a block of this size is little beside it. */
#define BLOCK_BYTES (64 * KIB)
#define ALIGN_BYTES sizeof(uint64_t)

struct region_block {
	struct region_block *older;
	size_t size;
	char bytes[];
};

/* What is left of the newest block stays unused. */
static int add_block(struct region *region, size_t least)
{
	size_t size = BLOCK_BYTES - sizeof(struct region_block);
	struct region_block *block;

	size = size > least ? size : least;
	block = malloc(sizeof(*block) + size);
	if (!block)
		return -1;
	block->older = region->blocks;
	block->size = size;
	*region = (struct region){ .blocks = block };
	return 0;
}

static char *take(struct region *region, size_t size, size_t alignment)
{
	size_t at = size_align(region->used, alignment);

	if (!region->blocks || at > region->blocks->size || size > region->blocks->size - at) {
		if (add_block(region, size) < 0)
			return NULL;
		at = 0;
	}
	region->used = at + size;
	return region->blocks->bytes + at;
}

void *region_alloc(struct region *region, size_t size)
{
	void *piece = take(region, size, ALIGN_BYTES);

	return piece ? memset(piece, 0, size) : NULL;
}

char *region_copy_text(struct region *region, const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = take(region, size, 1);

	return copy ? memcpy(copy, text, size) : NULL;
}

void region_rewind(struct region *region, struct region before)
{
	while (region->blocks != before.blocks) {
		struct region_block *older = region->blocks->older;

		free(region->blocks);
		region->blocks = older;
	}
	region->used = before.used;
}

void region_clear(struct region *region)
{
	region_rewind(region, (struct region){ NULL });
}
