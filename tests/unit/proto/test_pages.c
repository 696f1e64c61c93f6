/* The lease protocol on real shared pages: clients that gather, against an evictor and updater. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/pages.h"
#include "tests/unit/test.h"

enum { UNITS = 4, CLIENTS = 3, THREADS = 2, SLOTS = 8, SLOT_BYTES = 256, WORDS = SLOT_BYTES / 8 };
enum { TAKEN = 1000, MOVES = 20000 };

/* One address space stands for several: the evictor only touches what the daemon would. */
struct scene {
	struct directory_header *directory;
	struct lease_header *leases[CLIENTS];
	uint64_t (*arena)[WORDS]; /* plain memory: a race on it is a torn unit */
	_Atomic bool is_over;
	_Atomic uint64_t step; /* that every rank has closed */
	_Atomic uint64_t torn, old, taken;
};

static void *shared_pages(size_t bytes)
{
	int fd = memfd_create("pages", MFD_CLOEXEC);
	void *pages;

	assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(pages != MAP_FAILED);
	close(fd);
	return pages;
}

static void scene_open(struct scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	scene->directory = shared_pages(directory_bytes(UNITS, 0));
	scene->directory->unit_count = UNITS;
	for (int i = 0; i < CLIENTS; i++)
		scene->leases[i] = shared_pages(lease_bytes(UNITS, 2));
	scene->arena = shared_pages(SLOTS * SLOT_BYTES);
}

static void scene_close(struct scene *scene)
{
	munmap(scene->directory, directory_bytes(UNITS, 0));
	for (int i = 0; i < CLIENTS; i++)
		munmap(scene->leases[i], lease_bytes(UNITS, 2));
	munmap(scene->arena, SLOTS * SLOT_BYTES);
}

/* ---- A client ---- */

struct client {
	struct scene *scene;
	int index;
};

static void check(struct scene *scene, uint32_t unit, uint64_t word, uint64_t awaited)
{
	const uint64_t *values = scene->arena[directory_word_offset(word) / SLOT_BYTES];

	/* Unit and version in every word of the slot. */
	for (int i = 0; i < WORDS; i++)
		if (values[i] != values[0] || values[i] % UNITS != unit)
			scene->torn++;
	if (values[0] / UNITS < awaited)
		scene->old++;
}

static void *gather_often(void *argument)
{
	const struct client *client = argument;
	struct scene *scene = client->scene;
	_Atomic uint32_t *counters = lease_counters(scene->leases[client->index], 2);
	uint64_t word;

	for (unsigned i = 0; !scene->is_over; i++) {
		uint32_t unit = (i * 7 + (unsigned)client->index) % UNITS;
		uint64_t awaited = atomic_load(&scene->step);

		if (!lease_take(&directory_entries(scene->directory)[unit], &counters[unit], awaited,
				&word)) {
			sched_yield();
			continue;
		}
		scene->taken++;
		check(scene, unit, word, awaited);
		trace_append(scene->leases[client->index], &unit, 1);
		if (!lease_give(&counters[unit]))
			scene->torn++;
	}
	return NULL;
}

/* ---- The daemon ---- */

static bool anyone_holds(struct scene *scene, uint32_t unit)
{
	for (int i = 0; i < CLIENTS; i++)
		if (lease_is_held(&lease_counters(scene->leases[i], 2)[unit]))
			return true;
	return false;
}

static void scribble(struct scene *scene, uint64_t slot, uint64_t value)
{
	for (int i = 0; i < WORDS; i++)
		scene->arena[slot][i] = value;
}

/* Takes the unit away, overwrites where it lay, and publishes it elsewhere. False: somebody holds it. */
static bool move(struct scene *scene, uint32_t unit, enum directory_state state, uint64_t version)
{
	struct directory_entry *entry = &directory_entries(scene->directory)[unit];
	uint64_t word = directory_close(entry, state);
	uint64_t slot = directory_word_offset(word) / SLOT_BYTES;

	if (anyone_holds(scene, unit)) {
		directory_restore(entry, word);
		return false;
	}
	scribble(scene, slot, UINT64_MAX);
	directory_set(entry, DIRECTORY_LOADING);
	slot = (slot + UNITS) % SLOTS;
	scribble(scene, slot, version * UNITS + unit);
	directory_publish(entry, slot * SLOT_BYTES, version);
	return true;
}

static void run_daemon(struct scene *scene)
{
	uint64_t versions[UNITS] = { 0 };

	unsigned moves = 0;

	/* On a busy machine the clients may come late. */
	for (uint64_t round = 0; moves < MOVES || scene->taken < TAKEN; round++) {
		uint32_t unit = (uint32_t)(round % UNITS);

		if (round % 3 != 0) {
			moves += move(scene, unit, DIRECTORY_DRAINING, versions[unit]);
		} else if (move(scene, unit, DIRECTORY_UPDATING, versions[unit] + 1)) {
			versions[unit]++;
			moves++;
		}
		uint64_t oldest = versions[0];

		for (int i = 1; i < UNITS; i++)
			oldest = versions[i] < oldest ? versions[i] : oldest;
		/* As after a step that every rank closed: what is older must not be taken any more. */
		atomic_store(&scene->step, oldest);
		/* Now and then everybody gets a turn, also on one processor. */
		if (round % 256 == 0)
			sched_yield();
	}
	scene->is_over = true;
}

static void nobody_sees_a_unit_change_under_a_lease(void **state)
{
	struct scene scene;
	struct client clients[CLIENTS * THREADS];
	pthread_t threads[CLIENTS * THREADS];

	scene_open(&scene);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		scribble(&scene, unit, unit);
		directory_publish(&directory_entries(scene.directory)[unit], unit * SLOT_BYTES, 0);
	}
	for (int i = 0; i < CLIENTS * THREADS; i++) {
		clients[i] = (struct client){ &scene, i % CLIENTS };
		assert_int_equal(pthread_create(&threads[i], NULL, gather_often, &clients[i]), 0);
	}
	run_daemon(&scene);
	for (int i = 0; i < CLIENTS * THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(scene.torn, 0);
	assert_int_equal(scene.old, 0);
	for (int i = 0; i < CLIENTS; i++)
		for (uint32_t unit = 0; unit < UNITS; unit++)
			assert_int_equal(lease_counters(scene.leases[i], 2)[unit], 0);
	scene_close(&scene);
}

/* ---- Words ---- */

static void a_word_keeps_its_parts(void **state)
{
	uint64_t offset = (UINT64_C(1) << 48) - 256;
	uint64_t word = directory_word(DIRECTORY_UPDATING, 0xfffff, offset);

	assert_int_equal(directory_word_state(word), DIRECTORY_UPDATING);
	assert_int_equal(directory_word_reloads(word), 0xfffff);
	assert_int_equal(directory_word_offset(word), offset);
	assert_int_equal(directory_word_reloads(directory_word(DIRECTORY_RESIDENT, 0x100000, 0)), 0);
}

static void a_lease_is_taken_only_on_what_is_there_and_new_enough(void **state)
{
	struct directory_entry entry = { 0 };
	_Atomic uint32_t lease = 0;
	uint64_t word = 7;

	assert_false(lease_take(&entry, &lease, 0, &word));
	directory_publish(&entry, 512, 3);
	assert_false(lease_take(&entry, &lease, 4, &word));
	assert_int_equal(lease, 0);
	assert_int_equal(word, 7);
	assert_true(lease_take(&entry, &lease, 3, &word));
	assert_int_equal(directory_word_offset(word), 512);
	uint64_t closed = directory_close(&entry, DIRECTORY_DRAINING);

	assert_true(lease_is_held(&lease));
	assert_false(lease_take(&entry, &lease, 3, &word));
	directory_restore(&entry, closed);
	assert_true(lease_give(&lease));
	assert_false(lease_give(&lease));
}

static void the_trace_wraps_and_rings_once(void **state)
{
	struct lease_header *leases = shared_pages(lease_bytes(1, 1));

	leases->doorbell_at = TRACE_ENTRIES + 2;
	for (uint32_t i = 0; i < TRACE_ENTRIES + 5; i++)
		assert_int_equal(trace_append(leases, &i, 1), i + 1 == TRACE_ENTRIES + 2);
	assert_true(lease_trace(leases)[3] == ((uint64_t)(TRACE_ENTRIES + 3) << 32 | (TRACE_ENTRIES + 3)));
	munmap(leases, lease_bytes(1, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_sees_a_unit_change_under_a_lease),
		cmocka_unit_test(a_word_keeps_its_parts),
		cmocka_unit_test(a_lease_is_taken_only_on_what_is_there_and_new_enough),
		cmocka_unit_test(the_trace_wraps_and_rings_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
