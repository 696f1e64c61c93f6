/* A durable store with a stream of wider blocks between two others, of extents that are written whole: what
 * of it is told in blocks. Simulated disks have a page of each extent. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "offload/store/extent_store.h"
#include "offload/device/host.h"
#include "tests/unit/store_support.h"
#include "tests/unit/test.h"

#define WIDE_EXTENT_BYTES (STORE_EXTENT_BLOCKS * WIDE_BLOCK_BYTES)
#define DEVICES 2

/* The sections, one behind the other in memory, each up to a whole page. */
static const struct {
	uint32_t stream;
	uint64_t length;
} sections[] = { { 0, 2 * STORE_EXTENT_BYTES }, { 1, WIDE_EXTENT_BYTES + 300000 }, { 1, 5 }, { 2, 5000 } };
#define WIDE 1U /* of these */

struct scene {
	struct store_fixture fixture;
	struct store_request request;
	bool has_ended;
	int status;
	uint64_t offsets[ARRAY_LENGTH(sections)];
	unsigned char *bytes[ARRAY_LENGTH(sections)], *read;
};

static uint64_t padded(unsigned section)
{
	return size_align(sections[section].length, STORE_PAGE_BYTES);
}

static struct store_layout *make_layout(struct scene *scene)
{
	static const char *const names[] = { "before", "wide", "after" };
	struct store_layout *layout;

	assert_int_equal(store_layout_new(&layout), 0);
	store_layout_set_durable(layout);
	store_layout_set_snapshots(layout, 2);
	for (unsigned i = 0; i < ARRAY_LENGTH(names); i++)
		assert_int_equal(store_layout_add_stream(layout, names[i]), (int)i);
	assert_int_equal(store_layout_set_blocks(layout, 1, WIDE_BLOCK_BYTES), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(sections); i++)
		assert_int_equal(store_layout_add_section(layout, sections[i].stream, sections[i].length,
							  &scene->offsets[i]),
				 0);
	return layout;
}

/* ---- Requests and transfers ---- */

static void on_ended(struct store_request *request, int status)
{
	struct scene *scene = container_of(request, struct scene, request);

	scene->has_ended = true;
	scene->status = status;
}

static int wait_for(struct scene *scene, int r)
{
	if (r < 0)
		return r;
	while (!scene->has_ended)
		io_loop_turn(&scene->fixture.loop);
	scene->has_ended = false;
	return scene->status;
}

static void write_bytes(struct scene *scene, unsigned section, uint64_t at, uint64_t length)
{
	assert_int_equal(store_fixture_transfer(&scene->fixture, TIER_WRITE, sections[section].stream,
						scene->offsets[section] + at, length,
						scene->bytes[section] + at),
			 0);
}

static void expect_bytes(struct scene *scene)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(sections); i++) {
		assert_int_equal(store_fixture_transfer(&scene->fixture, TIER_READ, sections[i].stream,
							scene->offsets[i], padded(i), scene->read),
				 0);
		assert_memory_equal(scene->read, scene->bytes[i], sections[i].length);
	}
}

static void commit(struct scene *scene, uint64_t step)
{
	assert_int_equal(wait_for(scene, store_commit(scene->fixture.store, step, &scene->request)), 0);
}

/* ---- Life ---- */

static void make(struct scene *scene)
{
	struct store_layout *layout = make_layout(scene);

	store_fixture_open_layout(&scene->fixture, layout, DEVICES, 0, NULL);
	scene->request.done = on_ended;
	assert_int_equal(wait_for(scene, store_create(scene->fixture.store, &scene->request)), 0);
	scene->read = pages_new(2 * WIDE_EXTENT_BYTES);
	for (unsigned i = 0; i < ARRAY_LENGTH(sections); i++) {
		scene->bytes[i] = pages_new(padded(i));
		pages_fill(scene->bytes[i], padded(i), i);
		write_bytes(scene, i, 0, padded(i));
	}
	commit(scene, 1);
}

/* As of a job whose record is read first: of what follows that nothing is known but how many extents it has.
 */
static void adopt_record(struct scene *scene)
{
	struct store *store = scene->fixture.store;
	struct store_layout *layout;
	uint64_t offset;

	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_stream(layout, "before"), 0);
	assert_int_equal(store_layout_add_section(layout, 0, sections[0].length, &offset), 0);
	assert_int_equal(
		store_layout_add_section(layout, 0, (store_extents(store) - 2) * STORE_EXTENT_BYTES, &offset),
		0);
	assert_int_equal(store_adopt(store, layout), 0);
	assert_int_equal(store_fixture_transfer(&scene->fixture, TIER_READ, 0, 0, padded(0), scene->read), 0);
	assert_memory_equal(scene->read, scene->bytes[0], sections[0].length);
}

static void open_again(struct scene *scene)
{
	struct store_fixture *fixture = &scene->fixture;
	struct store_config config = { .workers = fixture->loop.workers };

	fixture->store = store_free(fixture->store);
	for (unsigned i = 0; i < DEVICES; i++) {
		assert_int_equal(host_tier_new(fixture->memory[i], fixture->memory_bytes, &fixture->tiers[i]),
				 0);
		fixture->loop.hosts[i] = fixture->tiers[i];
	}
	assert_int_equal(store_new_found(&config, fixture->tiers, DEVICES, &fixture->store), 0);
	assert_int_equal(wait_for(scene, store_open(fixture->store, &scene->request)), 0);
	adopt_record(scene);
	assert_int_equal(store_adopt(fixture->store, make_layout(scene)), 0);
}

static void end(struct scene *scene)
{
	store_fixture_close(&scene->fixture);
	for (unsigned i = 0; i < ARRAY_LENGTH(sections); i++)
		free(scene->bytes[i]);
	free(scene->read);
}

/* ---- Tests ---- */

static void what_is_committed_is_found_again(void **state)
{
	struct scene scene = { .has_ended = false };

	make(&scene);
	open_again(&scene);
	expect_bytes(&scene);
	assert_int_equal(store_block_bytes(scene.fixture.store, 1), WIDE_BLOCK_BYTES);
	assert_int_equal(store_extent_bytes(scene.fixture.store, 1), WIDE_EXTENT_BYTES);
	assert_int_equal(store_extent_bytes(scene.fixture.store, 2), STORE_EXTENT_BYTES);
	/* Half of an extent is not visible yet, and ends with the session. */
	memset(scene.bytes[WIDE], 7, 2 * WIDE_BLOCK_BYTES);
	write_bytes(&scene, WIDE, 0, 2 * WIDE_BLOCK_BYTES);
	commit(&scene, 2);
	pages_fill(scene.bytes[WIDE], padded(WIDE), WIDE);
	expect_bytes(&scene);
	open_again(&scene);
	expect_bytes(&scene);
	end(&scene);
}

static void expect_diff(struct scene *scene, uint64_t expected)
{
	uint64_t bytes = 42;

	assert_int_equal(
		wait_for(scene, store_diff(scene->fixture.store, "one", NULL, &scene->request, &bytes)), 0);
	assert_int_equal(bytes, expected);
}

static void what_has_changed_is_counted_in_blocks_of_its_stream(void **state)
{
	struct scene scene = { .has_ended = false };
	uint64_t kept = 42;

	make(&scene);
	assert_int_equal(wait_for(&scene, store_snapshot(scene.fixture.store, "one", &scene.request)), 0);
	scene.bytes[WIDE][3 * WIDE_BLOCK_BYTES + 5] ^= 1;
	write_bytes(&scene, WIDE, 0, WIDE_EXTENT_BYTES);
	commit(&scene, 2);
	expect_diff(&scene, WIDE_BLOCK_BYTES);
	/* What the last block has of the section. */
	scene.bytes[WIDE][WIDE_EXTENT_BYTES + WIDE_BLOCK_BYTES] ^= 1;
	write_bytes(&scene, WIDE, WIDE_EXTENT_BYTES, padded(WIDE) - WIDE_EXTENT_BYTES);
	commit(&scene, 3);
	expect_diff(&scene, WIDE_BLOCK_BYTES + 300000 - WIDE_BLOCK_BYTES);
	scene.bytes[0][STORE_EXTENT_BYTES] ^= 1;
	write_bytes(&scene, 0, STORE_EXTENT_BYTES, STORE_EXTENT_BYTES);
	commit(&scene, 4);
	expect_diff(&scene, 300000 + STORE_BLOCK_BYTES);
	assert_int_equal(
		wait_for(&scene, store_measure_snapshot(scene.fixture.store, "one", &scene.request, &kept)),
		0);
	/* Each in a place that has room for the largest. */
	assert_int_equal(kept, 3 * WIDE_EXTENT_BYTES);
	assert_int_equal(store_placed_bytes(scene.fixture.store), 6 * WIDE_EXTENT_BYTES);
	end(&scene);
}

/* ---- Verify ---- */

static void verify(struct scene *scene, struct store_finder *finder)
{
	finder->count = 0;
	finder->is_over = false;
	assert_int_equal(
		wait_for(scene, store_verify(scene->fixture.store, &finder->verification, &scene->request)),
		0);
	assert_true(store_verify_extents(&finder->verification));
	while (!finder->is_over)
		io_loop_turn(&scene->fixture.loop);
}

/* Where a block of the first wide extent lies. */
static uint64_t offset_of(const struct scene *scene, unsigned block)
{
	const struct extent_store *store =
		container_of(scene->fixture.store, const struct extent_store, store);

	return extent_place_offset(store, store->map.extents[2].place) + block * WIDE_BLOCK_BYTES;
}

static void a_damaged_block_of_a_snapshot_is_found_and_named(void **state)
{
	struct scene scene = { .has_ended = false };
	struct store_finder finder;
	uint64_t offset;

	store_finder_init(&finder);
	make(&scene);
	assert_int_equal(wait_for(&scene, store_snapshot(scene.fixture.store, "one", &scene.request)), 0);
	offset = offset_of(&scene, 3);
	write_bytes(&scene, WIDE, 0, padded(WIDE));
	commit(&scene, 2);
	verify(&scene, &finder);
	assert_int_equal(finder.count, 0);
	assert_int_equal(finder.verification.bytes, padded(WIDE));
	/* The wide stream begins with the third extent, on the first device. */
	scene.fixture.memory[0][offset + WIDE_BLOCK_BYTES - 1] ^= 1;
	verify(&scene, &finder);
	assert_int_equal(finder.count, 1);
	assert_int_equal(finder.flaws[0].status, -EBADMSG);
	assert_int_equal(finder.flaws[0].block.stream, 1);
	assert_int_equal(finder.flaws[0].block.offset, 3 * WIDE_BLOCK_BYTES);
	assert_int_equal(finder.flaws[0].block.length, WIDE_BLOCK_BYTES);
	assert_int_equal(finder.flaws[0].length, WIDE_BLOCK_BYTES);
	assert_int_equal(finder.flaws[0].device_offset, offset);
	assert_string_equal(finder.flaws[0].snapshots, "one");
	store_finder_destroy(&finder);
	end(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_committed_is_found_again),
		cmocka_unit_test(what_has_changed_is_counted_in_blocks_of_its_stream),
		cmocka_unit_test(a_damaged_block_of_a_snapshot_is_found_and_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
