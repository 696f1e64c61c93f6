/* What lies on the disks of a store is damaged, byte by byte: it is found, and never served. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store/lineage_backend.h"
#include "tests/unit/test.h"
#include "tests/unit/toy_store.h"

#define COPY_STRIDE (256 * 1024)

/* Sanitizers make it slow: there every seventh byte is enough; the
 * plain build flips all. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FLIP_STRIDE 7
#endif
#endif
#ifndef FLIP_STRIDE
#define FLIP_STRIDE 1
#endif

static int try_to_open(struct toy *toy)
{
	toy_end(toy);
	toy_begin(toy);
	return toy_wait(toy, lineage_open(toy->lineage, &toy->request));
}

static void expect_opened(struct toy *toy, uint64_t step)
{
	int r = try_to_open(toy);

	if (r < 0)
		fail_msg("%s", lineage_message(toy->lineage));
	assert_int_equal(toy->head.step, step);
	toy_expect_step(toy);
}

static void make(struct toy *toy, unsigned extents, unsigned devices, unsigned steps)
{
	toy_open(toy, extents, devices, 1);
	toy_make_steps(toy, steps);
}

static void overwrite(struct sim_disk *disk, uint64_t offset, const uint8_t *bytes, size_t length)
{
	uint8_t old[NODE_BYTES];

	for (size_t at = 0; at < length; at += sizeof(old)) {
		sim_disk_read(disk, offset + at, old, sizeof(old));
		for (size_t i = 0; i < sizeof(old); i++)
			if (old[i] != bytes[at + i])
				sim_disk_flip(disk, offset + at + i, old[i] ^ bytes[at + i]);
	}
}

/* ---- Superblocks ---- */

static void no_byte_of_a_superblock_is_missed(void **state)
{
	static struct toy toy;

	make(&toy, 3, 1, 2);
	for (unsigned copy = 0; copy < SUPERBLOCK_COPIES; copy++)
		for (unsigned at = 0; at < SUPERBLOCK_BYTES; at += FLIP_STRIDE) {
			sim_disk_flip(toy.disks[0], copy * COPY_STRIDE + at, 1U << at % 8);
			expect_opened(&toy, 2);
		}
	toy_close(&toy);
}

static void flip_in_pair(struct toy *toy, unsigned pair, unsigned at)
{
	for (unsigned copy = 2 * pair; copy < 2 * pair + 2; copy++)
		for (unsigned record = 0; record < SUPERBLOCK_BYTES; record += SUPERBLOCK_RECORD_BYTES)
			for (unsigned i = 0; i < toy->device_count; i++)
				sim_disk_flip(toy->disks[i], copy * COPY_STRIDE + record + at, 1U << at % 8);
}

/* The other pair may be older than what was promised. */
static void a_store_that_lost_a_pair_is_refused(void **state)
{
	static struct toy toy;

	make(&toy, 3, 2, 2);
	for (unsigned at = 0; at < SUPERBLOCK_RECORD_BYTES; at++)
		for (unsigned pair = 0; pair < 2; pair++) {
			flip_in_pair(&toy, pair, at);
			assert_int_equal(try_to_open(&toy), -ENODATA);
			flip_in_pair(&toy, pair, at);
		}
	expect_opened(&toy, 2);
	toy_close(&toy);
}

/* ---- Nodes ---- */

static void no_byte_of_a_node_is_missed(void **state)
{
	static struct toy toy;
	struct node_pointer pointer;

	make(&toy, 120, 2, 2);
	for (unsigned node = 0; toy_node(&toy, node, &pointer); node++)
		for (unsigned at = 0; at < NODE_BYTES; at += FLIP_STRIDE) {
			for (unsigned copy = 0; copy < 2; copy++) {
				toy_flip_node(&toy, &pointer, copy, at);
				if (at % 64 == 0)
					expect_opened(&toy, 2);
				toy_flip_node(&toy, &pointer, copy, at);
			}
			toy_flip_node(&toy, &pointer, 0, at);
			toy_flip_node(&toy, &pointer, 1, at);
			assert_int_equal(try_to_open(&toy), -EBADMSG);
			toy_flip_node(&toy, &pointer, 0, at);
			toy_flip_node(&toy, &pointer, 1, at);
			expect_opened(&toy, 2);
		}
	toy_close(&toy);
}

/* Both copies, then one of them. */
static void expect_refused(struct toy *toy, const struct node_pointer *pointer, const uint8_t *bytes,
			   uint64_t step)
{
	uint8_t right[NODE_BYTES];

	sim_disk_read(toy_disk_of(toy, pointer, 0), toy_offset_of(pointer, 0), right, NODE_BYTES);
	for (unsigned copy = 0; copy < 2; copy++)
		overwrite(toy_disk_of(toy, pointer, copy), toy_offset_of(pointer, copy), bytes, NODE_BYTES);
	assert_int_equal(try_to_open(toy), -EBADMSG);
	overwrite(toy_disk_of(toy, pointer, 1), toy_offset_of(pointer, 1), right, NODE_BYTES);
	expect_opened(toy, step);
	overwrite(toy_disk_of(toy, pointer, 0), toy_offset_of(pointer, 0), right, NODE_BYTES);
}

static void misdirected_and_lost_writes_of_nodes_are_found(void **state)
{
	static struct toy toy;
	static const uint8_t nothing[NODE_BYTES];
	struct node_pointer pointer, other;
	uint8_t bytes[NODE_BYTES];

	make(&toy, 350, 2, 2);
	for (unsigned node = 0; toy_node(&toy, node, &pointer); node++) {
		expect_refused(&toy, &pointer, nothing, 2);
		for (unsigned i = 0; toy_node(&toy, i, &other); i++) {
			if (i == node)
				continue;
			sim_disk_read(toy_disk_of(&toy, &other, 0), toy_offset_of(&other, 0), bytes,
				      NODE_BYTES);
			expect_refused(&toy, &pointer, bytes, 2);
		}
	}
	toy_close(&toy);
}

/* ---- Snapshots ---- */

/* Of step 1, while the job is at step 3, so that they share nothing: the root of the snapshot's map. */
static struct node_pointer make_with_snapshot(struct toy *toy)
{
	make(toy, 120, 2, 1);
	toy_keep(toy, "kept");
	toy_make_steps(toy, 2);
	return toy->lineage->heads.records[1].root;
}

static void no_byte_of_a_snapshots_map_is_missed(void **state)
{
	static struct toy toy;
	struct node_pointer root = make_with_snapshot(&toy);

	for (unsigned at = 0; at < NODE_BYTES; at += FLIP_STRIDE) {
		toy_flip_nodes(&toy, &root, at);
		expect_opened(&toy, 3);
		assert_int_equal(lineage_lost(&toy.head), 1);
		assert_non_null(strstr(lineage_message(toy.lineage), "the map of snapshot kept"));
		toy_flip_node(&toy, &root, 1, at);
		if (at % 64 == 0) {
			expect_opened(&toy, 3);
			assert_int_equal(lineage_lost(&toy.head), 0);
		}
		toy_flip_node(&toy, &root, 0, at);
	}
	expect_opened(&toy, 3);
	assert_int_equal(lineage_lost(&toy.head), 0);
	toy_close(&toy);
}

/* What cannot be read keeps its places, until the next open counts them. */
static void a_snapshot_that_cannot_be_read_can_be_deleted(void **state)
{
	static struct toy toy;
	struct node_pointer root = make_with_snapshot(&toy);
	uint64_t extents = 42;

	toy_flip_nodes(&toy, &root, 100);
	assert_int_equal(toy_wait(&toy, lineage_measure_snapshot(&toy.head, "kept", &extents, &toy.request)),
			 -EBADMSG);
	assert_int_equal(extents, 42);
	assert_non_null(strstr(lineage_message(toy.lineage), "it is not what its checksum says"));
	assert_int_equal(toy_wait(&toy, lineage_delete_snapshot(&toy.head, "kept", &toy.request)), 0);
	toy_make_steps(&toy, 1);
	expect_opened(&toy, 4);
	toy_expect_places(&toy);
	toy_close(&toy);
}

/* ---- Devices ---- */

static void a_disk_that_missed_commits_is_not_believed(void **state)
{
	static struct toy toy;
	struct lineage_geometry geometry;
	uint8_t *old, *new;
	size_t length;

	make(&toy, 30, 2, 2);
	geometry = toy_geometry(&toy);
	length = lineage_extents_offset(&geometry);
	old = malloc(length);
	new = malloc(length);
	assert_true(old && new);
	sim_disk_read(toy.disks[1], 0, old, length);
	/* What the devices say of each other is all that tells: the map is as it was. */
	expect_opened(&toy, 2);
	expect_opened(&toy, 2);
	sim_disk_read(toy.disks[1], 0, new, length);
	overwrite(toy.disks[1], 0, old, length);
	assert_int_equal(try_to_open(&toy), -ENODEV);
	assert_non_null(strstr(lineage_message(toy.lineage), "left behind"));
	overwrite(toy.disks[1], 0, new, length);
	expect_opened(&toy, 2);
	free(old);
	free(new);
	toy_close(&toy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_byte_of_a_superblock_is_missed),
		cmocka_unit_test(a_store_that_lost_a_pair_is_refused),
		cmocka_unit_test(no_byte_of_a_node_is_missed),
		cmocka_unit_test(misdirected_and_lost_writes_of_nodes_are_found),
		cmocka_unit_test(no_byte_of_a_snapshots_map_is_missed),
		cmocka_unit_test(a_snapshot_that_cannot_be_read_can_be_deleted),
		cmocka_unit_test(a_disk_that_missed_commits_is_not_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
