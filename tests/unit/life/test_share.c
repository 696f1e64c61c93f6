/* Whom a job is shared with changes: who loses a right loses what is under way for him. What he has open,
 * tests/users/revoke.py looks at. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "daemon/model/job.h"
#include "daemon/resources/disposal.h"
#include "daemon/values/own.h"
#include "tests/unit/scene_test.h"

#define GROUP 60100

static struct actor owner, second, other;

static uint32_t send_verify(struct actor *actor)
{
	Tierd__Wire__Verify verify = TIERD__WIRE__VERIFY__INIT;

	verify.name = (char *)"play";
	verify.has_owner = true;
	verify.owner = geteuid();
	return actor_send(actor, WIRE_REQUEST(VERIFY, verify, &verify));
}

static uint32_t send_share(struct actor *actor, uint32_t sharing)
{
	Tierd__Wire__JobShare share = TIERD__WIRE__JOB_SHARE__INIT;

	share.name = (char *)"play";
	share.sharing = sharing;
	share.has_group = true;
	share.group = GROUP;
	return actor_send(actor, WIRE_REQUEST(JOB_SHARE, job_share, &share));
}

/* A job of the owner's, which the other user may use. */
static int setup(void **state)
{
	int r = scene_setup(state);

	if (r < 0)
		return r;
	actor_play(&scene, &owner);
	assert_int_equal(actor_enter(&scene, &second), 0);
	assert_int_equal(actor_enter(&scene, &other), 0);
	other.port.uid = geteuid() + 1;
	other.port.gid = GROUP;
	assert_int_equal(actor_await(&owner, send_share(&owner, SHARING_TRAIN), 0)->status, 0);
	return 0;
}

static void a_verification_ends(void **state)
{
	const struct answer *answer;
	uint32_t theirs, mine, shared;

	scene_hear_nothing_of_devices(&scene);
	theirs = send_verify(&other);
	mine = send_verify(&second);
	assert_null(actor_find(&other, theirs, 0));
	shared = send_share(&owner, SHARING_NONE);
	answer = actor_find(&other, theirs, 0);
	assert_non_null(answer);
	assert_int_equal(answer->status, -EPERM);
	assert_non_null(strstr(actor_message(&other), "has shared job play with nobody"));
	scene_hear_of_devices(&scene);
	assert_int_equal(actor_await(&owner, shared, 0)->status, 0);
	assert_int_equal(actor_await(&second, mine, 0)->status, 0);
	assert_int_equal(actor_await(&other, send_verify(&other), 0)->status, -ENOENT);
}

static void begin(struct actor *actor, const struct actor_job *job)
{
	const uint64_t elements = PLAY_ELEMENTS;

	assert_int_equal(actor_open(actor, job), 0);
	assert_int_equal(actor_define_sizes(actor, FORMAT_BF16, &elements, 1), 0);
}

/* A new job whose values come from it fails while they come, and gets none any more. The owner's own gets
 * them. */
static void a_source_ends(void **state)
{
	static const struct actor_job copy = { .name = "copy", .stage = 3, .source = "play" };
	uint32_t ready, shared;

	begin(&other, &copy);
	ready = actor_send_ready(&other, -1);
	while (queue_is_empty(&scene_job(NULL)->values->dependents))
		scene_wait(&scene);
	shared = send_share(&owner, SHARING_NONE);
	assert_int_equal(actor_await(&other, ready, 0)->status, -EPERM);
	assert_non_null(strstr(actor_message(&other), "has shared job play with nobody"));
	assert_int_equal(actor_await(&owner, shared, 0)->status, 0);
	assert_int_equal(actor_await(&other, actor_send_ready(&other, -1), 0)->status, -ENOENT);
	actor_die(&other);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	begin(&second, &copy);
	assert_int_equal(actor_ready(&second), 0);
}

static uint32_t open_reader(struct actor *actor)
{
	Tierd__Wire__ReaderOpen open = TIERD__WIRE__READER_OPEN__INIT;
	const struct answer *answer;

	open.name = (char *)"play";
	open.has_owner = true;
	open.owner = geteuid();
	answer = actor_await(actor, actor_send(actor, WIRE_REQUEST(READER_OPEN, reader_open, &open)), 0);
	assert_int_equal(answer->status, 0);
	return answer->reply->reader_open->reader;
}

/* Its client may be copying them just now. Its pages go when it has let go of them. */
static void what_was_read_stays_in_the_window(void **state)
{
	Tierd__Wire__ReaderRead read = TIERD__WIRE__READER_READ__INIT;
	uint32_t reader = open_reader(&other);
	uint16_t values[10], zeros[10] = { 0 };

	read.state = (char *)"parameter";
	read.count = ARRAY_LENGTH(values);
	assert_int_equal(actor_await(&other, actor_send_reader_read(&other, reader, &read), 0)->status, 0);
	memcpy(values, other.reader_window.base, sizeof(values));
	assert_memory_not_equal(values, zeros, sizeof(values));
	assert_int_equal(actor_await(&owner, send_share(&owner, SHARING_NONE), 0)->status, 0);
	assert_int_equal(actor_await(&other, actor_send_reader_read(&other, reader, &read), 0)->status,
			 -EPERM);
	scene_await_disposals(&scene);
	assert_memory_equal(other.reader_window.base, values, sizeof(values));
	assert_true(disposal_withheld(scene.node, other.port.uid).bytes > 0);
	actor_die(&other);
	while (disposal_withheld(scene.node, other.port.uid).bytes > 0)
		scene_wait(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENE_TEST(a_verification_ends, setup),
		SCENE_TEST(a_source_ends, setup),
		SCENE_TEST(what_was_read_stays_in_the_window, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
