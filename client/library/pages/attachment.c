#include "client/library/pages/attachment.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "client/library/pages/debug.h"
#include "client/library/pages/job.h"
#include "client/library/pages/ticket.h"
#include "proto/vocabulary.h"

/* The descriptors of a connection's first ready, in their order. */
enum { FD_DIRECTORY, FD_ARENA, FD_LEASES, FD_GRADIENTS, FD_DOORBELL, FDS, FD_CACHE = FDS };
static_assert(FDS == ATTACHMENT_FDS && FD_CACHE < TICKET_MAX_FDS, "an answer holds them all");

/* ---- Pages ---- */

/* Maps what the reply promises of the arena, and behind it the cache, if the job has one. */
static int map_arena(struct attachment *attachment, const Tierd__Wire__JobReadyReply *reply, const int *fds)
{
	const struct mapping_file files[] = {
		{ fds[FD_ARENA], 0, reply->arena_bytes },
		{ fds[FD_CACHE], reply->cache_offset, reply->cache_bytes },
	};

	return mapping_new_files(files, reply->cache_bytes > 0 ? 2 : 1, PROT_READ,
				 &attachment->arena_mapping);
}

static int map_gradients(struct attachment *attachment, const Tierd__Wire__JobReadyReply *reply, int fd)
{
	struct gradient_buffers *buffers = &attachment->gradient_buffers;
	uint64_t bytes;

	*buffers = (struct gradient_buffers){ reply->gradient_buffers, reply->gradient_buffer_bytes,
					      reply->last_buffer_bytes ? reply->last_buffer_bytes
								       : reply->gradient_buffer_bytes,
					      reply->gradient_room };
	attachment->room.bytes = buffers->room;
	gradient_room_rewind(&attachment->room);
	if (buffers->count == 0 || buffers->last_bytes < buffers->bytes ||
	    __builtin_mul_overflow(buffers->count - 1, buffers->bytes, &bytes) ||
	    __builtin_add_overflow(bytes, buffers->last_bytes, &bytes))
		return -EPROTO;
	/* A rank has fixed buffers or a room, not both. */
	if (buffers->room > 0 && bytes > 0)
		return -EPROTO;
	bytes += buffers->room;
	return bytes > 0 ? mapping_new(fd, bytes, PROT_READ | PROT_WRITE, &attachment->gradient_mapping) : 0;
}

static int map_all(struct attachment *attachment, const Tierd__Wire__JobReadyReply *reply, const int *fds)
{
	int r = -EPROTO;

	/* Besides those that the job asked for there is one for larger units. */
	if (reply->gradient_buffers <= WIRE_MAX_GRADIENT_BUFFERS + 1)
		r = mapping_new(fds[FD_DIRECTORY], reply->directory_bytes, PROT_READ,
				&attachment->directory_mapping);
	if (r == 0)
		r = map_arena(attachment, reply, fds);
	if (r == 0)
		r = mapping_new(fds[FD_LEASES], reply->lease_bytes, PROT_READ | PROT_WRITE,
				&attachment->lease_mapping);
	return r < 0 ? r : map_gradients(attachment, reply, fds[FD_GRADIENTS]);
}

static int refuse_version(const struct tierd_job *job, const struct directory_header *directory)
{
	connection_fail(job->node, -EPROTONOSUPPORT,
			"tierd laid the pages of job \"%s\" out in version %u, and this library "
			"(" TIERD_VERSION ") uses %u to %u; update the older of the two",
			job->name, directory->version, job->node->pages.minimum, job->node->pages.maximum);
	return -EPROTONOSUPPORT;
}

static uint64_t count_sections(const struct tierd_job *job)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < job->unit_count; i++)
		count += unit_layout_sections(&job->units[i]->layout);
	return count;
}

static int check_pages(const struct tierd_job *job, const struct attachment *attachment,
		       const Tierd__Wire__JobReadyReply *reply)
{
	const struct directory_header *directory = attachment->directory_mapping.address;
	const struct lease_header *leases = attachment->lease_mapping.address;

	if (reply->directory_bytes < sizeof(*directory) || reply->lease_bytes < sizeof(*leases) ||
	    directory->magic != PAGES_MAGIC || leases->magic != PAGES_MAGIC)
		return -EPROTO;
	/* A daemon that negotiates the version of pages has refused the connection before. */
	if (!versions_have(job->node->pages, directory->version) || leases->version != directory->version)
		return refuse_version(job, directory);
	if (reply->unit_count != job->unit_count || directory->unit_count != reply->unit_count ||
	    directory->section_count != count_sections(job) ||
	    reply->directory_bytes < directory_bytes(reply->unit_count, directory->section_count) ||
	    leases->unit_count != reply->unit_count || leases->buffer_count != reply->gradient_buffers ||
	    reply->lease_bytes < lease_bytes(reply->unit_count, reply->gradient_buffers))
		return -EPROTO;
	return 0;
}

static int prepare(struct attachment *attachment, const struct tierd_job *job,
		   const Tierd__Wire__JobReadyReply *reply, int arena_fd)
{
	struct statfs status;

	attachment->buffers = calloc(reply->gradient_buffers + 1, sizeof(*attachment->buffers));
	if (!attachment->buffers)
		return -ENOMEM;
	attachment->directory = attachment->directory_mapping.address;
	attachment->leases = attachment->lease_mapping.address;
	attachment->buffer_count = reply->gradient_buffers;
	attachment->buffer_states = lease_buffers(attachment->leases);
	attachment->host = (struct lease_table){
		.entries = directory_entries(attachment->directory),
		.counters = lease_counters(attachment->leases, attachment->buffer_count),
		.is_release_wanted = &attachment->leases->is_release_wanted,
		.memory = attachment->arena_mapping.address,
		.bytes = attachment->arena_mapping.bytes,
	};
	for (uint32_t i = 0; i < job->unit_count; i++)
		if (unit_layout_gradient_bytes(&job->units[i]->layout) >
		    attachment->gradient_buffers.last_bytes + attachment->gradient_buffers.room)
			return -EPROTO;
	if (fstatfs(arena_fd, &status) < 0)
		return -errno;
	/* mprotect() cannot protect a part of a reserved huge page. */
	attachment->arena_page_bytes = status.f_type == HUGETLBFS_MAGIC ? (uint64_t)status.f_bsize : 4096;
	return 0;
}

/* ---- Units ---- */

/* Reads where the unit's sections begin; returns the place of the next unit's in the directory. */
static const uint64_t *read_spans(const struct unit *unit, const uint64_t *sections,
				  uint64_t ret_spans[UNIT_SECTIONS])
{
	for (int section = 0; section < UNIT_SECTIONS; section++)
		ret_spans[section] = unit->layout.elements[section] > 0 ? *sections++ : 0;
	return sections;
}

/* Called when the unit's spans are known. */
static void place_unit(struct unit *unit, struct hot_unit *ret_hot)
{
	unit->end = 0;
	for (int section = 0; section < UNIT_SECTIONS; section++) {
		uint64_t bytes =
			unit->layout.elements[section] * section_element_bytes((enum unit_section)section);

		if (bytes > 0 && unit->spans[section] + bytes > unit->end)
			unit->end = unit->spans[section] + bytes;
	}
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor_layout *tensor = &unit->tensors[i];

		unit->offsets[i] =
			unit->spans[tensor->section] + tensor->first * section_element_bytes(tensor->section);
	}
	ret_hot->offsets = unit->offsets;
	ret_hot->awaited_mask = unit_is_trainable(unit) ? UINT64_MAX : 0;
	ret_hot->elements = unit_layout_total(&unit->layout);
}

static int place_units(struct tierd_job *job, struct directory_header *directory)
{
	const uint64_t *sections = directory_sections(directory);

	job->hot = aligned_alloc(64, (job->unit_count * sizeof(*job->hot) + 63) / 64 * 64 + 64);
	if (!job->hot)
		return -ENOMEM;
	memset(job->hot, 0, job->unit_count * sizeof(*job->hot));
	for (uint32_t i = 0; i < job->unit_count; i++) {
		sections = read_spans(job->units[i], sections, job->units[i]->spans);
		place_unit(job->units[i], &job->hot[i]);
	}
	return 0;
}

/* The places must be those of the first ready, because views that are held point there. */
static int check_places(const struct tierd_job *job, struct directory_header *directory)
{
	const uint64_t *sections = directory_sections(directory);
	uint64_t spans[UNIT_SECTIONS];

	for (uint32_t i = 0; i < job->unit_count; i++) {
		sections = read_spans(job->units[i], sections, spans);
		if (memcmp(job->units[i]->spans, spans, sizeof(spans)) != 0)
			return -EPROTO;
	}
	return 0;
}

/* ---- Life ---- */

/* The descriptor keeps its number: a thread that is about to ring must not write to another file. */
static int take_doorbell(struct tierd_job *job, int fd)
{
	if (job->doorbell_fd >= 0)
		return dup3(fd, job->doorbell_fd, O_CLOEXEC) < 0 ? -errno : 0;
	job->doorbell_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return job->doorbell_fd < 0 ? -errno : 0;
}

static int attach(struct attachment *attachment, struct tierd_job *job,
		  const Tierd__Wire__JobReadyReply *reply, const int *fds)
{
	int r = map_all(attachment, reply, fds);

	if (r == 0)
		r = check_pages(job, attachment, reply);
	if (r == 0)
		r = prepare(attachment, job, reply, fds[FD_ARENA]);
	if (r == 0 && debug_is_wanted())
		r = debug_new(job, attachment, &attachment->host.debug);
	if (r == 0)
		r = job->hot ? check_places(job, attachment->directory)
			     : place_units(job, attachment->directory);
	return r < 0 ? r : take_doorbell(job, fds[FD_DOORBELL]);
}

int attachment_new(struct tierd_job *job, const Tierd__Wire__JobReadyReply *reply, const int *fds)
{
	struct attachment *attachment = calloc(1, sizeof(*attachment));
	int r;

	if (!attachment)
		return -ENOMEM;
	attachment->live_epoch = ATTACHMENT_NO_EPOCH;
	r = attach(attachment, job, reply, fds);
	if (r < 0) {
		attachment_free(attachment, false);
		return r;
	}
	attachment->connection = job->node->connections;
	attachment->older = job->attachment;
	attachment->number = attachment->older ? attachment->older->number + 1 : 1;
	job->attachment = attachment;
	return 0;
}

struct attachment *attachment_free(struct attachment *attachment, bool is_child)
{
	while (attachment) {
		struct attachment *older = attachment->older;

		gpu_tier_free(attachment->gpu, is_child);
		/* A child may have mapped something else there. */
		if (!is_child) {
			mapping_free(&attachment->directory_mapping);
			mapping_free(&attachment->arena_mapping);
			mapping_free(&attachment->lease_mapping);
			mapping_free(&attachment->gradient_mapping);
			debug_free(attachment->host.debug);
		}
		free(attachment->buffers);
		free(attachment);
		attachment = older;
	}
	return NULL;
}

/* ---- Of earlier connections ---- */

uint64_t attachment_leases(const struct attachment *attachment, enum place place, uint32_t unit)
{
	uint64_t leases = 0;

	for (; attachment; attachment = attachment->older) {
		const struct lease_table *table = attachment_table(attachment, place);

		if (table)
			leases += atomic_load_explicit(&table->counters[unit], memory_order_seq_cst);
	}
	return leases;
}

uint64_t attachment_all_leases(const struct attachment *attachment, uint32_t unit_count)
{
	uint64_t leases = 0;

	for (uint32_t unit = 0; unit < unit_count; unit++)
		for (int place = 0; place < PLACES; place++)
			leases += attachment_leases(attachment, (enum place)place, unit);
	return leases;
}

static bool is_being_zeroed(const struct attachment *attachment)
{
	for (uint32_t i = 0; i < attachment->buffer_count; i++)
		if (attachment->buffers[i].is_being_zeroed)
			return true;
	return false;
}

void attachment_collect(struct tierd_job *job)
{
	struct attachment *newest = job->attachment;

	if (!newest || !newest->older || attachment_all_leases(newest, job->unit_count) > 0)
		return;
	for (struct attachment *older = newest->older; older; older = older->older) {
		struct gpu_tier *tier = older->gpu;

		if (tier)
			gpu_tier_retire(tier, false);
		mapping_free(&older->arena_mapping);
		if (!is_being_zeroed(older))
			mapping_free(&older->gradient_mapping);
	}
}
