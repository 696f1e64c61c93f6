/* Every copy of what a store's maps are made of is read when it is verified; what is bad is told, and a bad
 * copy of a node is written again from the good one, and never a good one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store/lineage_backend.h"
#include "tests/unit/test.h"
#include "tests/unit/toy_store.h"

#define MAX_FLAWS 64
#define EXTENTS 120

struct finder {
	struct lineage_verification verification;
	struct lineage_flaw flaws[MAX_FLAWS];
	unsigned flaw_count, kept_count;
	struct lineage_kept kept[2 * EXTENTS * TOY_SNAPSHOTS];
	_Alignas(SIM_SECTOR) uint8_t buffer[LINEAGE_VERIFY_BYTES];
};

static void note_flaw(struct lineage_verification *verification, const struct lineage_flaw *flaw)
{
	struct finder *finder = container_of(verification, struct finder, verification);

	assert_true(finder->flaw_count < MAX_FLAWS);
	finder->flaws[finder->flaw_count++] = *flaw;
}

static void note_kept(struct lineage_verification *verification, const struct lineage_kept *kept)
{
	struct finder *finder = container_of(verification, struct finder, verification);

	assert_true(finder->kept_count < sizeof(finder->kept) / sizeof(finder->kept[0]));
	finder->kept[finder->kept_count++] = *kept;
}

/* All of it. */
static struct finder *verify(struct toy *toy)
{
	static struct finder finder;

	finder.flaw_count = finder.kept_count = 0;
	finder.verification = (struct lineage_verification){ .buffer = finder.buffer,
							     .found = note_flaw,
							     .kept = note_kept };
	for (uint64_t leaf = 0; leaf < toy->head.tree.levels[0].count; leaf++) {
		finder.verification.leaf = leaf;
		assert_int_equal(
			toy_wait(toy, lineage_verify(&toy->head, &finder.verification, &toy->request)), 0);
	}
	return &finder;
}

static void make(struct toy *toy, unsigned extents, unsigned devices)
{
	toy_open(toy, extents, devices, 1);
	toy_make_steps(toy, 2);
}

/* ---- Nodes ---- */

static void expect_mended(struct toy *toy, const struct node_pointer *pointer, unsigned copy, unsigned at)
{
	uint8_t before[NODE_BYTES], after[NODE_BYTES];
	struct finder *finder;

	sim_disk_read(toy_disk_of(toy, pointer, copy), toy_offset_of(pointer, copy), before, NODE_BYTES);
	toy_flip_node(toy, pointer, copy, at);
	finder = verify(toy);
	assert_int_equal(finder->flaw_count, 1);
	assert_true(finder->flaws[0].part != LINEAGE_SUPERBLOCK && finder->flaws[0].is_mended);
	assert_int_equal(finder->flaws[0].copy, copy);
	assert_int_equal(finder->flaws[0].status, -EBADMSG);
	assert_int_equal(finder->flaws[0].device_offset, toy_offset_of(pointer, copy));
	sim_disk_read(toy_disk_of(toy, pointer, copy), toy_offset_of(pointer, copy), after, NODE_BYTES);
	assert_memory_equal(before, after, NODE_BYTES);
}

static void a_bad_copy_of_a_node_is_written_again(void **state)
{
	static struct toy toy;
	struct node_pointer pointer;

	make(&toy, EXTENTS, 2);
	toy_keep(&toy, "kept");
	assert_int_equal(verify(&toy)->flaw_count, 0);
	for (unsigned node = 0; toy_node(&toy, node, &pointer); node++)
		for (unsigned at = 0; at < NODE_BYTES; at += 61)
			expect_mended(&toy, &pointer, at % 2, at);
	assert_int_equal(verify(&toy)->flaw_count, 0);
	toy_reopen(&toy);
	toy_close(&toy);
}

/* Whose node it is says what is lost with it. */
static void expect_both_told(struct toy *toy, const struct node_pointer *pointer, uint32_t heads)
{
	struct finder *finder;
	uint8_t before[NODE_BYTES], after[NODE_BYTES];

	toy_flip_nodes(toy, pointer, 99);
	sim_disk_read(toy_disk_of(toy, pointer, 0), toy_offset_of(pointer, 0), before, NODE_BYTES);
	for (unsigned time = 0; time < 2; time++) {
		finder = verify(toy);
		assert_int_equal(finder->flaw_count, 2);
		for (unsigned copy = 0; copy < 2; copy++) {
			assert_int_equal(finder->flaws[copy].copy, copy);
			assert_int_equal(finder->flaws[copy].heads, heads);
			assert_false(finder->flaws[copy].is_mended);
		}
	}
	sim_disk_read(toy_disk_of(toy, pointer, 0), toy_offset_of(pointer, 0), after, NODE_BYTES);
	assert_memory_equal(before, after, NODE_BYTES);
}

/* The job's are in memory: its next commit writes them again. */
static void a_node_of_the_job_that_is_gone_is_in_its_next_commit(void **state)
{
	static struct toy toy;
	struct node_pointer pointer;

	for (unsigned node = 1; node < 4; node++) {
		make(&toy, EXTENTS, 2);
		assert_true(toy_node(&toy, node, &pointer));
		expect_both_told(&toy, &pointer, 1);
		toy.head.step = 3;
		memcpy(toy.history[3], toy.history[2], sizeof(toy.history[3]));
		assert_int_equal(toy_commit(&toy), 0);
		assert_int_equal(verify(&toy)->flaw_count, 0);
		toy_reopen(&toy);
		toy_expect_step(&toy);
		toy_expect_places(&toy);
		toy_close(&toy);
	}
}

static void what_a_snapshot_alone_has_is_read_too(void **state)
{
	static struct toy toy;
	struct node_pointer root;

	make(&toy, EXTENTS, 2);
	toy_keep(&toy, "first");
	toy_keep(&toy, "again");
	toy_make_steps(&toy, 1);
	root = toy.lineage->heads.records[1].root;
	expect_mended(&toy, &root, 0, 100);
	expect_mended(&toy, &root, 1, 100);
	expect_both_told(&toy, &root, 1 << 1 | 1 << 2);
	toy_close(&toy);
}

/* ---- Superblocks ---- */

static void every_copy_of_a_superblock_is_read(void **state)
{
	static struct toy toy;
	struct finder *finder;

	make(&toy, 3, 2);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned copy = 0; copy < 2 * SUPERBLOCK_COPIES; copy++) {
			struct sim_disk *disk = toy.disks[copy / SUPERBLOCK_COPIES];
			uint64_t offset = copy % SUPERBLOCK_COPIES * SUPERBLOCK_STRIDE;

			for (unsigned at = 0; at < SUPERBLOCK_BYTES; at += 255) {
				sim_disk_flip(disk, offset + at, 4);
				finder = verify(&toy);
				assert_int_equal(finder->flaw_count, 1);
				assert_int_equal(finder->flaws[0].part, LINEAGE_SUPERBLOCK);
				assert_int_equal(finder->flaws[0].copy, copy % SUPERBLOCK_COPIES);
				assert_int_equal(finder->flaws[0].device_offset, offset);
				assert_false(finder->flaws[0].is_mended);
				sim_disk_flip(disk, offset + at, 4);
			}
		}
		assert_int_equal(verify(&toy)->flaw_count, 0);
		toy_reopen(&toy);
	}
	toy_close(&toy);
}

/* Commits write both pairs again. */
static void a_superblock_is_good_again_after_two_commits(void **state)
{
	static struct toy toy;

	make(&toy, 3, 2);
	for (unsigned copy = 0; copy < SUPERBLOCK_COPIES; copy++) {
		sim_disk_flip(toy.disks[1], copy * SUPERBLOCK_STRIDE + 300, 1);
		assert_int_equal(verify(&toy)->flaw_count, 1);
		toy_make_steps(&toy, 2);
		assert_int_equal(verify(&toy)->flaw_count, 0);
	}
	toy_close(&toy);
}

/* ---- Extents ---- */

static bool is_kept(const struct finder *finder, unsigned extent, const struct node_extent *at,
		    uint32_t heads)
{
	unsigned times = 0;

	for (unsigned i = 0; i < finder->kept_count; i++) {
		const struct lineage_kept *kept = &finder->kept[i];

		if (kept->extent == extent && kept->at.place == at->place && kept->at.device == at->device &&
		    kept->at.checksums[0] == at->checksums[0] && kept->heads == heads)
			times++;
	}
	return times == 1;
}

static struct node_extent now(const struct toy *toy, unsigned extent)
{
	return (struct node_extent){ (uint16_t)(extent % toy->device_count),
				     toy->map[extent].place,
				     { toy->map[extent].content } };
}

static void places_that_only_snapshots_have_are_told_once(void **state)
{
	static struct toy toy;
	struct node_extent seven, hundred;
	struct finder *finder;

	make(&toy, EXTENTS, 2);
	seven = now(&toy, 7);
	hundred = now(&toy, 100);
	toy_keep(&toy, "first");
	assert_int_equal(verify(&toy)->kept_count, 0);
	assert_int_equal(toy_update(&toy, 7, 123), 0);
	toy.head.step++;
	assert_int_equal(toy_commit(&toy), 0);
	toy_keep(&toy, "second");
	finder = verify(&toy);
	assert_int_equal(finder->kept_count, 1);
	assert_true(is_kept(finder, 7, &seven, 1 << 1));
	assert_int_equal(toy_update(&toy, 100, 124), 0);
	toy.head.step++;
	assert_int_equal(toy_commit(&toy), 0);
	finder = verify(&toy);
	assert_int_equal(finder->kept_count, 2);
	assert_true(is_kept(finder, 7, &seven, 1 << 1));
	assert_true(is_kept(finder, 100, &hundred, 1 << 1 | 1 << 2));
	toy_close(&toy);
}

/* ---- Devices that fail ---- */

/* A disk that tells of writes, and does not keep them. */
struct liar {
	struct sim_observer observer;
	unsigned at, writes;
};

static void ended(struct sim_observer *observer, struct sim_disk *disk, const struct tier_io *io, int status)
{
	struct liar *liar = container_of(observer, struct liar, observer);

	if (io->direction != TIER_WRITE)
		return;
	liar->writes++;
	sim_disk_flip(disk, io->offset + liar->at, 1);
}

static void what_the_disk_does_not_keep_is_not_called_mended(void **state)
{
	static struct toy toy;
	struct liar liar = { .observer = { .ended = ended }, .at = 500 };
	struct node_pointer root;
	struct finder *finder;

	make(&toy, EXTENTS, 1);
	root = *tree_root(&toy.head.tree);
	toy_flip_node(&toy, &root, 1, 600);
	sim_disk_observe(toy.disks[0], &liar.observer);
	finder = verify(&toy);
	/* It leads to both leaves, and is told with the first. */
	assert_int_equal(liar.writes, 2);
	assert_int_equal(finder->flaw_count, 1);
	assert_false(finder->flaws[0].is_mended);
	assert_int_equal(finder->flaws[0].copy, 1);
	toy_close(&toy);
}

/* Whatever becomes of the power, a node is as readable as before. */
static void power_may_fail_while_a_node_is_mended(void **state)
{
	static struct toy toy;
	struct node_pointer pointer;

	for (uint64_t seed = 0; seed < 200; seed++) {
		static struct finder finder;
		unsigned node = (unsigned)(seed % 4);

		toy_open(&toy, EXTENTS, 2, seed);
		toy_make_steps(&toy, 2);
		assert_true(toy_node(&toy, node, &pointer));
		toy_flip_node(&toy, &pointer, seed / 4 % 2, 88);
		finder.flaw_count = 0;
		finder.verification = (struct lineage_verification){
			.leaf = node == 2, .buffer = finder.buffer, .found = note_flaw, .kept = note_kept
		};
		assert_int_equal(lineage_verify(&toy.head, &finder.verification, &toy.request), 0);
		toy_fail_power(&toy, (unsigned)seed);
		toy_expect_step(&toy);
		toy_close(&toy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bad_copy_of_a_node_is_written_again),
		cmocka_unit_test(a_node_of_the_job_that_is_gone_is_in_its_next_commit),
		cmocka_unit_test(what_a_snapshot_alone_has_is_read_too),
		cmocka_unit_test(every_copy_of_a_superblock_is_read),
		cmocka_unit_test(a_superblock_is_good_again_after_two_commits),
		cmocka_unit_test(places_that_only_snapshots_have_are_told_once),
		cmocka_unit_test(what_the_disk_does_not_keep_is_not_called_mended),
		cmocka_unit_test(power_may_fail_while_a_node_is_mended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
