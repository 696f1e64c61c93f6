#include "tests/unit/sim_disk.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit/test.h"

#define MAX_FRESH 4096
#define MAX_SUBMITTED 1024

/* A write that no flush has covered. */
struct fresh {
	uint64_t offset;
	size_t length;
	uint8_t *bytes;
};

/* As many times as large as it is made can it become. */
#define MAX_GROWTH 4

struct sim_disk {
	size_t bytes, capacity;	       /* what it has, and can grow to */
	uint8_t *safe;		       /* what a power failure leaves in any case */
	struct fresh fresh[MAX_FRESH]; /* in the order in which they ended */
	unsigned fresh_count;
	struct tier_io *submitted[MAX_SUBMITTED];
	unsigned submitted_count;
	uint64_t random, count;
	unsigned unsafe_reads;
	unsigned failing_flush;
	unsigned weight;
	bool is_dead; /* until the next session */
	struct tier *session;
	struct sim_observer *observer;
};

struct sim_tier {
	struct tier tier;
	struct sim_disk *disk;
};

static unsigned choose(struct sim_disk *disk, unsigned bound)
{
	disk->random = disk->random * 6364136223846793005 + 1442695040888963407;
	return (unsigned)((disk->random >> 33) % bound);
}

struct sim_disk *sim_disk_new(size_t bytes, uint64_t seed)
{
	struct sim_disk *disk = calloc(1, sizeof(*disk));

	assert_non_null(disk);
	disk->bytes = bytes;
	disk->capacity = MAX_GROWTH * bytes;
	disk->random = seed * 2 + 1;
	disk->safe = mmap(NULL, disk->capacity, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(disk->safe, MAP_FAILED);
	for (unsigned i = 0; i < 10; i++)
		choose(disk, 2);
	return disk;
}

static void forget(struct sim_disk *disk, unsigned index)
{
	free(disk->fresh[index].bytes);
	disk->fresh[index].bytes = NULL;
}

void sim_disk_free(struct sim_disk *disk)
{
	for (unsigned i = 0; i < disk->fresh_count; i++)
		forget(disk, i);
	munmap(disk->safe, disk->capacity);
	free(disk);
}

/* ---- What lies there ---- */

void sim_disk_read(struct sim_disk *disk, uint64_t offset, void *bytes, size_t length)
{
	memcpy(bytes, disk->safe + offset, length);
	for (unsigned i = 0; i < disk->fresh_count; i++) {
		const struct fresh *write = &disk->fresh[i];
		uint64_t first = write->offset > offset ? write->offset : offset;
		uint64_t end = write->offset + write->length < offset + length ? write->offset + write->length
									       : offset + length;

		if (first < end)
			memcpy((uint8_t *)bytes + (first - offset), write->bytes + (first - write->offset),
			       end - first);
	}
}

static void keep_all(struct sim_disk *disk)
{
	for (unsigned i = 0; i < disk->fresh_count; i++) {
		memcpy(disk->safe + disk->fresh[i].offset, disk->fresh[i].bytes, disk->fresh[i].length);
		forget(disk, i);
	}
	disk->fresh_count = 0;
}

/* A third are kept, a third lost, a third torn: any of their sectors may be there. */
static void keep_some(struct sim_disk *disk, bool may_tear)
{
	for (unsigned i = 0; i < disk->fresh_count; i++) {
		const struct fresh *write = &disk->fresh[i];
		unsigned fate = choose(disk, may_tear ? 3 : 2);

		for (size_t at = 0; at < write->length; at += SIM_SECTOR)
			if (fate == 0 || (fate == 2 && choose(disk, 2)))
				memcpy(disk->safe + write->offset + at, write->bytes + at, SIM_SECTOR);
		forget(disk, i);
	}
	disk->fresh_count = 0;
}

void sim_disk_flip(struct sim_disk *disk, uint64_t offset, uint8_t bits)
{
	keep_all(disk);
	disk->safe[offset] ^= bits;
}

static void add_fresh(struct sim_disk *disk, const struct tier_io *io)
{
	struct fresh *write = &disk->fresh[disk->fresh_count++];

	assert_true(disk->fresh_count <= MAX_FRESH);
	*write = (struct fresh){ io->offset, io->length, malloc(io->length) };
	assert_non_null(write->bytes);
	memcpy(write->bytes, io->buffer, io->length);
}

void sim_disk_observe(struct sim_disk *disk, struct sim_observer *observer)
{
	disk->observer = observer;
}

/* ---- A session ---- */

static int sim_submit(struct tier *tier, struct tier_io *io)
{
	struct sim_disk *disk = container_of(tier, struct sim_tier, tier)->disk;

	if (disk->is_dead)
		return -EIO;
	assert_true(disk->submitted_count < MAX_SUBMITTED);
	if (disk->observer && disk->observer->submitted)
		disk->observer->submitted(disk->observer, disk, io);
	disk->submitted[disk->submitted_count++] = io;
	return 0;
}

static void sim_weigh(struct tier *tier, const struct tier_share *share)
{
	container_of(tier, struct sim_tier, tier)->disk->weight = share->weight;
}

static int sim_grow(struct tier *tier, uint64_t capacity)
{
	struct sim_disk *disk = container_of(tier, struct sim_tier, tier)->disk;

	if (capacity > disk->capacity)
		return -ENOSPC;
	disk->bytes = capacity;
	return 0;
}

static void sim_free(struct tier *tier)
{
	struct sim_tier *sim = container_of(tier, struct sim_tier, tier);

	assert_int_equal(sim->disk->submitted_count, 0);
	sim->disk->session = NULL;
	free(sim);
}

static const struct tier_ops sim_ops = {
	.block_size = SIM_SECTOR,
	.submit = sim_submit,
	.weigh = sim_weigh,
	.grow = sim_grow,
	.free = sim_free,
};

struct tier *sim_disk_tier(struct sim_disk *disk)
{
	struct sim_tier *sim = calloc(1, sizeof(*sim));

	assert_non_null(sim);
	assert_null(disk->session);
	disk->is_dead = false;
	*sim = (struct sim_tier){ { .ops = &sim_ops, .capacity = disk->bytes, .label = "a simulated disk" },
				  disk };
	disk->session = &sim->tier;
	return disk->session;
}

/* It covers what has ended, not what has been submitted only. */
static int flush(struct sim_disk *disk)
{
	if (disk->failing_flush > 0 && --disk->failing_flush == 0) {
		keep_some(disk, false);
		return -EIO;
	}
	keep_all(disk);
	return 0;
}

static bool overlap(uint64_t offset, uint64_t length, uint64_t other, uint64_t other_length)
{
	return other < offset + length && offset < other + other_length;
}

static bool is_fresh(const struct sim_disk *disk, uint64_t offset, uint64_t length)
{
	for (unsigned i = 0; i < disk->fresh_count; i++)
		if (overlap(offset, length, disk->fresh[i].offset, disk->fresh[i].length))
			return true;
	return false;
}

bool sim_disk_is_safe(const struct sim_disk *disk, uint64_t offset, uint64_t length)
{
	for (unsigned i = 0; i < disk->submitted_count; i++)
		if (disk->submitted[i]->direction == TIER_WRITE &&
		    overlap(offset, length, disk->submitted[i]->offset, disk->submitted[i]->length))
			return false;
	return !is_fresh(disk, offset, length);
}

void sim_disk_read_safe(const struct sim_disk *disk, uint64_t offset, void *bytes, size_t length)
{
	memcpy(bytes, disk->safe + offset, length);
}

static int perform(struct sim_disk *disk, const struct tier_io *io)
{
	disk->unsafe_reads += io->direction == TIER_READ && is_fresh(disk, io->offset, io->length);
	disk->count += io->direction != TIER_READ;
	if (io->direction == TIER_FLUSH)
		return flush(disk);
	if (io->direction == TIER_WRITE)
		add_fresh(disk, io);
	else
		sim_disk_read(disk, io->offset, io->buffer, io->length);
	return 0;
}

bool sim_disk_turn(struct sim_disk *disk)
{
	unsigned index;
	struct tier_io *io;
	int status;

	if (disk->submitted_count == 0)
		return false;
	index = choose(disk, disk->submitted_count);
	io = disk->submitted[index];
	disk->submitted[index] = disk->submitted[--disk->submitted_count];
	status = perform(disk, io);
	if (disk->observer && disk->observer->ended)
		disk->observer->ended(disk->observer, disk, io, status);
	io->done(io, status);
	return true;
}

void sim_disk_fail_flush(struct sim_disk *disk, unsigned countdown)
{
	disk->failing_flush = countdown;
}

void sim_disk_kill(struct sim_disk *disk)
{
	for (unsigned i = 0; i < disk->submitted_count; i++)
		if (disk->submitted[i]->direction == TIER_WRITE && choose(disk, 2))
			add_fresh(disk, disk->submitted[i]);
	disk->failing_flush = 0;
	disk->is_dead = true;
	while (disk->submitted_count > 0) {
		struct tier_io *io = disk->submitted[--disk->submitted_count];

		io->done(io, -EIO);
	}
}

void sim_disk_fail_power(struct sim_disk *disk)
{
	sim_disk_kill(disk);
	keep_some(disk, true);
}

uint64_t sim_disk_count(const struct sim_disk *disk)
{
	return disk->count;
}

unsigned sim_disk_unsafe_reads(const struct sim_disk *disk)
{
	return disk->unsafe_reads;
}

unsigned sim_disk_fresh(const struct sim_disk *disk)
{
	return disk->fresh_count;
}

uint64_t sim_disk_moved(const struct sim_disk *disk, enum tier_direction direction)
{
	return disk->session->submitted[direction].bytes;
}

unsigned sim_disk_weight(const struct sim_disk *disk)
{
	return disk->weight;
}
