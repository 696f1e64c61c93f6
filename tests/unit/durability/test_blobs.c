/* Blobs under one key that several ranks set at once: what one of them gives up is not the other's. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/size.h"
#include "daemon/durability/own.h"
#include "daemon/model/job.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

static struct actor rank;
static struct job *job;

static int setup(void **state)
{
	const struct actor_job options = { .world_size = 1, .stage = 3 };

	assert_int_equal(scene_setup(state), 0);
	assert_int_equal(actor_enter(&scene, &rank), 0);
	assert_int_equal(actor_open(&rank, &options), 0);
	job = job_find(scene.node, geteuid(), "play");
	job->options.blob_bytes = MIB;
	return 0;
}

static struct staged_blob *begin(const char *key, uint64_t size)
{
	struct staged_blob *staged;
	char message[640];

	assert_int_equal(blobs_begin(job, key, BLOB_SHARED, size, false, &staged, message, sizeof(message)),
			 0);
	memset(staged->bytes, 'x', size);
	return staged;
}

static void apply(struct staged_blob *staged)
{
	blobs_stage(job, staged, 0, job->step + 1);
	job->step = ++job->decided;
	blobs_apply(job);
}

static void what_is_given_up_leaves_what_another_rank_has_begun(void **state)
{
	struct staged_blob *kept = begin("key", 100);

	blobs_give_up(job, begin("key", 100));
	apply(kept);
	const struct blob *blob = blobs_find(job, "key", BLOB_SHARED);

	assert_non_null(blob);
	assert_true(blob->counts);
	assert_int_equal(blob->size, 100);
	assert_int_equal(job->durability->blobs.image.base[blob->offset], 'x');
}

static void what_was_begun_keeps_its_room(void **state)
{
	struct staged_blob *kept = begin("key", MIB), *other;
	char message[640];

	blobs_give_up(job, begin("key", 1));
	assert_int_equal(blobs_begin(job, "other", 0, 1, false, &other, message, sizeof(message)), -ENOSPC);
	apply(kept);
	assert_int_equal(job->durability->blobs.used, MIB);
	assert_int_equal(job->durability->blobs.room, MIB);
}

static void what_is_deleted_meanwhile_is_there_again_with_what_was_begun(void **state)
{
	struct staged_blob *deletion, *kept;
	char message[640];

	apply(begin("key", 10));
	kept = begin("key", 20);
	assert_int_equal(blobs_begin(job, "key", BLOB_SHARED, 0, true, &deletion, message, sizeof(message)),
			 0);
	apply(deletion);
	assert_false(blobs_find(job, "key", BLOB_SHARED)->counts);
	apply(kept);
	assert_int_equal(blobs_find(job, "key", BLOB_SHARED)->size, 20);
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_given_up_leaves_what_another_rank_has_begun),
		TEST(what_was_begun_keeps_its_room),
		TEST(what_is_deleted_meanwhile_is_there_again_with_what_was_begun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
