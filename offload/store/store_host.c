#include <assert.h>
#include <errno.h>

#include "offload/device/memory.h"
#include "offload/store/store_backend.h"

struct host_store {
	struct store store;
	struct memory memory;
};

static void *host_address(struct store *store, uint32_t stream, uint64_t offset)
{
	struct host_store *host = container_of(store, struct host_store, store);
	const struct store_stream *found;

	assert(stream < store->layout->stream_count);
	found = &store->layout->streams[stream];
	assert(offset / store_stream_extent_bytes(found) < found->extents);
	return host->memory.base + found->first_byte + offset;
}

static void host_free(struct store *store)
{
	struct host_store *host = container_of(store, struct host_store, store);

	memory_free(&host->memory);
	store_layout_free(store->layout);
	free(host);
}

static const struct store_ops host_ops = {
	.address = host_address,
	.free = host_free,
};

const struct memory *store_host_memory(const struct store *store)
{
	return store->ops == &host_ops ? &container_of(store, const struct host_store, store)->memory : NULL;
}

int store_new_host(struct store_layout *layout, struct store **ret_store)
{
	uint64_t length = store_layout_whole_bytes(layout);
	struct host_store *host = calloc(1, sizeof(*host));
	int r;

	if (!host) {
		store_layout_free(layout);
		return -ENOMEM;
	}
	host->store.ops = &host_ops;
	host->store.layout = layout;
	host->memory = (struct memory)MEMORY_INIT;
	r = length > 0 ? memory_new_private(length, &host->memory) : 0;
	if (r < 0) {
		host_free(&host->store);
		return r;
	}
	if (length > 0)
		memory_make_huge(&host->memory, false);
	host->store.host_bytes = sizeof(*host) + length + store_layout_host_bytes(layout);
	*ret_store = &host->store;
	return 0;
}
