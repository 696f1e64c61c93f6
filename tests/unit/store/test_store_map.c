#include <errno.h>
#include <stdlib.h>

#include "offload/store/store_map.h"
#include "tests/unit/test.h"

#define PLACES 6

struct fixture {
	struct store_map map;
	struct places places;
};

static int open_map_of(void **state, int (*add_stream)(struct store_layout *layout, const char *name))
{
	struct fixture *fixture = malloc(sizeof(*fixture));
	struct places *places;
	struct store_layout *layout;
	uint64_t offset;

	assert_non_null(fixture);
	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(add_stream(layout, "only"), 0);
	assert_int_equal(
		store_layout_add_section(layout, 0, STORE_EXTENT_BYTES + STORE_BLOCK_BYTES + 1, &offset), 0);
	assert_int_equal(places_init(&fixture->places, PLACES), 0);
	places = &fixture->places;
	assert_int_equal(store_map_init(&fixture->map, store_layout_extents(layout), &places, 1), 0);
	store_map_adopt(&fixture->map, layout);
	layout = store_layout_free(layout);
	*state = &fixture->map;
	return 0;
}

/* One section: an extent of four blocks and one of two, on one device. */
static int open_map(void **state)
{
	return open_map_of(state, store_layout_add_stream);
}

static int open_scratch_map(void **state)
{
	return open_map_of(state, store_layout_add_scratch_stream);
}

static int close_map(void **state)
{
	struct fixture *fixture = container_of((struct store_map *)*state, struct fixture, map);

	store_map_destroy(&fixture->map);
	places_destroy(&fixture->places);
	free(fixture);
	return 0;
}

static unsigned count_free(const struct store_map *map)
{
	return (unsigned)__builtin_popcountll(map->devices[0]->is_free[0]);
}

static const uint64_t sums[4] = { 11, 12, 13, 14 };

static void a_rewrite_is_visible_when_its_last_block_is_written(void **state)
{
	struct store_map *map = *state;
	const struct store_extent *entry = &map->extents[0];

	assert_int_equal(entry->place, PLACES_NONE);
	assert_int_equal(store_map_begin(map, 0, 0x3), 0);
	assert_int_equal(store_map_begin(map, 0, 0x8), 0);
	store_map_complete(map, 0, 0x8, &sums[3]);
	store_map_complete(map, 0, 0x3, &sums[0]);
	assert_int_equal(entry->place, PLACES_NONE);
	/* A block may be written again before. */
	assert_int_equal(store_map_begin(map, 0, 0x6), 0);
	store_map_complete(map, 0, 0x6, &sums[1]);
	assert_int_not_equal(entry->place, PLACES_NONE);
	assert_int_equal(entry->version, 1);
	assert_memory_equal(entry->checksums, sums, sizeof(sums));
	assert_int_equal(count_free(map), PLACES - 1);
}

static void a_short_extent_has_fewer_blocks(void **state)
{
	struct store_map *map = *state;

	assert_int_equal(store_map_begin(map, 1, 0x3), 0);
	store_map_complete(map, 1, 0x3, sums);
	assert_int_equal(map->extents[1].version, 1);
}

static void a_rewrite_takes_a_new_place_and_frees_the_old(void **state)
{
	struct store_map *map = *state;
	uint32_t place;

	for (unsigned i = 1; i <= 20; i++) {
		place = map->extents[0].place;
		assert_int_equal(store_map_begin(map, 0, 0xf), 0);
		assert_int_not_equal(map->extents[0].pending_place, place);
		assert_int_equal(count_free(map), PLACES - (i > 1 ? 2 : 1));
		store_map_complete(map, 0, 0xf, sums);
		assert_int_equal(count_free(map), PLACES - 1);
	}
}

static void a_failed_rewrite_leaves_the_old_content(void **state)
{
	struct store_map *map = *state;
	uint32_t place;

	assert_int_equal(store_map_begin(map, 0, 0xf), 0);
	store_map_complete(map, 0, 0xf, sums);
	place = map->extents[0].place;
	assert_int_equal(store_map_begin(map, 0, 0x1), 0);
	assert_int_equal(store_map_begin(map, 0, 0x2), 0);
	store_map_fail(map, 0, 0x1, false);
	/* Until the other write has ended the place cannot be given to anybody. */
	assert_int_equal(count_free(map), PLACES - 2);
	assert_int_equal(store_map_begin(map, 0, 0x4), -EIO);
	store_map_complete(map, 0, 0x2, sums);
	assert_int_equal(count_free(map), PLACES - 1);
	assert_int_equal(map->extents[0].place, place);
	assert_int_equal(map->extents[0].version, 1);
	/* The next one begins from nothing. */
	assert_int_equal(store_map_begin(map, 0, 0xe), 0);
	store_map_complete(map, 0, 0xe, sums);
	assert_int_equal(map->extents[0].place, place);
}

static void a_broken_place_is_not_used_again(void **state)
{
	struct store_map *map = *state;

	for (unsigned i = 1; i <= PLACES; i++) {
		assert_int_equal(store_map_begin(map, 0, 0xf), 0);
		store_map_fail(map, 0, 0xf, true);
		assert_int_equal(count_free(map), PLACES - i);
	}
	assert_int_equal(store_map_begin(map, 0, 0xf), -ENOSPC);
}

static void only_a_rewrite_without_other_blocks_can_move(void **state)
{
	struct store_map *map = *state;
	uint32_t first;

	assert_int_equal(store_map_begin(map, 0, 0x3), 0);
	first = map->extents[0].pending_place;
	assert_int_equal(store_map_move(map, 0, 0x3, true), 0);
	assert_int_not_equal(map->extents[0].pending_place, first);
	assert_int_equal(count_free(map), PLACES - 2);
	assert_int_equal(store_map_begin(map, 0, 0x4), 0);
	assert_int_equal(store_map_move(map, 0, 0x3, true), -EIO);
	store_map_complete(map, 0, 0x4, sums);
	assert_int_equal(store_map_move(map, 0, 0x3, true), -EIO);
	store_map_fail(map, 0, 0x3, false);
	assert_int_equal(count_free(map), PLACES - 1);
}

/* As the last commit has it; what is now, and the commit, name its place. */
static void commit_extent(struct store_map *map, uint64_t extent)
{
	struct store_extent *entry = &map->extents[extent];

	assert_int_equal(places_name(map->devices[0], entry->place), 0);
	entry->frozen = entry->place;
	store_map_commit(map, 0);
}

static void a_rewrite_that_is_held_back_is_visible_when_it_is_published(void **state)
{
	struct store_map *map = *state;
	const struct store_extent *entry = &map->extents[0];
	uint32_t place;

	assert_int_equal(store_map_begin(map, 0, 0xf), 0);
	store_map_complete(map, 0, 0xf, sums);
	commit_extent(map, 0);
	place = entry->place;
	assert_int_equal(store_map_begin(map, 0, 0x3), 0);
	store_map_hold(map, 0);
	store_map_complete(map, 0, 0x3, sums);
	assert_int_equal(map->held_back, 1);
	/* It is not whole yet. */
	store_map_publish(map, 0);
	assert_int_equal(map->held_back, 1);
	assert_int_equal(store_map_begin(map, 0, 0xc), 0);
	store_map_hold(map, 0);
	store_map_complete(map, 0, 0xc, &sums[2]);
	assert_int_equal(entry->place, place);
	assert_int_equal(entry->version, 1);
	assert_int_equal(map->uncommitted[0], 1);
	store_map_publish(map, 0);
	assert_int_not_equal(entry->place, place);
	assert_int_equal(entry->version, 2);
	assert_int_equal(map->held_back + map->rewrites, 0);
	assert_int_equal(map->uncommitted[0], 1);
	/* The commit has the old one. */
	assert_int_equal(count_free(map), PLACES - 2);
	store_map_publish(map, 0);
	assert_int_equal(entry->version, 2);
}

static void a_rewrite_that_is_withdrawn_was_never_held_back(void **state)
{
	struct store_map *map = *state;

	for (unsigned i = 0; i < 2 * PLACES; i++) {
		assert_int_equal(store_map_begin(map, 0, 0xf), 0);
		store_map_hold(map, 0);
		if (i % 2)
			store_map_fail(map, 0, 0xf, false);
		else
			store_map_complete(map, 0, 0xf, sums);
		store_map_abandon(map, 0);
		assert_int_equal(map->held_back + map->rewrites + map->uncommitted[0], 0);
		assert_int_equal(count_free(map), PLACES);
		store_map_publish(map, 0);
		assert_int_equal(map->extents[0].version, 0);
	}
	assert_int_equal(store_map_begin(map, 0, 0xf), 0);
	store_map_complete(map, 0, 0xf, sums);
	assert_int_equal(map->extents[0].version, 1);
}

static void an_abandoned_rewrite_gives_its_place_back(void **state)
{
	struct store_map *map = *state;

	store_map_abandon(map, 0);
	assert_int_equal(store_map_begin(map, 0, 0x7), 0);
	store_map_complete(map, 0, 0x7, sums);
	store_map_abandon(map, 0);
	assert_int_equal(count_free(map), PLACES);
	assert_int_equal(store_map_begin(map, 0, 0x8), 0);
	store_map_complete(map, 0, 0x8, sums);
	assert_int_equal(map->extents[0].place, PLACES_NONE);
}

static void a_scratch_extent_gives_its_place_up_for_its_rewrite(void **state)
{
	struct store_map *map = *state;
	const struct store_extent *entry = &map->extents[0];
	uint32_t version;

	for (unsigned i = 1; i <= 20; i++) {
		assert_int_equal(store_map_begin(map, 0, 0x3), 0);
		version = entry->version;
		assert_int_equal(store_map_begin(map, 0, 0xc), 0);
		assert_int_equal(entry->place, PLACES_NONE);
		assert_int_equal(count_free(map), PLACES - 1);
		store_map_complete(map, 0, 0xf, sums);
		assert_int_equal(entry->version, version + 1);
		assert_int_not_equal(entry->place, PLACES_NONE);
		assert_int_equal(count_free(map), PLACES - 1);
	}
	version = entry->version;
	assert_int_equal(store_map_begin(map, 0, 0xf), 0);
	/* A read of what was there must not believe what it finds. */
	assert_int_not_equal(entry->version, version);
	store_map_fail(map, 0, 0xf, false);
	assert_int_equal(entry->place, PLACES_NONE);
	assert_int_equal(count_free(map), PLACES);
}

#define MAP_TEST(name) cmocka_unit_test_setup_teardown(name, open_map, close_map)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MAP_TEST(a_rewrite_is_visible_when_its_last_block_is_written),
		MAP_TEST(a_short_extent_has_fewer_blocks),
		MAP_TEST(a_rewrite_takes_a_new_place_and_frees_the_old),
		MAP_TEST(a_failed_rewrite_leaves_the_old_content),
		MAP_TEST(a_broken_place_is_not_used_again),
		MAP_TEST(only_a_rewrite_without_other_blocks_can_move),
		MAP_TEST(a_rewrite_that_is_held_back_is_visible_when_it_is_published),
		MAP_TEST(a_rewrite_that_is_withdrawn_was_never_held_back),
		MAP_TEST(an_abandoned_rewrite_gives_its_place_back),
		cmocka_unit_test_setup_teardown(a_scratch_extent_gives_its_place_up_for_its_rewrite,
						open_scratch_map, close_map),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
