#include "client/library/pages/gpu_tier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/library/pages/job.h"

/* The descriptors of an answer, in their order. */
enum { FD_DIRECTORY, FD_LEASES, FD_MEMORY, FDS };
static_assert(FDS == GPU_TIER_FDS, "an answer has them all");

/* Of all slots and more. */
#define MOST_EVENTS (1u << 20)

/* ---- Pages ---- */

static int map_pages(struct gpu_tier *tier, const Tierd__Wire__GpuAttachReply *reply, const int *fds)
{
	int r = mapping_new(fds[FD_DIRECTORY], reply->directory_bytes, PROT_READ, &tier->directory_mapping);

	if (r == 0)
		r = mapping_new(fds[FD_LEASES], reply->lease_bytes, PROT_READ | PROT_WRITE,
				&tier->lease_mapping);
	if (r < 0 && r != -EPROTO)
		message_fail(r, "mapping the pages of a GPU: %s", strerror(-r));
	return r;
}

static int check_pages(const struct tierd_job *job, const struct gpu_tier *tier,
		       const Tierd__Wire__GpuAttachReply *reply)
{
	const struct directory_header *directory = tier->directory_mapping.address;
	const struct gpu_lease_header *leases = tier->lease_mapping.address;

	if (reply->directory_bytes < directory_bytes(job->unit_count, 0) ||
	    reply->lease_bytes < gpu_lease_bytes(job->unit_count) || directory->magic != GPU_PAGES_MAGIC ||
	    leases->magic != GPU_PAGES_MAGIC || directory->unit_count != job->unit_count ||
	    leases->unit_count != job->unit_count)
		return -EPROTO;
	if (directory->version != GPU_PAGES_VERSION || leases->version != directory->version)
		return message_fail(-EPROTONOSUPPORT,
				    "tierd laid its pages out in version %u, and this library (" TIERD_VERSION
				    ") uses %u; update the older of the two",
				    directory->version, GPU_PAGES_VERSION);
	return 0;
}

/* ---- Memory ---- */

static int read_handles(const Tierd__Wire__GpuAttachReply *reply, struct driver_event_handle *ret_handles)
{
	for (size_t i = 0; i < reply->n_events; i++) {
		if (reply->events[i].len != sizeof(*ret_handles))
			return -EPROTO;
		memcpy(&ret_handles[i], reply->events[i].data, sizeof(*ret_handles));
	}
	return 0;
}

static int map_memory(struct gpu_tier *tier, const Tierd__Wire__GpuAttachReply *reply, int fd)
{
	struct driver_event_handle *handles;
	int r;

	if (reply->memory_bytes == 0 || reply->n_events > MOST_EVENTS)
		return -EPROTO;
	handles = calloc(reply->n_events + 1, sizeof(*handles));
	if (!handles)
		return message_fail_memory();
	r = read_handles(reply, handles);
	if (r == 0)
		r = gpu_mapping_new(tier->gpu, fd, reply->memory_bytes, handles, reply->n_events,
				    &tier->mapping);
	free(handles);
	return r;
}

/* ---- Life ---- */

static void set_up(struct gpu_tier *tier, uint32_t unit_count, const Tierd__Wire__GpuAttachReply *reply)
{
	tier->leases = tier->lease_mapping.address;
	tier->released = gpu_lease_released(tier->leases, unit_count);
	tier->is_whole = reply->is_whole;
	tier->table = (struct lease_table){
		.entries = directory_entries(tier->directory_mapping.address),
		.counters = gpu_lease_counters(tier->leases),
		.is_release_wanted = &tier->leases->is_release_wanted,
		.memory = gpu_mapping_address(tier->mapping),
		.bytes = reply->memory_bytes,
	};
}

int gpu_tier_new(const struct tierd_job *job, const Tierd__Wire__GpuAttachReply *reply, const int *fds,
		 struct gpu_tier **ret_tier)
{
	struct gpu_tier *tier = calloc(1, sizeof(*tier));
	int r;

	if (!tier)
		return message_fail_memory();
	tier->gpu = job->gpu;
	r = map_pages(tier, reply, fds);
	if (r == 0)
		r = check_pages(job, tier, reply);
	if (r == 0)
		r = map_memory(tier, reply, fds[FD_MEMORY]);
	if (r < 0) {
		gpu_tier_free(tier, false);
		return r;
	}
	set_up(tier, job->unit_count, reply);
	*ret_tier = tier;
	return 0;
}

int gpu_tier_add_gradients(struct gpu_tier *tier, int fd, uint64_t bytes)
{
	return tier->gradients ? 0 : gpu_mapping_new(tier->gpu, fd, bytes, NULL, 0, &tier->gradients);
}

void gpu_tier_retire(struct gpu_tier *tier, bool is_child)
{
	tier->mapping = gpu_mapping_free(tier->mapping, is_child);
	tier->gradients = gpu_mapping_free(tier->gradients, is_child);
}

struct gpu_tier *gpu_tier_free(struct gpu_tier *tier, bool is_child)
{
	if (!tier)
		return NULL;
	gpu_tier_retire(tier, is_child);
	if (!is_child) {
		mapping_free(&tier->directory_mapping);
		mapping_free(&tier->lease_mapping);
	}
	free(tier);
	return NULL;
}

/* ---- Order ---- */

size_t gpu_tier_events(const struct gpu_tier *tier)
{
	return gpu_mapping_events(tier->mapping);
}

int gpu_tier_wait(const struct gpu_tier *tier, size_t event, struct driver_stream *stream)
{
	return gpu_mapping_wait(tier->mapping, event, stream);
}

/* Events are behind all events before them: the last number counts, whichever thread has it. */
static void raise_to(_Atomic uint64_t *number, uint64_t to)
{
	uint64_t now = atomic_load_explicit(number, memory_order_relaxed);

	while (now < to && !atomic_compare_exchange_weak_explicit(number, &now, to, memory_order_release,
								  memory_order_relaxed))
		;
}

int gpu_tier_mark(struct gpu_tier *tier, struct driver_stream *stream, uint64_t *ret_number)
{
	int r = gpu_record(tier->gpu, stream, ret_number);

	if (r == 0)
		raise_to(&tier->leases->recorded, *ret_number);
	return r;
}

int gpu_tier_pass(struct gpu_tier *tier, uint32_t unit, struct driver_stream *stream)
{
	uint64_t number;
	int r;

	if (tier->is_whole)
		return gpu_note(tier->gpu, stream);
	r = gpu_tier_mark(tier, stream, &number);
	if (r == 0)
		raise_to(&tier->released[unit], number);
	return r;
}

int gpu_tier_fence(struct gpu_tier *tier)
{
	uint64_t number;
	int r;

	if (!tier->is_whole)
		return 0;
	r = gpu_join(tier->gpu, &number);
	if (r < 0)
		return r;
	raise_to(&tier->leases->recorded, number);
	raise_to(&tier->leases->fence, number);
	return 0;
}
