#include "client/library/pages/debug.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "client/library/pages/job.h"

struct debug {
	pthread_mutex_t lock;
	const struct tierd_job *job;
	const struct attachment *attachment;
	uint64_t page_bytes;
	uint32_t *page_leases;
	uint32_t *unit_leases;
	uint64_t *unit_offsets; /* valid while the unit is leased */
};

bool debug_is_wanted(void)
{
	const char *value = getenv("TIERD_DEBUG");

	return value && strstr(value, "leases");
}

struct debug *debug_free(struct debug *debug)
{
	if (!debug)
		return NULL;
	pthread_mutex_destroy(&debug->lock);
	free(debug->page_leases);
	free(debug->unit_leases);
	free(debug->unit_offsets);
	free(debug);
	return NULL;
}
DEFINE_FREEP(struct debug *, debug_free)

int debug_new(const struct tierd_job *job, const struct attachment *attachment, struct debug **ret_debug)
{
	_cleanup_(debug_freep) struct debug *debug = calloc(1, sizeof(*debug));

	if (!debug)
		return -ENOMEM;
	pthread_mutex_init(&debug->lock, NULL);
	debug->job = job;
	debug->attachment = attachment;
	debug->page_bytes = attachment->arena_page_bytes;
	debug->page_leases =
		calloc(attachment->arena_mapping.bytes / debug->page_bytes + 1, sizeof(uint32_t));
	debug->unit_leases = calloc(job->unit_count, sizeof(uint32_t));
	debug->unit_offsets = calloc(job->unit_count, sizeof(uint64_t));
	if (!debug->page_leases || !debug->unit_leases || !debug->unit_offsets)
		return -ENOMEM;
	if (mprotect(attachment->host.memory, attachment->arena_mapping.bytes, PROT_NONE) < 0)
		return -errno;
	*ret_debug = TAKE_PTR(debug);
	return 0;
}

static int page_take(struct debug *debug, uint64_t page)
{
	if (debug->page_leases[page] == 0 &&
	    mprotect(debug->attachment->host.memory + page * debug->page_bytes, debug->page_bytes,
		     PROT_READ) < 0)
		return -errno;
	debug->page_leases[page]++;
	return 0;
}

static void page_give(struct debug *debug, uint64_t page)
{
	if (--debug->page_leases[page] == 0)
		(void)mprotect(debug->attachment->host.memory + page * debug->page_bytes, debug->page_bytes,
			       PROT_NONE);
}

struct page_range {
	uint64_t first, end;
};

static struct page_range section_pages(const struct debug *debug, const struct unit *unit, int section,
				       uint64_t offset)
{
	uint64_t first = offset + unit->spans[section];
	uint64_t bytes = unit->layout.elements[section] * section_element_bytes((enum unit_section)section);

	if (bytes == 0)
		return (struct page_range){ 0, 0 };
	return (struct page_range){ first / debug->page_bytes, (first + bytes - 1) / debug->page_bytes + 1 };
}

static void sections_give(struct debug *debug, const struct unit *unit, uint64_t offset, int sections)
{
	for (int section = 0; section < sections; section++) {
		struct page_range range = section_pages(debug, unit, section, offset);

		for (uint64_t page = range.first; page < range.end; page++)
			page_give(debug, page);
	}
}

static int section_take(struct debug *debug, const struct unit *unit, uint64_t offset, int section)
{
	struct page_range range = section_pages(debug, unit, section, offset);

	for (uint64_t page = range.first; page < range.end; page++) {
		int r = page_take(debug, page);

		if (r < 0) {
			while (page-- > range.first)
				page_give(debug, page);
			return r;
		}
	}
	return 0;
}

int debug_take(struct debug *debug, uint32_t number, uint64_t offset)
{
	const struct unit *unit = debug->job->units[number];
	int r = 0;

	pthread_mutex_lock(&debug->lock);
	for (int section = 0; section < UNIT_SECTIONS && r == 0; section++) {
		r = section_take(debug, unit, offset, section);
		if (r < 0)
			sections_give(debug, unit, offset, section);
	}
	if (r == 0) {
		debug->unit_leases[number]++;
		debug->unit_offsets[number] = offset;
	}
	pthread_mutex_unlock(&debug->lock);
	return r;
}

bool debug_give(struct debug *debug, uint32_t number)
{
	const struct attachment *attachment = debug->attachment;
	bool is_held;

	pthread_mutex_lock(&debug->lock);
	is_held = debug->unit_leases[number] > 0;
	if (is_held) {
		debug->unit_leases[number]--;
		sections_give(debug, debug->job->units[number], debug->unit_offsets[number], UNIT_SECTIONS);
		lease_give(&attachment->host.counters[number]);
	}
	pthread_mutex_unlock(&debug->lock);
	return is_held;
}

void debug_lock(struct debug *debug)
{
	pthread_mutex_lock(&debug->lock);
}

void debug_unlock(struct debug *debug)
{
	pthread_mutex_unlock(&debug->lock);
}

bool debug_holds(const struct debug *debug, uint32_t unit)
{
	return debug->unit_leases[unit] > 0;
}

int debug_close_others(struct debug *debug)
{
	uint64_t pages = debug->attachment->arena_mapping.bytes / debug->page_bytes;

	for (uint64_t page = 0; page < pages; page++)
		if (debug->page_leases[page] == 0 &&
		    mprotect(debug->attachment->host.memory + page * debug->page_bytes, debug->page_bytes,
			     PROT_NONE) < 0)
			return -errno;
	return 0;
}
