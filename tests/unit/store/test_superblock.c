#include <errno.h>
#include <string.h>

#include <xxhash.h>

#include "common/cleanup.h"
#include "common/little_endian.h"
#include "offload/store/store.h"
#include "offload/store/superblock.h"
#include "tests/unit/test.h"

#define RECORDS (SUPERBLOCK_BYTES / SUPERBLOCK_RECORD_BYTES)

static struct superblock make(uint64_t generation)
{
	struct superblock superblock = {
		.store = "identity of 16 b",
		.generation = generation,
		.epoch = 3,
		.step = 77,
		.root = { { 5, UINT64_MAX }, 0x0123456789ABCDEF },
		.previous = { { 6, 7 }, 8 },
		.format = 1,
		.place_bytes = STORE_EXTENT_BYTES,
		.member = 1,
		.member_count = 3,
	};

	for (unsigned i = 0; i < superblock.member_count; i++)
		superblock.members[i] = (struct superblock_member){ 100 + i, 1000 * i, 10 * i,
								    i ? MEMBER_PRESENT : MEMBER_MISSING };
	return superblock;
}

static int decode(const uint8_t *bytes, unsigned copy, struct superblock *ret_superblock)
{
	uint32_t format = 0;
	int r = superblock_decode(bytes, copy, ret_superblock, &format);

	assert_true((r == -EPROTONOSUPPORT) == (format != 0));
	return r;
}

/* A member has padding. */
static void expect_same(const struct superblock *found, const struct superblock *expected)
{
	assert_memory_equal(found, expected, offsetof(struct superblock, members));
	for (unsigned i = 0; i < SUPERBLOCK_MAX_MEMBERS; i++) {
		assert_int_equal(found->members[i].identity, expected->members[i].identity);
		assert_int_equal(found->members[i].extents, expected->members[i].extents);
		assert_int_equal(found->members[i].nodes, expected->members[i].nodes);
		assert_int_equal(found->members[i].state, expected->members[i].state);
	}
}

static void expect_generation(const uint8_t *bytes, uint64_t generation)
{
	struct superblock expected = make(generation), found;

	assert_int_equal(decode(bytes, 2, &found), 0);
	expect_same(&found, &expected);
}

/* As somebody would who knows the format, and means harm. */
static void repair(uint8_t *bytes, unsigned copy)
{
	for (unsigned at = 0; at < SUPERBLOCK_BYTES; at += SUPERBLOCK_RECORD_BYTES)
		put64(bytes + at + 504, XXH3_64bits_withSeed(bytes + at, 504, copy + 1));
}

static void what_is_written_is_read(void **state)
{
	struct superblock superblock = make(42), found;
	uint8_t bytes[SUPERBLOCK_BYTES];

	superblock_encode(&superblock, 2, bytes);
	expect_generation(bytes, 42);
	superblock.member_count = SUPERBLOCK_MAX_MEMBERS;
	for (unsigned i = 0; i < SUPERBLOCK_MAX_MEMBERS; i++)
		superblock.members[i] = (struct superblock_member){ i, UINT32_MAX, 5, MEMBER_PRESENT };
	superblock_encode(&superblock, 0, bytes);
	assert_int_equal(decode(bytes, 0, &found), 0);
	expect_same(&found, &superblock);
}

static void its_bytes_are_those_of_the_format(void **state)
{
	struct superblock superblock = make(42);
	uint8_t bytes[SUPERBLOCK_BYTES];

	superblock_encode(&superblock, 2, bytes);
	assert_memory_equal(bytes, "tierd-sb\1\0\0\0\1\0\3\0identity of 16 b\x2A\0\0\0", 36);
	assert_int_equal(get64(bytes + 40), 3);
	assert_int_equal(get64(bytes + 48), 77);
	assert_int_equal(get64(bytes + 72), 0x0123456789ABCDEF);
	assert_int_equal(get64(bytes + 96), 8);
	assert_int_equal(get64(bytes + 128), 101);
	assert_int_equal(get32(bytes + 136), 1000);
	assert_int_equal(get32(bytes + 140), 10);
	assert_int_equal(get32(bytes + 144), MEMBER_PRESENT);
	assert_int_equal(get64(bytes + 504), XXH3_64bits_withSeed(bytes, 504, 3));
	for (unsigned i = 1; i < RECORDS; i++)
		assert_memory_equal(bytes + i * SUPERBLOCK_RECORD_BYTES, bytes, SUPERBLOCK_RECORD_BYTES);
}

/* Only who has larger places needs the second format. */
static void places_that_are_larger_are_in_its_second_format(void **state)
{
	struct superblock superblock = make(42), found;
	uint8_t bytes[SUPERBLOCK_BYTES];

	assert_int_equal(superblock_format(STORE_EXTENT_BYTES), 1);
	superblock_encode(&superblock, 2, bytes);
	assert_int_equal(get64(bytes + 488), 0);
	assert_int_equal(superblock_format(STORE_EXTENT_BYTES + 16384), 2);
	superblock.format = 2;
	superblock.place_bytes = STORE_EXTENT_BYTES + 16384;
	superblock_encode(&superblock, 2, bytes);
	assert_int_equal(get32(bytes + 8), 2);
	assert_int_equal(get64(bytes + 488), (1 << 20) + 16384);
	assert_int_equal(get64(bytes + 496), 0);
	assert_int_equal(decode(bytes, 2, &found), 0);
	expect_same(&found, &superblock);
}

/* Sectors are written whole, in any order, and some not at all. */
static void a_torn_write_is_the_old_copy_or_the_new_one(void **state)
{
	struct superblock before = make(7), after = make(9);
	uint8_t old[SUPERBLOCK_BYTES], new[SUPERBLOCK_BYTES], torn[SUPERBLOCK_BYTES];

	superblock_encode(&before, 2, old);
	superblock_encode(&after, 2, new);
	for (unsigned written = 0; written < 1U << RECORDS; written++) {
		for (unsigned i = 0; i < RECORDS; i++)
			memcpy(torn + i * SUPERBLOCK_RECORD_BYTES,
			       (written & 1U << i ? new : old) + i * SUPERBLOCK_RECORD_BYTES,
			       SUPERBLOCK_RECORD_BYTES);
		expect_generation(torn, written ? 9 : 7);
	}
}

static void one_whole_record_is_enough(void **state)
{
	struct superblock superblock = make(42), found;
	uint8_t bytes[SUPERBLOCK_BYTES];

	for (unsigned whole = 0; whole < RECORDS; whole++) {
		superblock_encode(&superblock, 2, bytes);
		for (unsigned i = 0; i < RECORDS; i++)
			if (i != whole)
				memset(bytes + i * SUPERBLOCK_RECORD_BYTES, 0xFF, SUPERBLOCK_RECORD_BYTES);
		expect_generation(bytes, 42);
		memset(bytes + whole * SUPERBLOCK_RECORD_BYTES, 0, SUPERBLOCK_RECORD_BYTES);
		assert_int_equal(decode(bytes, 2, &found), -ENODATA);
	}
}

static void no_flipped_bit_is_believed(void **state)
{
	struct superblock superblock = make(42), found;
	uint8_t bytes[SUPERBLOCK_BYTES];

	for (unsigned bit = 0; bit < SUPERBLOCK_RECORD_BYTES * 8; bit++) {
		superblock_encode(&superblock, 2, bytes);
		for (unsigned i = 0; i < RECORDS; i++)
			bytes[i * SUPERBLOCK_RECORD_BYTES + bit / 8] ^= (uint8_t)(1U << bit % 8);
		assert_int_equal(decode(bytes, 2, &found), -ENODATA);
	}
}

static void a_copy_of_another_place_is_none(void **state)
{
	struct superblock superblock = make(42), found;
	uint8_t bytes[SUPERBLOCK_BYTES];

	superblock_encode(&superblock, 2, bytes);
	for (unsigned copy = 0; copy < SUPERBLOCK_COPIES; copy++)
		assert_int_equal(decode(bytes, copy, &found), copy == 2 ? 0 : -ENODATA);
}

static void another_format_is_refused_by_its_number(void **state)
{
	struct superblock superblock = make(42), found;
	uint8_t bytes[SUPERBLOCK_BYTES];
	static const uint32_t others[] = { 0, 3, 900 };

	for (size_t other = 0; other < ARRAY_LENGTH(others); other++) {
		uint32_t format = UINT32_MAX;

		superblock_encode(&superblock, 2, bytes);
		for (unsigned i = 0; i < RECORDS; i++)
			put32(bytes + i * SUPERBLOCK_RECORD_BYTES + 8, others[other]);
		repair(bytes, 2);
		assert_int_equal(superblock_decode(bytes, 2, &found, &format), -EPROTONOSUPPORT);
		assert_int_equal(format, others[other]);
	}
}

static void what_cannot_be_is_refused(void **state)
{
	static const struct {
		unsigned at;
		uint16_t value;
	} cases[] = {
		{ 12, 3 }, { 12, 0xFFFF }, { 14, 0 }, { 14, 17 }, { 14, 0xFFFF }, { 120, 0 }, { 144, 3 }
	};
	struct superblock superblock = make(42), found;
	uint8_t bytes[SUPERBLOCK_BYTES];

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		superblock_encode(&superblock, 2, bytes);
		for (unsigned record = 0; record < RECORDS; record++)
			put16(bytes + record * SUPERBLOCK_RECORD_BYTES + cases[i].at, cases[i].value);
		repair(bytes, 2);
		assert_int_equal(decode(bytes, 2, &found), -EBADMSG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(its_bytes_are_those_of_the_format),
		cmocka_unit_test(places_that_are_larger_are_in_its_second_format),
		cmocka_unit_test(a_torn_write_is_the_old_copy_or_the_new_one),
		cmocka_unit_test(one_whole_record_is_enough),
		cmocka_unit_test(no_flipped_bit_is_believed),
		cmocka_unit_test(a_copy_of_another_place_is_none),
		cmocka_unit_test(another_format_is_refused_by_its_number),
		cmocka_unit_test(what_cannot_be_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
