#include <errno.h>

#include "common/size.h"
#include "offload/device/host.h"
#include "offload/store/store_backend.h"
#include "tests/unit/store_support.h"
#include "tests/unit/test.h"

static void sections_start_at_extents_and_streams_are_numbered_through(void **state)
{
	struct store_fixture fixture;
	struct store_layout *layout = store_fixture_layout(&fixture);
	static const uint64_t starts[SECTION_COUNT] = { 0, 1, 2, 3, 4, 5, 8 };

	for (unsigned i = 0; i < SECTION_COUNT; i++)
		assert_int_equal(fixture.offsets[i], starts[i] * STORE_EXTENT_BYTES);
	assert_int_equal(store_layout_extents(layout), 3 + 13);
	/* The second stream follows the first, which got its section later. */
	assert_int_equal(store_layout_extent(layout, STREAM_SECOND, fixture.offsets[6]), 3 + 8);
	assert_int_equal(store_layout_extent(layout, STREAM_FIRST, 2 * STORE_EXTENT_BYTES), 2);
	layout = store_layout_free(layout);
}

static void an_offset_finds_its_section(void **state)
{
	struct store_fixture fixture;
	struct store_layout *layout = store_fixture_layout(&fixture);

	for (unsigned i = 0; i < SECTION_COUNT; i++) {
		const struct store_section *section =
			store_layout_find(layout, STREAM_SECOND, fixture.offsets[i]);

		assert_non_null(section);
		assert_int_equal(section->length, section_lengths[i]);
		assert_ptr_equal(
			store_layout_find(layout, STREAM_SECOND, fixture.offsets[i] + section_lengths[i] - 1),
			section);
		assert_true(store_layout_find(layout, STREAM_SECOND,
					      fixture.offsets[i] + section_lengths[i]) != section);
	}
	assert_null(store_layout_find(layout, STREAM_SECOND, 13 * STORE_EXTENT_BYTES));
	assert_null(store_layout_find(layout, 2, 0));
	layout = store_layout_free(layout);
}

static void only_whole_blocks_of_one_section_are_a_range(void **state)
{
	struct store_fixture fixture;
	struct store_layout *layout = store_fixture_layout(&fixture);
	uint64_t odd = fixture.offsets[5], padded = size_align(300000 - STORE_BLOCK_BYTES, STORE_PAGE_BYTES);
	static const struct {
		uint64_t offset, length;
		bool is_range;
	} cases[] = {
		{ 0, 4096, true }, /* of a section of one byte */
		{ 0, 1, false },
		{ 0, STORE_BLOCK_BYTES, false },
		{ STORE_EXTENT_BYTES, 4096, true },
		{ 2 * STORE_EXTENT_BYTES, STORE_BLOCK_BYTES, true },
		{ 2 * STORE_EXTENT_BYTES, 0, false },
		{ 2 * STORE_EXTENT_BYTES, 4096, false },
		{ 2 * STORE_EXTENT_BYTES + 4096, 4096, false },
		{ 3 * STORE_EXTENT_BYTES, STORE_BLOCK_BYTES + 4096, true },
		{ 4 * STORE_EXTENT_BYTES, 2 * STORE_EXTENT_BYTES, false },
		{ 8 * STORE_EXTENT_BYTES, UINT64_MAX - STORE_BLOCK_BYTES + 1, false },
		{ 13 * STORE_EXTENT_BYTES, STORE_BLOCK_BYTES, false },
		{ UINT64_MAX - STORE_BLOCK_BYTES + 1, STORE_BLOCK_BYTES, false },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
		assert_int_equal(
			store_layout_has_range(layout, STREAM_SECOND, cases[i].offset, cases[i].length),
			cases[i].is_range);
	assert_true(store_layout_has_range(layout, STREAM_SECOND,
					   odd + 2 * STORE_EXTENT_BYTES + STORE_BLOCK_BYTES, padded));
	assert_false(store_layout_has_range(layout, STREAM_SECOND,
					    odd + 2 * STORE_EXTENT_BYTES + STORE_BLOCK_BYTES, padded - 4096));
	layout = store_layout_free(layout);
}

static void each_extent_is_a_range_of_its_stream(void **state)
{
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	uint64_t offset, pages = 0;

	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_stream(layout, "a"), 0);
	assert_int_equal(store_layout_add_stream(layout, "empty"), 1);
	assert_int_equal(store_layout_add_stream(layout, "b"), 2);
	assert_int_equal(store_layout_add_section(layout, 0, 2 * STORE_EXTENT_BYTES + 1, &offset), 0);
	assert_int_equal(store_layout_add_section(layout, 0, 4096, &offset), 0);
	assert_int_equal(store_layout_add_section(layout, 2, STORE_EXTENT_BYTES, &offset), 0);
	for (uint64_t extent = 0; extent < store_layout_extents(layout); extent++) {
		struct store_range range = store_layout_range_of(layout, extent);

		assert_int_equal(store_layout_extent(layout, range.stream, range.offset), extent);
		assert_true(store_layout_has_range(layout, range.stream, range.offset, range.length));
		pages += range.length / STORE_PAGE_BYTES;
	}
	assert_int_equal(pages, 256 + 256 + 1 + 1 + 256);
	assert_int_equal(store_layout_range_of(layout, 4).stream, 2);
}

#define WIDE_BLOCK (260 * KIB)
#define WIDE_EXTENT (STORE_EXTENT_BLOCKS * WIDE_BLOCK)

/* Two default streams beside one of wider blocks. */
static struct store_layout *make_mixed(uint64_t ret_offsets[4])
{
	struct store_layout *layout;

	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_stream(layout, "before"), 0);
	assert_int_equal(store_layout_add_stream(layout, "wide"), 1);
	assert_int_equal(store_layout_add_stream(layout, "after"), 2);
	assert_int_equal(store_layout_set_blocks(layout, 1, WIDE_BLOCK), 0);
	assert_int_equal(store_layout_add_section(layout, 0, 2 * STORE_EXTENT_BYTES, &ret_offsets[0]), 0);
	assert_int_equal(store_layout_add_section(layout, 1, WIDE_EXTENT + 300000, &ret_offsets[1]), 0);
	assert_int_equal(store_layout_add_section(layout, 1, WIDE_EXTENT, &ret_offsets[2]), 0);
	assert_int_equal(store_layout_add_section(layout, 2, 5000, &ret_offsets[3]), 0);
	return layout;
}

static void a_stream_may_have_blocks_of_its_own(void **state)
{
	uint64_t offsets[4];
	struct store_layout *layout = make_mixed(offsets);
	uint64_t padded = size_align(300000 - WIDE_BLOCK, STORE_PAGE_BYTES);

	assert_int_equal(offsets[1], 0);
	assert_int_equal(offsets[2], 2 * WIDE_EXTENT);
	assert_int_equal(offsets[3], 0);
	assert_int_equal(store_layout_extents(layout), 2 + 3 + 1);
	assert_int_equal(store_layout_extent(layout, 1, offsets[2] - 1), 2 + 1);
	assert_int_equal(store_layout_extent(layout, 1, offsets[2]), 2 + 2);
	assert_int_equal(store_layout_extent(layout, 2, 0), 5);
	assert_int_equal(store_layout_whole_bytes(layout), 3 * STORE_EXTENT_BYTES + 3 * WIDE_EXTENT);
	assert_true(store_layout_has_range(layout, 1, WIDE_BLOCK, 2 * WIDE_BLOCK));
	assert_false(store_layout_has_range(layout, 1, STORE_BLOCK_BYTES, WIDE_BLOCK));
	assert_false(store_layout_has_range(layout, 1, WIDE_BLOCK, STORE_BLOCK_BYTES));
	assert_true(store_layout_has_range(layout, 1, WIDE_EXTENT + WIDE_BLOCK, padded));
	assert_true(store_layout_has_range(layout, 0, STORE_BLOCK_BYTES, STORE_BLOCK_BYTES));
	assert_false(store_layout_has_range(layout, 0, 0, WIDE_BLOCK));
	for (uint64_t extent = 0; extent < store_layout_extents(layout); extent++) {
		struct store_range range = store_layout_range_of(layout, extent);

		assert_int_equal(store_layout_extent(layout, range.stream, range.offset), extent);
		assert_true(store_layout_has_range(layout, range.stream, range.offset, range.length));
	}
	assert_int_equal(store_layout_range_of(layout, 2).length, WIDE_EXTENT);
	assert_int_equal(store_layout_range_of(layout, 3).length, size_align(300000, STORE_PAGE_BYTES));
	layout = store_layout_free(layout);
}

static void expect_around(const struct store_layout *layout, const struct store_range *bytes,
			  uint64_t unit_bytes, uint64_t offset, uint64_t length)
{
	struct store_range range = store_layout_around(layout, bytes, unit_bytes);

	assert_int_equal(range.stream, bytes->stream);
	assert_int_equal(range.offset, offset);
	assert_int_equal(range.length, length);
	assert_true(store_layout_has_range(layout, range.stream, range.offset, range.length));
}

static void bytes_are_moved_with_what_else_is_in_their_blocks(void **state)
{
	uint64_t offsets[4];
	struct store_layout *layout = make_mixed(offsets);
	const struct store_range one = { 1, WIDE_BLOCK, 1 }, two = { 1, WIDE_BLOCK - 1, 2 },
				 last = { 1, WIDE_EXTENT + 299999, 1 },
				 many = { 1, WIDE_BLOCK + 5, WIDE_EXTENT }, small = { 2, 4999, 1 };

	expect_around(layout, &one, WIDE_BLOCK, WIDE_BLOCK, WIDE_BLOCK);
	expect_around(layout, &one, WIDE_EXTENT, 0, WIDE_EXTENT);
	expect_around(layout, &two, WIDE_BLOCK, 0, 2 * WIDE_BLOCK);
	/* Up to the section's end, in pages. */
	expect_around(layout, &last, WIDE_BLOCK, WIDE_EXTENT + WIDE_BLOCK,
		      size_align(300000 - WIDE_BLOCK, STORE_PAGE_BYTES));
	expect_around(layout, &last, WIDE_EXTENT, WIDE_EXTENT, size_align(300000, STORE_PAGE_BYTES));
	expect_around(layout, &many, WIDE_BLOCK, WIDE_BLOCK,
		      WIDE_EXTENT - WIDE_BLOCK + size_align(300000, STORE_PAGE_BYTES));
	expect_around(layout, &small, STORE_BLOCK_BYTES, 0, 2 * STORE_PAGE_BYTES);
	layout = store_layout_free(layout);
}

static void places_are_as_large_as_the_largest_extent(void **state)
{
	uint64_t offsets[4], offset;
	struct store_layout *layout = make_mixed(offsets);

	assert_int_equal(store_layout_place_bytes(layout), WIDE_EXTENT);
	for (unsigned devices = 1; devices <= 3; devices++) {
		uint64_t places = store_layout_places(layout, devices) * WIDE_EXTENT;

		assert_int_equal(store_layout_device_bytes(layout, devices),
				 devices * size_align(places, MIB));
	}
	store_layout_set_durable(layout);
	for (unsigned devices = 1; devices <= 3; devices++) {
		struct lineage_geometry geometry = store_layout_geometry(layout, devices);

		assert_int_equal(geometry.place_bytes, WIDE_EXTENT);
		assert_int_equal(store_layout_device_bytes(layout, devices),
				 devices * (lineage_extents_offset(&geometry) +
					    size_align(geometry.extents * WIDE_EXTENT, MIB)));
	}
	layout = store_layout_free(layout);
	/* Not of a stream that has none. */
	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_stream(layout, "empty"), 0);
	assert_int_equal(store_layout_add_stream(layout, "other"), 1);
	assert_int_equal(store_layout_set_blocks(layout, 0, STORE_MAX_BLOCK_BYTES), 0);
	assert_int_equal(store_layout_add_section(layout, 1, 1, &offset), 0);
	assert_int_equal(store_layout_place_bytes(layout), STORE_EXTENT_BYTES);
	layout = store_layout_free(layout);
}

static void senseless_blocks_are_refused(void **state)
{
	static const uint64_t senseless[] = { 0, STORE_BLOCK_BYTES - STORE_PAGE_BYTES,
					      STORE_BLOCK_BYTES + 512,
					      STORE_MAX_BLOCK_BYTES + STORE_PAGE_BYTES, UINT64_MAX };
	struct store_layout *layout;
	uint64_t offset;

	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_stream(layout, "only"), 0);
	for (size_t i = 0; i < ARRAY_LENGTH(senseless); i++)
		assert_int_equal(store_layout_set_blocks(layout, 0, senseless[i]), -EINVAL);
	assert_int_equal(store_layout_set_blocks(layout, 1, WIDE_BLOCK), -EINVAL);
	assert_int_equal(store_layout_set_blocks(layout, 0, STORE_MAX_BLOCK_BYTES), 0);
	assert_int_equal(store_layout_set_blocks(layout, 0, STORE_BLOCK_BYTES), 0);
	assert_int_equal(store_layout_add_section(layout, 0, 1, &offset), 0);
	assert_int_equal(store_layout_set_blocks(layout, 0, WIDE_BLOCK), -EINVAL);
	assert_int_equal(store_layout_place_bytes(layout), STORE_EXTENT_BYTES);
	layout = store_layout_free(layout);
}

static void senseless_sections_are_refused(void **state)
{
	struct store_layout *layout;
	uint64_t offset = 42;

	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_section(layout, 0, 1, &offset), -EINVAL);
	assert_int_equal(store_layout_add_stream(layout, "only"), 0);
	assert_int_equal(store_layout_add_section(layout, 0, 0, &offset), -EINVAL);
	assert_int_equal(store_layout_add_section(layout, 0, UINT64_MAX, &offset), -EOVERFLOW);
	assert_int_equal(offset, 42);
	assert_int_equal(store_layout_extents(layout), 0);
	layout = store_layout_free(layout);
}

static void what_a_store_needs_is_known_before(void **state)
{
	struct store_layout *layout;
	uint64_t offset;

	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_stream(layout, "only"), 0);
	assert_int_equal(store_layout_add_section(layout, 0, 1000 * STORE_EXTENT_BYTES, &offset), 0);
	/* Twice the content and a little more, equal on each device. */
	for (unsigned devices = 1; devices <= 8; devices++) {
		uint64_t bytes = store_layout_device_bytes(layout, devices);

		assert_true(bytes >= 2000 * STORE_EXTENT_BYTES);
		assert_true(bytes <= (2000 + 10 * devices) * STORE_EXTENT_BYTES);
		assert_int_equal(bytes % (devices * STORE_EXTENT_BYTES), 0);
		assert_true(store_layout_metadata_bytes(layout) >=
			    store_layout_host_bytes(layout) + store_extent_host_bytes(layout, devices, 16));
	}
	assert_true(store_layout_metadata_bytes(layout) <= 1000 * 128 + 64 * KIB);
	layout = store_layout_free(layout);
}

static void a_scratch_stream_needs_one_place_for_each_extent(void **state)
{
	struct store_layout *layout;
	uint64_t offset;

	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_stream(layout, "kept"), 0);
	assert_int_equal(store_layout_add_scratch_stream(layout, "scratch"), 1);
	assert_int_equal(store_layout_add_stream(layout, "kept too"), 2);
	assert_int_equal(store_layout_add_section(layout, 0, 10 * STORE_EXTENT_BYTES, &offset), 0);
	assert_int_equal(store_layout_add_section(layout, 1, 1000 * STORE_EXTENT_BYTES, &offset), 0);
	assert_int_equal(store_layout_add_section(layout, 2, 10 * STORE_EXTENT_BYTES, &offset), 0);
	for (unsigned devices = 1; devices <= 8; devices++) {
		/* Extent i lies on device i modulo their number: the first one has the most. */
		uint64_t least = 2 * size_divide_up(10, devices) + size_divide_up(1000, devices);

		assert_true(store_layout_places(layout, devices) > least + 2 * (10 / devices));
		assert_true(store_layout_places(layout, devices) < least + 2 * (10 / devices) + 16);
	}
	layout = store_layout_free(layout);
}

static struct store_layout *make_largest(unsigned snapshots)
{
	struct store_layout *layout;
	uint64_t offset;

	assert_int_equal(store_layout_new(&layout), 0);
	store_layout_set_durable(layout);
	store_layout_set_snapshots(layout, snapshots);
	assert_int_equal(store_layout_add_stream(layout, "only"), 0);
	assert_int_equal(store_layout_add_section(layout, 0, STORE_MAX_EXTENTS * STORE_EXTENT_BYTES, &offset),
			 0);
	assert_int_equal(store_layout_add_section(layout, 0, 1, &offset), -EOVERFLOW);
	return layout;
}

/* Nothing that is counted in 32 bits begins again at 0. */
static void the_largest_store_has_as_many_places_as_it_needs(void **state)
{
	struct store_layout *layout = make_largest(STORE_MAX_SNAPSHOTS);

	for (unsigned devices = 1; devices <= SUPERBLOCK_MAX_MEMBERS; devices++) {
		uint64_t each = size_divide_up(STORE_MAX_EXTENTS, devices);
		struct lineage_geometry geometry = store_layout_geometry(layout, devices);
		struct lineage_extents of_device = store_layout_device_extents(layout, devices);

		assert_int_equal(geometry.extents, (2 + STORE_MAX_SNAPSHOTS) * each + 8);
		assert_true(lineage_is_possible(&geometry));
		assert_int_equal(of_device.changing, each);
		assert_true(store_layout_device_bytes(layout, devices) >=
			    (2 + STORE_MAX_SNAPSHOTS) * STORE_MAX_EXTENTS * STORE_EXTENT_BYTES);
	}
	layout = store_layout_free(layout);
}

static void what_has_more_places_than_have_a_number_is_refused(void **state)
{
	struct store_layout *layout = make_largest(30);
	struct lineage_geometry geometry = store_layout_geometry(layout, 1);
	static _Alignas(STORE_PAGE_BYTES) char page[STORE_PAGE_BYTES];
	struct store *store = NULL;
	struct tier *tier;

	assert_false(lineage_is_possible(&geometry));
	geometry = store_layout_geometry(layout, 2);
	assert_true(lineage_is_possible(&geometry));
	assert_int_equal(host_tier_new(page, sizeof(page), &tier), 0);
	assert_int_equal(store_new_nvme(&(struct store_config){ 0 }, layout, &tier, 1, &store), -EOVERFLOW);
	assert_null(store);
}

/* Of the whole store, durable or not: the rest has two, and one for each snapshot. */
static void what_is_fixed_needs_one_place_for_each_extent(void **state)
{
	for (unsigned devices = 1; devices <= 8; devices++) {
		uint64_t fixed = size_divide_up(900, devices), changing = size_divide_up(100, devices);

		for (unsigned snapshots = 0; snapshots < 3; snapshots++) {
			struct store_layout *layout;
			uint64_t offset;

			assert_int_equal(store_layout_new(&layout), 0);
			if (snapshots > 0)
				store_layout_set_durable(layout);
			store_layout_set_snapshots(layout, snapshots);
			assert_int_equal(store_layout_add_fixed_stream(layout, "fixed"), 0);
			assert_int_equal(store_layout_add_stream(layout, "other"), 1);
			assert_int_equal(
				store_layout_add_section(layout, 0, 900 * STORE_EXTENT_BYTES, &offset), 0);
			assert_int_equal(
				store_layout_add_section(layout, 1, 100 * STORE_EXTENT_BYTES, &offset), 0);
			assert_int_equal(store_layout_geometry(layout, devices).extents,
					 fixed + (2 + snapshots) * changing + 8);
			assert_int_equal(store_layout_places(layout, devices), fixed + 2 * changing + 8);
			layout = store_layout_free(layout);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sections_start_at_extents_and_streams_are_numbered_through),
		cmocka_unit_test(an_offset_finds_its_section),
		cmocka_unit_test(only_whole_blocks_of_one_section_are_a_range),
		cmocka_unit_test(each_extent_is_a_range_of_its_stream),
		cmocka_unit_test(a_stream_may_have_blocks_of_its_own),
		cmocka_unit_test(bytes_are_moved_with_what_else_is_in_their_blocks),
		cmocka_unit_test(places_are_as_large_as_the_largest_extent),
		cmocka_unit_test(senseless_blocks_are_refused),
		cmocka_unit_test(senseless_sections_are_refused),
		cmocka_unit_test(what_a_store_needs_is_known_before),
		cmocka_unit_test(a_scratch_stream_needs_one_place_for_each_extent),
		cmocka_unit_test(the_largest_store_has_as_many_places_as_it_needs),
		cmocka_unit_test(what_has_more_places_than_have_a_number_is_refused),
		cmocka_unit_test(what_is_fixed_needs_one_place_for_each_extent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
