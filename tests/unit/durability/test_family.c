/* Jobs of one store in a daemon: what befalls the store befalls all of them, and what befalls one of them
 * does not. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/durability/own.h"
#include "daemon/durability/family.h"
#include "daemon/durability/listing_inside.h"
#include "daemon/recovery/restore.h"
#include "daemon/resources/own.h"
#include "offload/store/extent_store.h"
#include "offload/store/lineage_backend.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

static struct actor rank, client;
static const char *const names[] = { "play", "a", "b", "c" };
#define AT_FIRST 3 /* of them are made */

static struct job *find(const char *name)
{
	return job_find(scene.node, geteuid(), name);
}

static uint32_t send_fork(const char *name)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobFork body = TIERD__WIRE__JOB_FORK__INIT;

	body.name = (char *)"play";
	body.fork = (char *)name;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_FORK;
	request.job_fork = &body;
	return actor_send(&client, &request);
}

static int fork_to(const char *name)
{
	return actor_await(&client, send_fork(name), 0)->status;
}

static uint32_t send_drop(const char *name)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobDrop body = TIERD__WIRE__JOB_DROP__INIT;

	body.name = (char *)name;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_DROP;
	request.job_drop = &body;
	return actor_send(&client, &request);
}

static int drop(const char *name)
{
	int r = actor_await(&client, send_drop(name), 0)->status;

	scene_settle(&scene);
	return r;
}

static int open_as_rank(const char *name)
{
	return actor_open(&rank,
			  &(struct actor_job){ .name = name, .stage = 3, .host_budget = PLAY_HOST_BUDGET });
}

static void leave(void)
{
	actor_die(&rank);
	scene_settle(&scene);
	assert_int_equal(actor_enter(&scene, &rank), 0);
}

/* A rank that takes a step, and stays. */
static int step(const char *name)
{
	int r = open_as_rank(name);

	if (r == 0)
		r = actor_define_units(&rank, PLAY_UNITS, PLAY_ELEMENTS);
	if (r == 0)
		r = actor_ready(&rank);
	return r < 0 ? r : actor_await(&rank, actor_send_step(&rank, 0.1f), 0)->status;
}

static void open_one(void)
{
	actor_play(&scene, &rank);
	assert_int_equal(actor_enter(&scene, &client), 0);
	leave();
}

static void open_family(void)
{
	open_one();
	for (unsigned i = 1; i < AT_FIRST; i++)
		assert_int_equal(fork_to(names[i]), 0);
	scene_settle(&scene);
}

/* Another daemon finds what this one leaves. */
static void restart(void)
{
	actor_die(&client);
	actor_die(&rank);
	assert_int_equal(scene_restart(&(struct scene_options){ .capacity = GIB }, &scene), 0);
	assert_int_equal(actor_enter(&scene, &client), 0);
	assert_int_equal(actor_enter(&scene, &rank), 0);
}

/* All of them let go of the files, which fail as this says from then on. */
static void open_files_again(const char *fault)
{
	scene.node->fault = fault;
	for (unsigned i = 0; i < ARRAY_LENGTH(names); i++)
		if (find(names[i]))
			life_step(find(names[i]), LIFE_REOPEN);
	scene_settle(&scene);
	scene.node->fault = NULL;
}

/* It is looked for when this returns. */
static void reopen(const char *name)
{
	life_step(find(name), LIFE_REOPEN);
	while (!queue_is_empty(&scene.node->jobs.dying))
		event_base_loop(scene.loop, EVLOOP_ONCE);
}

static uint64_t charged(void)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < ARRAY_LENGTH(names); i++)
		bytes += find(names[i]) ? budget_nvme_bytes(find(names[i])) : 0;
	return bytes;
}

/* Each is there, and what the files have is charged once. */
static void expect_all(unsigned count)
{
	struct store_family family;
	const struct job *first = NULL;

	for (unsigned i = 0; i < ARRAY_LENGTH(names); i++) {
		const struct job *job = find(names[i]);

		if (!job)
			continue;
		first = job;
		assert_false(job_is_lost(job));
		assert_int_not_equal(job->state, JOB_BROKEN);
	}
	assert_non_null(first);
	store_get_family(job_nvme_store(first), &family);
	assert_int_equal(family.jobs, count);
	assert_int_equal(family.others, count - 1);
	assert_int_equal(charged(), family.device_bytes);
	assert_int_equal(scene.node->paths[0].used, family.device_bytes);
}

/* ---- What one of them does ---- */

static void one_begins_again_while_the_others_stay(void **state)
{
	struct store *others[2];

	open_family();
	others[0] = job_nvme_store(find("play"));
	others[1] = job_nvme_store(find("b"));
	life_step(find("a"), LIFE_REOPEN);
	scene_settle(&scene);
	assert_ptr_equal(job_nvme_store(find("play")), others[0]);
	assert_ptr_equal(job_nvme_store(find("b")), others[1]);
	expect_all(3);
	/* The one that has opened them, too. */
	life_step(find("play"), LIFE_REOPEN);
	scene_settle(&scene);
	expect_all(3);
	assert_int_equal(step("play"), 0);
	leave();
	assert_int_equal(find("play")->step, 1);
	assert_int_equal(find("a")->step, 0);
}

static void they_leave_one_after_the_other(void **state)
{
	open_family();
	for (unsigned left = 3; left > 1; left--) {
		expect_all(left);
		assert_int_equal(drop(names[3 - left]), 0);
	}
	expect_all(1);
	open_files_again(NULL);
	expect_all(1);
	assert_int_equal(drop("b"), 0);
	assert_int_equal(scene.node->paths[0].used, 0);
	scene_await_disposals(&scene);
	restart();
	assert_true(queue_is_empty(&scene.node->jobs.live));
}

/* The second is told that it is the only one while the first has its store still. */
static void the_files_go_with_two_that_leave_at_once(void **state)
{
	open_family();
	for (unsigned i = 0; i < AT_FIRST; i++)
		send_drop(names[i]);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	restart();
	assert_true(queue_is_empty(&scene.node->jobs.live));
}

/* There was no room for it in memory: its files stay, whoever else leaves them. */
static void a_fork_that_is_not_back_keeps_the_files(void **state)
{
	uint64_t budget = scene.node->settings.host_budget;

	open_one();
	/* Less than there is when the idle one has given its memory up, too. */
	scene.node->settings.host_budget = 100;
	assert_int_equal(fork_to("a"), -EIO);
	assert_non_null(strstr(actor_message(&client), "job a was made, and cannot be opened: "));
	assert_true(job_is_lost(find("a")));
	assert_int_equal(drop("play"), 0);
	scene_await_disposals(&scene);
	scene.node->settings.host_budget = budget;
	job_settle_all(scene.node);
	scene_settle(&scene);
	expect_all(1);
	assert_int_equal(step("a"), 0);
}

/* One that ends lets those go on that were read after it had begun. */
static void what_is_read_waits_for_nobody_who_has_gone(void **state)
{
	struct job_file file;

	open_family();
	job_file_get(find("b"), &file);
	life_step(find("b"), LIFE_CLOSE);
	scene_settle(&scene);
	/* It is to end, and in front of what begins again from the same files. */
	for (unsigned i = 0; i < 2; i++)
		life_step(find(names[i]), LIFE_REOPEN);
	restore_and_end(scene.node, &file);
	scene_settle(&scene);
	assert_null(find("b"));
	assert_int_equal(find("a")->state, JOB_RELEASED);
	expect_all(2);
}

/* Whatever has broken it, it is not the store. */
static void one_that_breaks_leaves_the_others_alone(void **state)
{
	open_family();
	assert_int_equal(step("b"), 0);
	job_break(find("a"), NULL, "it was too much for it");
	assert_int_not_equal(find("b")->state, JOB_BROKEN);
	assert_int_not_equal(find("play")->state, JOB_BROKEN);
	job_settle(find("a"));
	scene_settle(&scene);
	expect_all(3);
	assert_int_equal(actor_await(&rank, actor_send_step(&rank, 0.1f), 0)->status, 0);
}

/* ---- What a fork has before it is there ---- */

static uint64_t room_for_fork(void)
{
	const struct job *job = find("play");
	struct store_family family;

	store_get_family(job_nvme_store(job), &family);
	return store_space_for_fork(job_nvme_store(job), 0).device_bytes - family.device_bytes;
}

static void a_fork_for_which_a_path_has_no_room_is_refused(void **state)
{
	struct node_path *path = &scene.node->paths[0];
	uint64_t used, capacity = path->capacity;

	open_family();
	used = path->used;
	path->capacity = used + room_for_fork() - 1;
	assert_int_equal(fork_to("c"), -ENOSPC);
	assert_non_null(strstr(actor_message(&client), "what a fork may change, twice"));
	assert_int_equal(path->used, used);
	expect_all(3);
	path->capacity++;
	assert_int_equal(fork_to("c"), 0);
	scene_settle(&scene);
	assert_int_equal(path->used, path->capacity);
	path->capacity = capacity;
	expect_all(4);
}

/* The path has room, by its account, and the disk has none. */
static void a_fork_whose_files_cannot_grow_gives_its_room_back(void **state)
{
	struct rlimit limit, former;
	struct store_family family;

	open_family();
	store_get_family(job_nvme_store(find("play")), &family);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &former), 0);
	signal(SIGXFSZ, SIG_IGN);
	limit = (struct rlimit){ .rlim_cur = family.device_bytes, .rlim_max = former.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(fork_to("c"), -EIO);
	assert_non_null(strstr(actor_message(&client), strerror(EFBIG)));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &former), 0);
	scene_settle(&scene);
	expect_all(3);
	assert_int_equal(fork_to("c"), 0);
	scene_settle(&scene);
	expect_all(4);
}

/* What the others have is counted anew meanwhile, because one of them begins again. */
static void a_fork_that_makes_files_grow_keeps_its_room(void **state)
{
	struct node_path *path = &scene.node->paths[0];
	struct blockade blockade;
	uint64_t more, used;
	uint32_t number;

	open_family();
	more = room_for_fork();
	used = path->used;
	blockade_begin(&scene, scene.node->workers, &blockade);
	number = send_fork("c");
	while (find("play")->resources->lent_path_bytes == 0)
		event_base_loop(scene.loop, EVLOOP_ONCE);
	assert_int_equal(find("play")->resources->lent_path_bytes, more);
	assert_int_equal(path->used, used + more);
	used -= budget_nvme_bytes(find("b"));
	reopen("b");
	assert_int_equal(path->used, used + more);
	blockade_end(&blockade);
	assert_int_equal(actor_await(&client, number, 0)->status, 0);
	scene_settle(&scene);
	assert_int_equal(find("play")->resources->lent_path_bytes, 0);
	expect_all(4);
}

/* ---- What befalls their store ---- */

/* The nth flush after the opening fails. */
static void a_device_that_fails_breaks_all_of_them_until_their_ranks_have_left(void **state)
{
	struct actor other = { 0 };

	open_family();
	open_files_again("complete:flush:3:EIO");
	assert_int_equal(actor_enter(&scene, &other), 0);
	assert_int_equal(
		actor_open(&other,
			   &(struct actor_job){ .name = "b", .stage = 3, .host_budget = PLAY_HOST_BUDGET }),
		0);
	(void)step("a");
	while (!job_is_broken(find("a")))
		event_base_loop(scene.loop, EVLOOP_ONCE);
	assert_int_equal(find("b")->state, JOB_BROKEN);
	assert_non_null(strstr(find("b")->epoch.reason, "job a, which is in the same store, is broken"));
	actor_die(&rank);
	while (!restore_is_under_way(scene.node, geteuid(), "a"))
		event_base_loop(scene.loop, EVLOOP_ONCE);
	/* Its rank is there still, so nobody opens the files. */
	assert_int_equal(find("b")->state, JOB_BROKEN);
	actor_die(&other);
	scene_settle(&scene);
	expect_all(3);
	assert_int_equal(actor_enter(&scene, &rank), 0);
	assert_int_equal(step("a"), 0);
}

/* Whatever of it fails: there is a fork then, or there is none, and nothing is charged twice. */
static void a_fork_is_there_or_not(void **state)
{
	unsigned made = 0, failed = 0;

	open_one();
	for (unsigned nth = 3; made < 2; nth++) {
		char fault[64];
		int r;

		snprintf(fault, sizeof(fault), "complete:%s:%u:EIO:lasting", nth % 2 ? "flush" : "write",
			 nth);
		open_files_again(fault);
		if (job_is_lost(find("play")))
			open_files_again(NULL);
		r = fork_to("a");
		scene_settle(&scene);
		made += r == 0;
		failed += r < 0;
		open_files_again(NULL);
		/* One that was in doubt is there, without anybody having been told so. */
		expect_all(find("a") ? 2 : 1);
		assert_true(r < 0 || find("a"));
		if (find("a"))
			assert_int_equal(drop("a"), 0);
		expect_all(1);
	}
	assert_true(failed > 2);
}

/* ---- What cannot be read ---- */

/* Both copies of the root of its map. */
static void flip_map(const char *name)
{
	const struct job *job = find(name);
	const struct extent_store *store =
		container_of(job_nvme_store(job), const struct extent_store, store);
	const struct head_record *record = head_table_number(&store->lineage->heads, store->head.job);
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/tierd/%s", scene.folder, job->location.file);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	for (unsigned copy = 0; copy < 2; copy++) {
		uint64_t offset;
		unsigned device;
		char byte;

		node_area_locate(store->lineage->nodes, record->root.places[copy], &device, &offset);
		assert_int_equal(pread(fd, &byte, 1, (off_t)offset + 100), 1);
		byte ^= 1;
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset + 100), 1);
	}
	close(fd);
}

static void a_fork_that_is_lost_is_given_up_and_the_others_go_on(void **state)
{
	open_family();
	assert_int_equal(step("a"), 0);
	leave();
	flip_map("a");
	open_files_again(NULL);
	assert_true(job_is_lost(find("a")));
	assert_non_null(strstr(find("a")->epoch.reason, "the map of job a cannot be read"));
	assert_false(job_is_lost(find("play")));
	assert_int_equal(open_as_rank("play"), -EIO);
	assert_non_null(strstr(actor_message(&rank), "tierctl drop a"));
	assert_int_equal(drop("b"), -EIO);
	assert_non_null(strstr(actor_message(&client), "tierctl drop a"));
	assert_int_equal(fork_to("c"), -EIO);
	assert_int_equal(drop("a"), 0);
	assert_null(find("a"));
	expect_all(2);
	assert_int_equal(step("b"), 0);
	leave();
	open_files_again(NULL);
	expect_all(2);
	assert_int_equal(find("b")->step, 1);
}

/* The files are called after it, and are the others' as well. */
static void the_first_one_that_is_lost_is_given_up_and_the_others_go_on(void **state)
{
	open_family();
	assert_int_equal(step("a"), 0);
	leave();
	assert_int_equal(step("b"), 0);
	leave();
	flip_map("play");
	open_files_again(NULL);
	assert_true(job_is_lost(find("play")));
	assert_non_null(strstr(find("play")->epoch.reason, "the map of job play cannot be read"));
	assert_false(job_is_lost(find("a")));
	assert_false(job_is_lost(find("b")));
	assert_int_equal(find("a")->step, 1);
	assert_int_equal(open_as_rank("b"), -EIO);
	assert_non_null(strstr(actor_message(&rank), "tierctl drop play"));
	/* So it is after a start, too. */
	restart();
	assert_true(job_is_lost(find("play")));
	assert_int_equal(find("b")->step, 1);
	assert_int_equal(drop("play"), 0);
	assert_null(find("play"));
	expect_all(2);
	assert_int_equal(step("b"), 0);
	leave();
	assert_int_equal(find("b")->step, 2);
	open_files_again(NULL);
	expect_all(2);
}

/* Nothing is left then that could be opened; which jobs there were says the list. */
static void files_of_which_no_map_can_be_read_are_lost_jobs(void **state)
{
	open_one();
	assert_int_equal(fork_to("a"), 0);
	scene_settle(&scene);
	assert_int_equal(step("a"), 0);
	leave();
	flip_map("play");
	flip_map("a");
	restart();
	assert_true(job_is_lost(find("play")));
	assert_non_null(strstr(find("play")->epoch.reason, "the map of fork a cannot be read"));
	assert_true(job_is_lost(find("a")));
	assert_int_equal(drop("play"), -EBUSY);
}

/* There may be more in them than the one job that they are named after. */
static void files_that_cannot_be_read_are_nobodys_to_remove(void **state)
{
	char path[512];

	open_family();
	snprintf(path, sizeof(path), "%s/tierd/%s", scene.folder, find("play")->location.file);
	actor_die(&client);
	actor_die(&rank);
	assert_int_equal(truncate(path, MIB), 0);
	assert_int_equal(scene_restart(&(struct scene_options){ .capacity = GIB }, &scene), 0);
	assert_int_equal(actor_enter(&scene, &client), 0);
	assert_true(job_is_lost(find("play")));
	assert_true(job_is_lost(find("a")) && job_is_lost(find("b")));
	/* Numbers that its table has are nobody else's. */
	assert_true(scene.node->jobs.created > UINT32_MAX);
	assert_int_equal(drop("play"), -EBUSY);
	assert_non_null(strstr(actor_message(&client), "may have forks"));
	scene_settle(&scene);
	assert_int_equal(access(path, F_OK), 0);
}

static unsigned count_jobs(const char *name)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &scene.node->jobs.live)
		count += strcmp(queue_entry(link, struct job, link)->name, name) == 0;
	return count;
}

/* Or it would come back, if its removal has failed. */
static void what_was_given_up_is_on_the_list_as_long_as_a_file_is_left(void **state)
{
	int folder = scene.node->paths[0].directory_fd;
	struct job_list_store *listed;
	char file[JOB_FILE_BYTES];

	open_family();
	memcpy(file, find("play")->location.file, sizeof(file));
	listed = job_list_find(&scene.node->durability->listing->list, file);
	for (unsigned i = 0; i < listed->job_count; i++)
		listed->jobs[i].is_given_up = true;
	listing_settle(scene.node);
	assert_true(listing_is_given_up(scene.node, file, "play"));
	assert_int_equal(unlinkat(folder, file, 0), 0);
	listing_settle(scene.node);
	assert_null(job_list_find(&scene.node->durability->listing->list, file));
}

/* The second one's file is back when the first one has been looked for in vain. */
static void two_that_are_lost_are_tried_again_at_once(void **state)
{
	struct blockade blockade = { 0 };
	char file[JOB_FILE_BYTES];
	int folder = scene.node->paths[0].directory_fd;

	open_family();
	memcpy(file, find("play")->location.file, sizeof(file));
	assert_int_equal(renameat(folder, file, folder, "away"), 0);
	open_files_again(NULL);
	assert_true(job_is_lost(find("a")) && job_is_lost(find("b")));
	life_step(find("a"), LIFE_REOPEN);
	reopen("b");
	blockade_begin(&scene, scene.node->slow_workers, &blockade);
	assert_int_equal(renameat(folder, "away", folder, file), 0);
	blockade_end(&blockade);
	scene_settle(&scene);
	assert_true(job_is_lost(find("a")));
	assert_false(job_is_lost(find("b")));
	for (unsigned i = 0; i < AT_FIRST; i++)
		assert_int_equal(count_jobs(names[i]), 1);
}

/* As a daemon leaves it that dies when a fork has ended in its store, and not on the list of jobs. */
static void what_is_on_the_list_and_not_in_the_store_is_off_the_list(void **state)
{
	struct job_list_store listed;
	char file[JOB_FILE_BYTES];

	open_family();
	memcpy(file, find("play")->location.file, sizeof(file));
	assert_int_equal(
		job_list_add_job(job_list_find(&scene.node->durability->listing->list, file), "ended", 99),
		0);
	scene.node->durability->listing->is_behind = true;
	restart();
	assert_true(listing_copy(scene.node, file, &listed));
	assert_int_equal(listed.job_count, 3);
	assert_null(job_list_find_job(&listed, "ended"));
	expect_all(3);
}

static int setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ .capacity = GIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_begins_again_while_the_others_stay),
		TEST(they_leave_one_after_the_other),
		TEST(the_files_go_with_two_that_leave_at_once),
		TEST(a_fork_that_is_not_back_keeps_the_files),
		TEST(what_is_read_waits_for_nobody_who_has_gone),
		TEST(one_that_breaks_leaves_the_others_alone),
		TEST(a_fork_for_which_a_path_has_no_room_is_refused),
		TEST(a_fork_whose_files_cannot_grow_gives_its_room_back),
		TEST(a_fork_that_makes_files_grow_keeps_its_room),
		TEST(a_device_that_fails_breaks_all_of_them_until_their_ranks_have_left),
		TEST(a_fork_is_there_or_not),
		TEST(a_fork_that_is_lost_is_given_up_and_the_others_go_on),
		TEST(the_first_one_that_is_lost_is_given_up_and_the_others_go_on),
		TEST(files_of_which_no_map_can_be_read_are_lost_jobs),
		TEST(files_that_cannot_be_read_are_nobodys_to_remove),
		TEST(what_was_given_up_is_on_the_list_as_long_as_a_file_is_left),
		TEST(two_that_are_lost_are_tried_again_at_once),
		TEST(what_is_on_the_list_and_not_in_the_store_is_off_the_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
