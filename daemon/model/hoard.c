#include "daemon/model/hoard.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"

/* What the allocator adds to a block of this size is little beside it. */
#define BLOCK_BYTES (64 * KIB)
#define ALIGN_BYTES sizeof(uint64_t)

struct hoard_block {
	struct hoard_block *older;
	size_t size;
	char bytes[];
};

/* What is left of the newest block stays unused. */
static int add_block(struct hoard *hoard, size_t least)
{
	size_t size = BLOCK_BYTES - sizeof(struct hoard_block);
	struct hoard_block *block;

	size = size > least ? size : least;
	block = malloc(sizeof(*block) + size);
	if (!block)
		return -1;
	block->older = hoard->blocks;
	block->size = size;
	*hoard = (struct hoard){ .blocks = block };
	return 0;
}

static char *take(struct hoard *hoard, size_t size, size_t alignment)
{
	size_t at = size_align(hoard->used, alignment);

	if (!hoard->blocks || at > hoard->blocks->size || size > hoard->blocks->size - at) {
		if (add_block(hoard, size) < 0)
			return NULL;
		at = 0;
	}
	hoard->used = at + size;
	return hoard->blocks->bytes + at;
}

void *hoard_take(struct hoard *hoard, size_t size)
{
	void *piece = take(hoard, size, ALIGN_BYTES);

	return piece ? memset(piece, 0, size) : NULL;
}

char *hoard_copy_text(struct hoard *hoard, const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = take(hoard, size, 1);

	return copy ? memcpy(copy, text, size) : NULL;
}

void hoard_return(struct hoard *hoard, struct hoard before)
{
	while (hoard->blocks != before.blocks) {
		struct hoard_block *older = hoard->blocks->older;

		free(hoard->blocks);
		hoard->blocks = older;
	}
	hoard->used = before.used;
}

void hoard_clear(struct hoard *hoard)
{
	hoard_return(hoard, (struct hoard){ NULL });
}
