#include "client/library/pages/left.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "client/library/pages/hold.h"

/* Guards the leases of jobs that were left, which have no node. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue jobs = { &jobs, &jobs };

/* ---- The values ---- */

static bool is_held(const struct attachment *attachment, uint32_t unit)
{
	return attachment->host.debug
		       ? debug_holds(attachment->host.debug, unit)
		       : atomic_load_explicit(&attachment->host.counters[unit], memory_order_seq_cst) > 0;
}

static bool has_any(const struct tierd_job *job, const struct attachment *attachment)
{
	for (uint32_t unit = 0; unit < job->unit_count; unit++)
		if (is_held(attachment, unit))
			return true;
	return false;
}

static void copy_unit(const struct attachment *attachment, const struct unit *unit, uint64_t offset,
		      char *copy)
{
	/* If the unit was released meanwhile, its word may be anything; then no thread reads the copy. */
	if (offset > attachment->arena_mapping.bytes || unit->end > attachment->arena_mapping.bytes - offset)
		return;
	for (int section = 0; section < UNIT_SECTIONS; section++) {
		uint64_t at = offset + unit->spans[section];

		memcpy(copy + at, attachment->host.memory + at,
		       unit->layout.elements[section] * section_element_bytes((enum unit_section)section));
	}
}

/* A thread that reads sees the old pages or the new ones: the kernel replaces them under the lock of the
 * address space. */
static int replace_arena(const struct tierd_job *job, const struct attachment *attachment)
{
	size_t bytes = attachment->arena_mapping.bytes;
	char *copy =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (copy == MAP_FAILED)
		return -errno;
	for (uint32_t unit = 0; unit < job->unit_count; unit++)
		if (is_held(attachment, unit))
			copy_unit(attachment, job->units[unit],
				  directory_word_offset(attachment->host.entries[unit].word), copy);
	if (mprotect(copy, bytes, PROT_READ) < 0 || mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
							   attachment->host.memory) == MAP_FAILED) {
		int r = -errno;

		munmap(copy, bytes);
		return r;
	}
	return attachment->host.debug ? debug_close_others(attachment->host.debug) : 0;
}

static void keep(const struct tierd_job *job, const struct attachment *attachment)
{
	if (attachment->host.debug)
		debug_lock(attachment->host.debug);
	if (has_any(job, attachment) && replace_arena(job, attachment) < 0)
		(void)mprotect(attachment->host.memory, attachment->arena_mapping.bytes, PROT_NONE);
	if (attachment->host.debug)
		debug_unlock(attachment->host.debug);
}

/* What is queued on the GPU goes on without this rank, and others must not overwrite what it reads. A GPU
 * that is lost reads nothing. */
static void mark_queued(const struct tierd_job *job)
{
	struct gpu_tier *tier = job->attachment ? job->attachment->gpu : NULL;

	if (tier)
		(void)gpu_tier_fence(tier);
}

void left_keep(struct tierd_job *job)
{
	job_poison(job);
	if (job->is_kept)
		return;
	job->is_kept = true;
	mark_queued(job);
	for (const struct attachment *attachment = job->attachment; attachment;
	     attachment = attachment->older)
		if (attachment->arena_mapping.address)
			keep(job, attachment);
}

/* ---- The leases ---- */

/* Replaces the lease page by a private copy, and zeros the daemon's: it sees no lease any more. Without
 * memory for the copy it sees them until this process ends. */
static void keep_counters(const struct tierd_job *job, const struct mapping *page, _Atomic uint32_t *counters)
{
	size_t bytes = page->bytes;
	char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t at = (size_t)((char *)counters - (char *)page->address);

	if (copy == MAP_FAILED)
		return;
	for (uint32_t unit = 0; unit < job->unit_count; unit++)
		((uint32_t *)(copy + at))[unit] = atomic_exchange(&counters[unit], 0);
	if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, page->address) != MAP_FAILED)
		return;
	for (uint32_t unit = 0; unit < job->unit_count; unit++)
		atomic_store(&counters[unit], ((uint32_t *)(copy + at))[unit]);
	munmap(copy, bytes);
}

static void keep_all_counters(const struct tierd_job *job, const struct attachment *attachment)
{
	const struct gpu_tier *tier = attachment->gpu;

	keep_counters(job, &attachment->lease_mapping, attachment->host.counters);
	if (tier)
		keep_counters(job, &tier->lease_mapping, tier->table.counters);
}

bool left_begin(struct tierd_job *job)
{
	bool is_left;

	pthread_mutex_lock(&lock);
	job->has_left = true;
	atomic_store_explicit(&job->ready_units, 0, memory_order_seq_cst);
	/* A release that began before that ends after a few instructions; one that begins later takes the
	 * lock. */
	while (atomic_load_explicit(&job->releasing, memory_order_seq_cst) > 0)
		sched_yield();
	job->node = NULL;
	job->left_leases = attachment_all_leases(job->attachment, job->unit_count);
	is_left = job->left_leases > 0;
	if (is_left)
		queue_push(&jobs, &job->link);
	for (struct attachment *attachment = job->attachment; attachment; attachment = attachment->older) {
		struct gpu_tier *tier = attachment->gpu;

		mapping_free(&attachment->gradient_mapping);
		if (tier)
			tier->gradients = gpu_mapping_free(tier->gradients, false);
		if (is_left)
			keep_all_counters(job, attachment);
	}
	mapping_free(&job->window_mapping);
	if (is_left)
		hold_ring(job);
	pthread_mutex_unlock(&lock);
	return is_left;
}

static void end(struct tierd_job *job)
{
	bool is_over = job->left_leases == 0;

	if (is_over)
		queue_remove(&job->link);
	pthread_mutex_unlock(&lock);
	if (is_over)
		job_free(job);
}

static bool give(struct tierd_job *job, enum place place, uint32_t unit)
{
	bool is_given = unit < job->unit_count && hold_give_to_oldest(job->attachment, place, unit);

	job->left_leases -= is_given;
	return is_given;
}

int left_release(struct tierd_job *job, const uint32_t *units, size_t count)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count; i++)
		if (!give(job, PLACE_HOST, units[i]) && r == 0)
			r = message_fail(-EINVAL, "unit \"%s\" is released without having been gathered",
					 job_unit_name(job, units[i]));
	end(job);
	return r;
}

int left_release_on(struct tierd_job *job, uint32_t unit, struct driver_stream *stream)
{
	int r;

	pthread_mutex_lock(&lock);
	/* Its memory is unmapped behind that. */
	r = gpu_note(job->gpu, stream);
	if (r == 0 && !give(job, PLACE_GPU, unit))
		r = message_fail(-EINVAL, "unit \"%s\" is released without having been gathered on the GPU",
				 job_unit_name(job, unit));
	end(job);
	return r;
}

int left_release_all(struct tierd_job *job)
{
	pthread_mutex_lock(&lock);
	for (uint32_t unit = 0; unit < job->unit_count; unit++)
		while (give(job, PLACE_HOST, unit))
			;
	end(job);
	return 0;
}

int left_fail(const struct tierd_job *job)
{
	return message_fail(-EBADF, "job \"%s\" was left; only the leases that are held can be given back",
			    job->name);
}

int left_lock_node(struct tierd_job *job)
{
	return job->has_left ? left_fail(job) : connection_enter(job->node);
}
