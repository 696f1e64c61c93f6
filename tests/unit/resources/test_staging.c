/* Staging buffers: disjoint, given in turn, granted later to who waits. */
#include <string.h>

#include "common/cleanup.h"
#include "daemon/resources/staging.h"
#include "tests/unit/test.h"

#define COUNT 3

static struct engine *engine;
static struct staging staging;

struct waiting {
	struct staging_wish wish;
	struct staging_buffer *got;
};

static void on_granted(struct staging_wish *wish, struct staging_buffer *buffer)
{
	container_of(wish, struct waiting, wish)->got = buffer;
}

static int open_staging(unsigned count)
{
	const struct engine_config config = { .queue_depth = 4 };

	assert_int_equal(engine_new(&config, &engine), 0);
	return staging_init(&staging, count, engine);
}

static int setup(void **state)
{
	return open_staging(COUNT);
}

static int teardown(void **state)
{
	staging_clear(&staging, engine);
	engine_free(engine);
	return 0;
}

static void buffers_do_not_overlap(void **state)
{
	struct staging_buffer *buffers[COUNT];

	for (unsigned i = 0; i < COUNT; i++) {
		buffers[i] = staging_take(&staging, &(struct staging_wish){ .granted = on_granted });
		assert_non_null(buffers[i]);
		memset(buffers[i]->data, (int)i + 1, STAGING_BYTES);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(buffers[i]->data[0], i + 1);
		assert_int_equal(buffers[i]->data[STAGING_BYTES - 1], i + 1);
		staging_give(&staging, buffers[i]);
	}
}

static void they_take_memory_only_while_somebody_uses_them(void **state)
{
	struct staging_buffer *buffer =
		staging_take(&staging, &(struct staging_wish){ .granted = on_granted });

	assert_int_equal(memory_resident(&staging.memory), 0);
	assert_int_equal(engine_pinned(engine), 0);
	staging_use(&staging, engine);
	staging_use(&staging, engine);
	buffer->data[0] = 1;
	staging_give(&staging, buffer);
	staging_leave(&staging, engine);
	assert_true(memory_resident(&staging.memory) > 0);
	staging_leave(&staging, engine);
	assert_int_equal(memory_resident(&staging.memory), 0);
	assert_int_equal(engine_pinned(engine), 0);
	/* And again. */
	staging_use(&staging, engine);
	assert_int_equal(buffer->data[0], 0);
	staging_leave(&staging, engine);
}

static void take_all(struct staging_buffer *buffers[COUNT])
{
	for (unsigned i = 0; i < COUNT; i++)
		buffers[i] = staging_take(&staging, &(struct staging_wish){ .granted = on_granted });
}

static void who_waits_is_served_in_turn(void **state)
{
	struct waiting waiting[2] = { { .wish.granted = on_granted }, { .wish.granted = on_granted } };
	struct staging_buffer *buffers[COUNT];

	take_all(buffers);
	for (unsigned i = 0; i < 2; i++)
		assert_null(staging_take(&staging, &waiting[i].wish));
	staging_give(&staging, buffers[1]);
	assert_ptr_equal(waiting[0].got, buffers[1]);
	assert_null(waiting[1].got);
	staging_give(&staging, buffers[0]);
	assert_ptr_equal(waiting[1].got, buffers[0]);
	for (unsigned i = 0; i < COUNT; i++)
		staging_give(&staging, buffers[i]);
	assert_non_null(staging_take(&staging, &waiting[0].wish));
}

static void a_wish_can_be_taken_back(void **state)
{
	struct waiting waiting = { .wish.granted = on_granted };
	struct staging_buffer *buffers[COUNT];

	take_all(buffers);
	assert_null(staging_take(&staging, &waiting.wish));
	queue_remove(&waiting.wish.link);
	for (unsigned i = 0; i < COUNT; i++)
		staging_give(&staging, buffers[i]);
	assert_null(waiting.got);
}

/* ---- Loans ---- */

#define MORE (COUNT + 2)

struct borrowing {
	struct staging_loan loan;
	bool is_recalled;
};

static void on_recalled(struct staging_loan *loan)
{
	container_of(loan, struct borrowing, loan)->is_recalled = true;
}

static struct borrowing borrowings[MORE];

static int setup_more(void **state)
{
	for (unsigned i = 0; i < MORE; i++) {
		borrowings[i] = (struct borrowing){ .loan.recalled = on_recalled };
		queue_init(&borrowings[i].loan.link);
	}
	return open_staging(MORE);
}

static void enough_are_left_for_all_others(void **state)
{
	for (unsigned i = 0; i < MORE - STAGING_LEAST; i++)
		assert_true(staging_lend(&staging, &borrowings[i].loan));
	assert_false(staging_lend(&staging, &borrowings[MORE - 1].loan));
	staging_give(&staging, staging_end_loan(&staging, &borrowings[0].loan));
	assert_true(staging_lend(&staging, &borrowings[MORE - 1].loan));
}

static void what_was_lent_last_is_recalled_first(void **state)
{
	struct waiting waiting[3] = { { .wish.granted = on_granted },
				      { .wish.granted = on_granted },
				      { .wish.granted = on_granted } };

	assert_true(staging_lend(&staging, &borrowings[0].loan));
	assert_true(staging_lend(&staging, &borrowings[1].loan));
	for (unsigned i = 0; i < STAGING_LEAST; i++)
		assert_non_null(staging_take(&staging, &waiting[0].wish));
	assert_false(borrowings[1].is_recalled);
	waiting[0].wish.is_patient = true;
	assert_null(staging_take(&staging, &waiting[0].wish));
	assert_false(borrowings[1].is_recalled);
	queue_remove(&waiting[0].wish.link);
	waiting[0].wish.is_patient = false;
	assert_null(staging_take(&staging, &waiting[0].wish));
	assert_true(borrowings[1].is_recalled);
	assert_false(borrowings[0].is_recalled);
	assert_null(staging_take(&staging, &waiting[1].wish));
	assert_true(borrowings[0].is_recalled);
	assert_null(staging_take(&staging, &waiting[2].wish));
	staging_give(&staging, staging_end_loan(&staging, &borrowings[1].loan));
	assert_non_null(waiting[0].got);
}

static void what_is_kept_is_given_as_any_other(void **state)
{
	struct staging_buffer *buffer;

	assert_true(staging_lend(&staging, &borrowings[0].loan));
	buffer = staging_end_loan(&staging, &borrowings[0].loan);
	assert_non_null(buffer);
	for (unsigned i = 0; i < MORE - 1; i++)
		assert_non_null(staging_take(&staging, &(struct staging_wish){ .granted = on_granted }));
	staging_give(&staging, buffer);
	assert_ptr_equal(staging_take(&staging, &(struct staging_wish){ .granted = on_granted }), buffer);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- Users ---- */

#define EVEN 4
#define CROWD 8

enum { ALICE = 1000, BOB = 1001 };

static struct waiting crowd[CROWD], alone;

static struct waiting wish_of(uint32_t user, unsigned share)
{
	return (struct waiting){ .wish = { .granted = on_granted,
					   .share = { .user = user, .user_share = share } } };
}

/* One user has all buffers, and as many wishes. */
static int setup_crowd(void **state)
{
	int r = open_staging(EVEN);

	for (unsigned i = 0; i < CROWD; i++)
		crowd[i] = wish_of(ALICE, 100);
	for (unsigned i = 0; i < CROWD; i++)
		assert_int_equal(staging_take(&staging, &crowd[i].wish) != NULL, i < EVEN);
	return r;
}

static unsigned count_of(uint32_t user)
{
	unsigned count = 0;

	for (unsigned i = 0; i < EVEN; i++)
		count += staging.all[i].is_taken && staging.all[i].user == user;
	return count;
}

static void give_one_of(uint32_t user)
{
	unsigned i = 0;

	while (staging.all[i].user != user)
		i++;
	staging_give(&staging, &staging.all[i]);
}

static void bob_wants_one(unsigned share)
{
	alone = wish_of(BOB, share);
	assert_null(staging_take(&staging, &alone.wish));
}

static void who_has_many_wishes_has_no_more_buffers_for_it(void **state)
{
	for (unsigned i = 0; i < EVEN / 2; i++) {
		bob_wants_one(100);
		give_one_of(ALICE);
		assert_non_null(alone.got);
	}
	bob_wants_one(100);
	for (unsigned i = EVEN; i < CROWD; i++) {
		give_one_of(ALICE);
		assert_non_null(crowd[i].got);
		assert_int_equal(count_of(BOB), EVEN / 2);
	}
	give_one_of(BOB);
	assert_non_null(alone.got);
}

static void who_has_a_larger_share_has_more_buffers(void **state)
{
	for (unsigned i = 0; i < 3; i++) {
		bob_wants_one(300);
		give_one_of(ALICE);
		assert_non_null(alone.got);
	}
	bob_wants_one(300);
	give_one_of(ALICE);
	assert_null(alone.got);
	assert_non_null(crowd[EVEN].got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(buffers_do_not_overlap),
		TEST(they_take_memory_only_while_somebody_uses_them),
		TEST(who_waits_is_served_in_turn),
		TEST(a_wish_can_be_taken_back),
		cmocka_unit_test_setup_teardown(enough_are_left_for_all_others, setup_more, teardown),
		cmocka_unit_test_setup_teardown(what_was_lent_last_is_recalled_first, setup_more, teardown),
		cmocka_unit_test_setup_teardown(what_is_kept_is_given_as_any_other, setup_more, teardown),
		cmocka_unit_test_setup_teardown(who_has_many_wishes_has_no_more_buffers_for_it, setup_crowd,
						teardown),
		cmocka_unit_test_setup_teardown(who_has_a_larger_share_has_more_buffers, setup_crowd,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
