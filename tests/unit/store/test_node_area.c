#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/device/fault.h"
#include "offload/device/host.h"
#include "offload/store/node_area.h"
#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

#define OFFSET 8192
#define PLACES (2 * (NODE_BATCH + 44))

struct fixture {
	struct io_loop loop;
	unsigned device_count;
	unsigned char *memory[2];
	struct tier *tiers[2];
	struct node_area *area;
	struct node_pointer pointers[NODE_BATCH];
	struct node_read reads[NODE_BATCH];
	unsigned done_count;
	int status;
};

static void open_fixture(struct fixture *fixture, unsigned device_count, const char *fault)
{
	struct fault_config config;

	*fixture = (struct fixture){ .device_count = device_count };
	for (unsigned i = 0; i < device_count; i++) {
		fixture->memory[i] = pages_new(OFFSET + PLACES * NODE_BYTES);
		assert_int_equal(host_tier_new(fixture->memory[i], OFFSET + PLACES * NODE_BYTES,
					       &fixture->loop.hosts[i]),
				 0);
		fixture->tiers[i] = fixture->loop.hosts[i];
	}
	if (fault) {
		assert_int_equal(fault_config_parse(fault, &config), 0);
		assert_int_equal(fault_tier_new(fixture->tiers[0], &config, &fixture->tiers[0]), 0);
	}
	assert_int_equal(node_area_new(fixture->tiers, device_count, OFFSET, PLACES, &fixture->area), 0);
}

static void close_fixture(struct fixture *fixture)
{
	fixture->area = node_area_free(fixture->area);
	for (unsigned i = 0; i < fixture->device_count; i++) {
		fixture->tiers[i] = tier_free(fixture->tiers[i]);
		free(fixture->memory[i]);
	}
}

static void on_done(void *argument, int status)
{
	struct fixture *fixture = argument;

	fixture->done_count++;
	fixture->status = status;
}

static int wait(struct fixture *fixture, int r)
{
	if (r < 0)
		return r;
	assert_int_equal(fixture->done_count, 0);
	while (fixture->done_count == 0)
		io_loop_turn(&fixture->loop);
	assert_int_equal(fixture->done_count, 1);
	fixture->done_count = 0;
	return fixture->status;
}

static struct node_header header_of(unsigned node)
{
	return (struct node_header){ .level = 1, .count = 2, .index = node, .generation = 3, .epoch = 4 };
}

static void add_node(struct fixture *fixture, unsigned node)
{
	struct node_pointer pointer = { { node, 2 * node }, 3 * node };
	struct node_header header = header_of(node);
	uint8_t *bytes = node_area_next(fixture->area);

	assert_non_null(bytes);
	node_begin(bytes, &header);
	node_put_pointer(bytes, 1, &pointer);
	assert_int_equal(node_area_add(fixture->area, &fixture->pointers[node]), 0);
}

static int write_nodes(struct fixture *fixture, unsigned count)
{
	for (unsigned node = 0; node < count; node++)
		add_node(fixture, node);
	return wait(fixture, node_area_write(fixture->area, on_done, fixture));
}

static int read_nodes(struct fixture *fixture, unsigned count)
{
	for (unsigned node = 0; node < count; node++)
		fixture->reads[node] =
			(struct node_read){ .pointer = fixture->pointers[node], .expected = header_of(node) };
	return wait(fixture, node_area_read(fixture->area, fixture->reads, count, on_done, fixture));
}

static void expect_nodes(struct fixture *fixture, unsigned count)
{
	struct node_pointer pointer;

	assert_int_equal(read_nodes(fixture, count), 0);
	for (unsigned node = 0; node < count; node++) {
		node_get_pointer(fixture->reads[node].bytes, 1, &pointer);
		assert_int_equal(pointer.places[0], node);
		assert_int_equal(pointer.places[1], 2 * node);
		assert_int_equal(pointer.checksum, 3 * node);
	}
}

static unsigned char *place(struct fixture *fixture, unsigned node, unsigned copy)
{
	uint64_t at = fixture->pointers[node].places[copy];

	return fixture->memory[at >> 48] + OFFSET + (at & UINT32_MAX) * NODE_BYTES;
}

static void nodes_come_back(void **state)
{
	for (unsigned devices = 1; devices <= 2; devices++) {
		struct fixture fixture;

		open_fixture(&fixture, devices, NULL);
		assert_int_equal(write_nodes(&fixture, NODE_BATCH), 0);

		expect_nodes(&fixture, NODE_BATCH);
		for (unsigned node = 0; node < NODE_BATCH; node++)
			assert_int_equal(fixture.pointers[node].places[0] >> 48 !=
						 fixture.pointers[node].places[1] >> 48,
					 devices == 2);
		close_fixture(&fixture);
	}
}

/* On one device, too, where both copies of each lie. */
static void neighbours_are_moved_at_once(void **state)
{
	for (unsigned devices = 1; devices <= 2; devices++) {
		struct fixture fixture;
		const struct tier *tier;

		open_fixture(&fixture, devices, NULL);
		tier = fixture.tiers[0];
		assert_int_equal(write_nodes(&fixture, NODE_BATCH), 0);
		assert_true(tier->submitted[TIER_WRITE].requests < 20);
		assert_int_equal(tier->submitted[TIER_WRITE].bytes, 2 / devices * NODE_BATCH * NODE_BYTES);
		expect_nodes(&fixture, NODE_BATCH);
		assert_true(tier->submitted[TIER_READ].requests < 10);
		close_fixture(&fixture);
	}
}

static void either_copy_is_enough(void **state)
{
	struct fixture fixture;

	open_fixture(&fixture, 2, NULL);
	assert_int_equal(write_nodes(&fixture, 50), 0);
	for (unsigned node = 0; node < 50; node++)
		if (node % 3 < 2)
			place(&fixture, node, node % 3)[node * 80] ^= 1;
	expect_nodes(&fixture, 50);
	/* One node's bytes in the place of another. */
	memcpy(place(&fixture, 2, 0), place(&fixture, 5, 0), NODE_BYTES);
	expect_nodes(&fixture, 50);
	place(&fixture, 2, 1)[4095] ^= 1;
	assert_int_equal(read_nodes(&fixture, 50), -EBADMSG);
	assert_string_equal(node_area_failure(fixture.area).device, "host memory");
	assert_int_equal(node_area_failure(fixture.area).device_offset,
			 OFFSET + (fixture.pointers[2].places[1] & UINT32_MAX) * NODE_BYTES);
	/* What comes after is right again. */
	place(&fixture, 2, 1)[4095] ^= 1;
	expect_nodes(&fixture, 50);
	close_fixture(&fixture);
}

static void what_cannot_be_read_is_read_from_its_other_place(void **state)
{
	static const char *const faults[] = { "complete:read:1:EIO", "submit:read:1:EIO" };
	struct fixture fixture;

	open_fixture(&fixture, 1, faults[0]);
	assert_int_equal(write_nodes(&fixture, 50), 0);
	expect_nodes(&fixture, 50);
	close_fixture(&fixture);
	open_fixture(&fixture, 1, faults[1]);
	assert_int_equal(write_nodes(&fixture, 1), 0);
	assert_int_equal(read_nodes(&fixture, 1), -EIO);
	expect_nodes(&fixture, 1);
	close_fixture(&fixture);
}

/* Each write in turn: one that fails once is tried again, one that goes on failing fails the batch. */
static void a_write_that_fails_is_tried_twice(void **state)
{
	static const char *const kinds[] = { "complete:write:%u:EIO%s", "submit:write:%u:EIO%s" };
	char fault[64];

	for (unsigned kind = 0; kind < 4; kind++)
		for (unsigned nth = 1;; nth++) {
			struct fixture fixture;
			bool is_lasting = kind >= 2, has_tripped;
			int status;

			snprintf(fault, sizeof(fault), kinds[kind % 2], nth, is_lasting ? ":lasting" : "");
			open_fixture(&fixture, 2, fault);
			status = write_nodes(&fixture, NODE_BATCH);
			has_tripped = fault_tier_has_tripped(fixture.tiers[0]);
			assert_int_equal(status, has_tripped && is_lasting ? -EIO : 0);
			if (status == 0)
				expect_nodes(&fixture, NODE_BATCH);
			close_fixture(&fixture);
			if (!has_tripped)
				break;
			assert_true(nth < 50);
		}
}

static void places_are_free_when_nobody_names_them(void **state)
{
	struct fixture fixture;
	struct node_pointer first;

	open_fixture(&fixture, 1, NULL);
	assert_int_equal(write_nodes(&fixture, NODE_BATCH), 0);
	first = fixture.pointers[0];
	assert_int_equal(node_area_name(fixture.area, &first), 0);
	for (unsigned node = 0; node < NODE_BATCH; node++)
		node_area_give(fixture.area, &fixture.pointers[node]);
	/* All but that one's two. */
	for (unsigned node = 0; node < NODE_BATCH; node++)
		add_node(&fixture, node);
	assert_int_equal(wait(&fixture, node_area_write(fixture.area, on_done, &fixture)), 0);
	for (unsigned node = 0; node < 43; node++) {
		assert_non_null(node_area_next(fixture.area));
		assert_int_equal(node_area_add(fixture.area, &fixture.pointers[node]), 0);
	}
	assert_int_equal(node_area_add(fixture.area, &fixture.pointers[43]), -ENOSPC);
	assert_int_equal(wait(&fixture, node_area_write(fixture.area, on_done, &fixture)), 0);
	node_area_give(fixture.area, &first);
	assert_int_equal(node_area_add(fixture.area, &fixture.pointers[43]), 0);
	assert_int_equal(wait(&fixture, node_area_write(fixture.area, on_done, &fixture)), 0);
	close_fixture(&fixture);
}

static void pointers_to_nowhere_are_refused(void **state)
{
	static const struct node_pointer pointers[] = {
		{ { 0, PLACES }, 0 },	  { { PLACES, 0 }, 0 }, { { UINT64_C(2) << 48, 0 }, 0 },
		{ { 0, UINT64_MAX }, 0 }, { { 7, 7 }, 0 },	{ { (UINT64_C(1) << 32) + 1, 0 }, 0 },
	};
	struct fixture fixture;

	open_fixture(&fixture, 2, NULL);
	for (unsigned i = 0; i < ARRAY_LENGTH(pointers); i++)
		assert_int_equal(node_area_name(fixture.area, &pointers[i]), -EINVAL);
	close_fixture(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_come_back),
		cmocka_unit_test(neighbours_are_moved_at_once),
		cmocka_unit_test(either_copy_is_enough),
		cmocka_unit_test(what_cannot_be_read_is_read_from_its_other_place),
		cmocka_unit_test(a_write_that_fails_is_tried_twice),
		cmocka_unit_test(places_are_free_when_nobody_names_them),
		cmocka_unit_test(pointers_to_nowhere_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
