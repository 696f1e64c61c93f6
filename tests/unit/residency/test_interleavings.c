/* The daemon's evictions, loads and updates against a client that gathers, in every order of their accesses
 * to the directory and to the lease: under a lease there are the bytes of the version that the client was
 * told, until it is given back. tests/model/lease.pml shows that of the protocol, this of the code. */
#include "daemon/model/job.h"
#include "daemon/residency/own.h"
#include "tests/unit/client_holds.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define UNIT 0
#define FOREIGN UINT64_MAX /* what a slot holds whose memory serves somebody else */

static struct actor actor;
static struct job *job;
static uint64_t awaited;
static bool has_taken, has_moved, is_wrong;
static unsigned taken, moved, both, neither;

/* ---- What they share ---- */

/* Each side has a mapping of its own. */
static bool is_word(const volatile void *address, struct directory_header *directory)
{
	const volatile char *entry = (const volatile char *)&directory_entries(directory)[UNIT],
			    *at = address;

	return at >= entry && at < entry + sizeof(struct directory_entry);
}

static _Atomic uint32_t *counter_in(void *page)
{
	return &lease_counters(page, actor.buffer_count)[UNIT];
}

static bool is_shared(const volatile void *address)
{
	return is_word(address, job->residency->directory) ||
	       is_word(address, (struct directory_header *)actor.directory.base) ||
	       address == counter_in(job->members.ranks[0]->leases) ||
	       address == counter_in(actor.leases.base);
}

static uint64_t *bytes_at(uint64_t offset)
{
	uint64_t cache = slots_cache_offset(residency_slots(job));

	return (uint64_t *)(offset < cache ? job->residency->arena.base + offset
					   : job->residency->cache.base + (offset - cache));
}

/* ---- The client ---- */

static void look(uint64_t offset, uint64_t version)
{
	is_wrong |= version < awaited || *bytes_at(offset) != version;
}

static void gather(void)
{
	uint64_t offset, version;

	has_taken = client_take(UNIT, awaited, &offset, &version);
	if (!has_taken)
		return;
	look(offset, version);
	interleave_turn();
	look(offset, version);
	client_give(UNIT);
}

/* ---- The daemon ---- */

static void write_bytes(uint64_t *bytes, uint64_t value)
{
	interleave_turn();
	*bytes = value;
}

static void load(uint64_t version)
{
	if (!residency_take_slot(job, UNIT, 0))
		return;
	residence_step(job, UNIT, RESIDENCE_FILL);
	write_bytes((uint64_t *)residency_address(job, UNIT), version);
	residency_publish(job, UNIT, version);
}

static void evict_and_load(void)
{
	uint64_t *bytes = (uint64_t *)residency_address(job, UNIT);

	has_moved = residency_evict(job, UNIT);
	if (!has_moved)
		return;
	write_bytes(bytes, FOREIGN);
	load(residency_version(job, UNIT));
}

static void update(void)
{
	if (!residency_is_claimed(job, UNIT))
		residency_claim(job, UNIT);
	has_moved = residency_begin_update(job, UNIT, false);
	if (!has_moved)
		return;
	write_bytes((uint64_t *)residency_address(job, UNIT), residency_version(job, UNIT) + 1);
	residency_end_update(job, UNIT);
	residency_publish(job, UNIT, residency_version(job, UNIT) + 1);
}

/* ---- Runs ---- */

static void begin_awaiting(uint64_t later)
{
	awaited = residency_version(job, UNIT) + later;
	has_taken = has_moved = is_wrong = false;
}

static void begin_at_once(void)
{
	begin_awaiting(0);
}

static void begin_after_a_step(void)
{
	begin_awaiting(1);
}

static void end(void)
{
	uint64_t version = residency_version(job, UNIT), offset, seen;

	assert_false(is_wrong);
	assert_int_equal(actor_leases(&actor, UNIT), 0);
	taken += has_taken;
	moved += has_moved;
	both += has_taken && has_moved;
	neither += !has_taken && !has_moved;
	/* Whatever came of it, the unit is there now, and can be gathered. */
	assert_true(client_take(UNIT, version, &offset, &seen));
	assert_int_equal(offset, residency_slots(job)->offsets[residence_of(job, UNIT)->slot]);
	assert_int_equal(seen, version);
	assert_int_equal(*bytes_at(offset), version);
	client_give(UNIT);
}

static void interleave_with(void (*daemon)(void), void (*prepare)(void))
{
	const struct interleaving interleaving = { is_shared, prepare, { daemon, gather }, end };
	uint64_t orders;

	job = actor_play(&scene, &actor);
	client_attach((struct directory_header *)actor.directory.base,
		      (struct lease_header *)actor.leases.base, actor.buffer_count);
	if (residency_has_slot(job, UNIT))
		assert_true(residency_evict(job, UNIT));
	load(residency_version(job, UNIT));
	taken = moved = both = neither = 0;
	orders = interleave(&interleaving);
	print_message("%llu orders: %u taken, %u moved, %u both, %u neither\n", (unsigned long long)orders,
		      taken, moved, both, neither);
}

static void a_unit_that_is_gathered_is_not_evicted(void **state)
{
	interleave_with(evict_and_load, begin_at_once);
	assert_true(taken > 0 && moved > 0 && both > 0 && neither > 0);
}

static void a_unit_that_is_gathered_is_not_updated(void **state)
{
	interleave_with(update, begin_at_once);
	assert_true(taken > 0 && moved > 0 && both > 0 && neither > 0);
}

static void after_a_step_only_the_new_version_is_gathered(void **state)
{
	interleave_with(update, begin_after_a_step);
	assert_true(taken > 0 && moved > 0);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_unit_that_is_gathered_is_not_evicted),
		TEST(a_unit_that_is_gathered_is_not_updated),
		TEST(after_a_step_only_the_new_version_is_gathered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
