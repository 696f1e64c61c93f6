/* Files of jobs on the paths: which make a job, in what order they are told, and what is said of the others.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "daemon/durability/devices.h"
#include "daemon/model/job.h"
#include "daemon/durability/job_file.h"
#include "offload/device/nvme.h"
#include "tests/unit/daemon_support.h"
#include "tests/unit/test.h"

#define PATHS 3

static char root[256];
static struct node node;
static char told[1024], lines[8192];
static unsigned line_count;

/* ---- A tree ---- */

static int make_paths(void **state)
{
	node = (struct node){ .path_count = 1 };
	snprintf(root, sizeof(root), "%s/tierd-stored-XXXXXX", getenv("TMPDIR") ?: "/var/tmp");
	if (!mkdtemp(root))
		return -1;
	for (unsigned i = 0; i < PATHS; i++) {
		struct node_path *path = &node.paths[i];

		if (asprintf(&path->folder, "%s/p%u", root, i) < 0 || mkdir(path->folder, 0700) < 0)
			return -1;
		path->directory_fd = open(path->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (path->directory_fd < 0)
			return -1;
	}
	told[0] = lines[0] = '\0';
	line_count = 0;
	return 0;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	return remove(path);
}

static int remove_paths(void **state)
{
	for (unsigned i = 0; i < PATHS; i++) {
		fd_close(node.paths[i].directory_fd);
		free(node.paths[i].folder);
	}
	return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void make_folder(unsigned path, const char *name)
{
	assert_true(mkdirat(node.paths[path].directory_fd, name, 0700) == 0 || errno == EEXIST);
}

static void make_file(unsigned path, const char *folder, const char *name)
{
	char file[300];
	int fd;

	make_folder(path, folder);
	snprintf(file, sizeof(file), "%s/%s", folder, name);
	fd = openat(node.paths[path].directory_fd, file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static bool is_there(unsigned path, const char *file)
{
	return faccessat(node.paths[path].directory_fd, file, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- What is found ---- */

static bool take_line(enum log_level level, const char *line, const struct log_fields *fields)
{
	size_t used = strlen(lines);

	assert_int_equal(level, LOG_LEVEL_WARNING);
	snprintf(lines + used, sizeof(lines) - used, "%s\n", line);
	line_count++;
	return true;
}

static int tell(struct node *where, const struct job_file *job, void *argument)
{
	size_t used = strlen(told);

	assert_ptr_equal(where, argument);
	snprintf(told + used, sizeof(told) - used, "%u %s %llu %s%s\n", (unsigned)job->uid, job->name,
		 (unsigned long long)job->number, job->file, job->is_unfinished ? " unfinished" : "");
	return 0;
}

static int refuse_second(struct node *where, const struct job_file *job, void *argument)
{
	return job->number == 2 ? -EIO : tell(where, job, argument);
}

/* count: of lines that are logged. */
static void expect_found(unsigned count, const char *jobs)
{
	log_divert(take_line);
	assert_int_equal(job_files_find(&node, tell, &node), 0);
	log_divert(NULL);
	assert_string_equal(told, jobs);
	assert_int_equal(line_count, count);
}

static void expect_line(const char *text)
{
	if (!strstr(lines, text))
		fail_msg("\"%s\" does not say \"%s\"", lines, text);
}

/* ---- Tests ---- */

static void jobs_of_all_users_are_found_the_oldest_first(void **state)
{
	make_file(0, "1000", "gpt-30.store");
	make_file(0, "0", "a-b-2.store");
	make_file(0, "4294967294", "x.y_z-7.store");
	make_file(0, "1000", "0-100.store");
	make_file(0, "1000", "gpt-x-4.store");
	make_file(0, "1000", "gpt-9.store");
	make_folder(0, "77");
	expect_found(0, "0 a-b 2 0/a-b-2.store\n1000 gpt-x 4 1000/gpt-x-4.store\n"
			"4294967294 x.y_z 7 4294967294/x.y_z-7.store\n1000 gpt 9 1000/gpt-9.store\n"
			"1000 gpt 30 1000/gpt-30.store\n1000 0 100 1000/0-100.store\n");
	assert_int_equal(node.jobs.created, 100);
}

static void nothing_is_found_where_nothing_is(void **state)
{
	node.jobs.created = 5;
	expect_found(0, "");
	assert_int_equal(node.jobs.created, 5);
}

static void a_job_is_one_on_all_paths(void **state)
{
	node.path_count = PATHS;
	for (unsigned i = 0; i < PATHS; i++) {
		make_file(PATHS - 1 - i, "1000", "gpt-1.store");
		make_file(i, "1001", "gpt-1.store");
	}
	expect_found(0, "1000 gpt 1 1000/gpt-1.store\n1001 gpt 1 1001/gpt-1.store\n");
}

static void make_unfinished(unsigned path, const char *name)
{
	char file[300];

	make_file(path, "1000", name);
	snprintf(file, sizeof(file), "1000/%s", name);
	assert_int_equal(fchmodat(node.paths[path].directory_fd, file, NVME_UNFINISHED_MODE, 0), 0);
}

/* A daemon may have died before it had made all of them. */
static void files_that_were_never_finished_are_told_so(void **state)
{
	const struct job_file job = { .uid = 1000, .name = "new", .number = 2, .file = "1000/new-2.store" };
	const struct path_list all = { 2, { 0, 1 } };

	node.path_count = 2;
	make_unfinished(0, "part-9.store");
	make_file(0, "1000", "half-3.store");
	make_unfinished(1, "half-3.store");
	make_unfinished(0, "new-2.store");
	make_unfinished(1, "new-2.store");
	assert_int_equal(job_file_finish(&node, &all, &job), 0);
	expect_found(0, "1000 new 2 1000/new-2.store\n1000 half 3 1000/half-3.store unfinished\n"
			"1000 part 9 1000/part-9.store unfinished\n");
	job_file_remove(&node, &job);
	assert_false(is_there(0, "1000/new-2.store") || is_there(1, "1000/new-2.store"));
	assert_int_equal(job_file_finish(&node, &all, &job), -ENOENT);
}

static void foreign_files_are_left_and_named_once_each(void **state)
{
	static const char *const files[] = { "gpt.store",
					     "gpt-.store",
					     "gpt-01.store",
					     "gpt-1.stor",
					     "-1.store",
					     "_gpt-1.store",
					     "a..b-1.store",
					     "gpt-1.store.old",
					     "gpt- 1.store",
					     "gpt-+1.store",

					     ".store",
					     "g\npt-1.store",
					     "gpt-9223372036854775808.store",
					     "gpt-99999999999999999999999.store" };
	static const char *const folders[] = {
		"alice", "01", "-1", "4294967295", "99999999999999999999", "1 "
	};
	char name[256];

	for (unsigned i = 0; i < ARRAY_LENGTH(files); i++)
		make_file(0, "1000", files[i]);
	for (unsigned i = 0; i < ARRAY_LENGTH(folders); i++)
		make_file(0, folders[i], "gpt-1.store");
	memset(name, 'a', 65);
	strcpy(name + 65, "-1.store");
	make_file(0, "1000", name);
	memset(name, 'a', 255);
	name[255] = '\0';
	make_file(0, "1000", name);
	expect_found(ARRAY_LENGTH(files) + ARRAY_LENGTH(folders) + 2, "");
	expect_line("/p0/1000/_gpt-1.store is no file of a job");
	expect_line("/p0/alice is no file of a job");
	expect_line("g\\x0apt-1.store");
	assert_true(is_there(0, "1000/gpt.store") && is_there(0, "alice/gpt-1.store"));
	assert_int_equal(node.jobs.created, 0);
}

/* And yet no job may get their names. */
static void what_is_no_file_is_not_opened(void **state)
{
	make_folder(0, "1000");
	make_folder(0, "1000/folder-40.store");
	make_file(0, "1001", "gpt-1.store");
	assert_int_equal(symlinkat("../1001/gpt-1.store", node.paths[0].directory_fd, "1000/link-50.store"),
			 0);
	assert_int_equal(symlinkat("1001", node.paths[0].directory_fd, "1002"), 0);
	assert_int_equal(mkfifoat(node.paths[0].directory_fd, "1000/pipe-30.store", 0600), 0);
	expect_found(4, "1001 gpt 1 1001/gpt-1.store\n");
	expect_line("1000/link-50.store is no file of a job");
	expect_line("/p0/1002 is no file of a job");
	assert_int_equal(node.jobs.created, 50);
}

static void an_error_ends_the_search(void **state)
{
	make_file(0, "1000", "gpt-1.store");
	make_file(0, "1000", "gpt-2.store");
	make_file(0, "1001", "gpt-3.store");
	assert_int_equal(job_files_find(&node, refuse_second, &node), -EIO);
	assert_string_equal(told, "1000 gpt 1 1000/gpt-1.store\n");
	assert_int_equal(node.jobs.created, 3);
}

/* A path whose mark could not be written is on no list. */
static void what_the_list_knows_no_path_of_is_missed_all_the_same(void **state)
{
	const struct job_file job = { .file = "1000/gpt-1.store" };
	struct job_list_store listed = { .file = "1000/gpt-1.store" };
	struct path_list paths = { .count = 99 };
	char message[640];

	node.path_count = PATHS;
	assert_int_equal(devices_find(&node, &job, &listed, &paths, message, sizeof(message)), -ENOENT);
	assert_non_null(strstr(message, "/p0/1000/gpt-1.store is not there"));
	assert_int_equal(paths.count, 99);
}

/* What is found is what is made. */
static void the_file_of_a_job_is_found(void **state)
{
	struct scene scene;
	struct actor actor = { 0 };
	char expected[200];

	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	actor_play(&scene, &actor);
	log_divert(take_line);
	assert_int_equal(job_files_find(scene.node, tell, scene.node), 0);
	log_divert(NULL);
	snprintf(expected, sizeof(expected), "%u play 1 %u/play-1.store\n", (unsigned)geteuid(),
		 (unsigned)geteuid());
	assert_string_equal(told, expected);
	assert_int_equal(line_count, 0);
	assert_int_equal(scene.node->jobs.created, 1);
	actor_die(&actor);
	scene_settle(&scene);
	scene_close(&scene);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_paths, remove_paths)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(jobs_of_all_users_are_found_the_oldest_first),
		TEST(nothing_is_found_where_nothing_is),
		TEST(a_job_is_one_on_all_paths),
		TEST(files_that_were_never_finished_are_told_so),
		TEST(foreign_files_are_left_and_named_once_each),
		TEST(what_is_no_file_is_not_opened),
		TEST(an_error_ends_the_search),
		TEST(what_the_list_knows_no_path_of_is_missed_all_the_same),
		TEST(the_file_of_a_job_is_found),
	};

	log_open(LOG_LEVEL_WARNING);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
