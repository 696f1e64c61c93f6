#include "daemon/durability/job_file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/own.h"
#include "daemon/durability/listing_inside.h"
#include "daemon/durability/mark.h"
#include "daemon/durability/own.h"
#include "offload/device/nvme.h"
#include "proto/name.h"
#include "proto/vocabulary.h"

#define SUFFIX ".store"

struct search {
	struct node *node;
	struct job_file *jobs; /* one of each file, until they are joined */
	size_t count, capacity;
	uint64_t highest; /* number */
};

/* ---- Names ---- */

/* As it is printed, and not otherwise: each number has one name. */
static bool parse_number(const char *text, uint64_t most, uint64_t *ret_number)
{
	char *end;

	if (!isdigit((unsigned char)text[0]) || (text[0] == '0' && text[1]))
		return false;
	errno = 0;
	*ret_number = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' && *ret_number <= most;
}

/* The last number means "no change" to the kernel, and is nobody's. */
static bool parse_folder(const char *text, uid_t *ret_uid)
{
	uint64_t number;

	if (!parse_number(text, UINT32_MAX - 1, &number))
		return false;
	*ret_uid = (uid_t)number;
	return true;
}

/* From the rest of it. */
static void print_file(struct job_file *job)
{
	snprintf(job->file, sizeof(job->file), "%u/%s-%llu" SUFFIX, (unsigned)job->uid, job->name,
		 (unsigned long long)job->number);
}

void job_file_assign(struct job *job, uint64_t number)
{
	struct job_file file = { .uid = job->uid, .number = number };

	snprintf(file.name, sizeof(file.name), "%s", job->name);
	print_file(&file);
	job->number = number;
	memcpy(job->location.file, file.file, sizeof(job->location.file));
}

void job_file_get(const struct job *job, struct job_file *ret_job)
{
	*ret_job = (struct job_file){ .uid = job->uid, .number = job->number };
	snprintf(ret_job->name, sizeof(ret_job->name), "%s", job->name);
	memcpy(ret_job->file, job->location.file, sizeof(ret_job->file));
}

/* NAME-N.store; of a number above the most that fits, later ones would begin anew. */
static bool parse_file(const char *text, struct job_file *job)
{
	char copy[NAME_MAX + 1], *number;
	size_t length = strlen(text), suffix = strlen(SUFFIX);

	if (length >= sizeof(copy) || length <= suffix || strcmp(text + length - suffix, SUFFIX) != 0)
		return false;
	memcpy(copy, text, length - suffix);
	copy[length - suffix] = '\0';
	number = strrchr(copy, '-');
	if (!number)
		return false;
	*number++ = '\0';
	if (!name_is_word(copy, WIRE_MAX_JOB_NAME) || !parse_number(number, INT64_MAX, &job->number))
		return false;
	memcpy(job->name, copy, strlen(copy) + 1);
	print_file(job);
	return true;
}

bool job_file_parse(const char *file, struct job_file *ret_job)
{
	const char *slash = strchr(file, '/');
	struct job_file job = { .uid = 0 };
	char folder[16];

	if (!slash || slash - file >= (ptrdiff_t)sizeof(folder))
		return false;
	memcpy(folder, file, (size_t)(slash - file));
	folder[slash - file] = '\0';
	if (!parse_folder(folder, &job.uid) || !parse_file(slash + 1, &job))
		return false;
	*ret_job = job;
	return true;
}

/* ---- Folders ---- */

static int add(struct search *search, const struct job_file *job)
{
	if (search->count == search->capacity) {
		size_t capacity = search->capacity ? 2 * search->capacity : 64;
		struct job_file *jobs = realloc(search->jobs, capacity * sizeof(*jobs));

		if (!jobs)
			return -ENOMEM;
		search->jobs = jobs;
		search->capacity = capacity;
	}
	search->jobs[search->count++] = *job;
	return 0;
}

static void log_foreign(const struct node_path *path, const char *folder, const char *name)
{
	log_warning(
		"%s/%s%s%s is no file of a job and is left as it is: tierd's own are UID/NAME-N%s; move it "
		"elsewhere",
		path->folder, folder, folder[0] ? "/" : "", name, SUFFIX);
}

/* A name counts even of what is no file: another one cannot have it. */
static int look_at_file(struct search *search, unsigned path, int fd, const char *folder, const char *name)
{
	struct job_file job = { 0 };
	struct stat status;

	(void)parse_folder(folder, &job.uid);
	if (!parse_file(name, &job)) {
		log_foreign(&search->node->paths[path], folder, name);
		return 0;
	}
	if (job.number > search->highest)
		search->highest = job.number;
	if (fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode)) {
		job.is_unfinished = (status.st_mode & 07777) == NVME_UNFINISHED_MODE;
		return add(search, &job);
	}
	log_foreign(&search->node->paths[path], folder, name);
	return 0;
}

typedef int look(struct search *search, unsigned path, int fd, const char *folder, const char *name);

/* Calls what looks for each name in a folder of the path's. */
static int look_through(struct search *search, unsigned path, const char *folder, look *look_at)
{
	int parent = search->node->paths[path].directory_fd, r = 0;
	int fd = own_open_folder(parent, folder);
	DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;

	if (!directory) {
		r = fd < 0 ? fd : -errno;
		fd_close(fd);
		return r;
	}
	for (;;) {
		errno = 0;
		const struct dirent *entry = r == 0 ? readdir(directory) : NULL;

		if (!entry)
			break;
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = look_at(search, path, fd, folder, entry->d_name);
	}
	r = r < 0 ? r : -errno;
	closedir(directory);
	return r;
}

static void log_unreadable(const struct node_path *path, const char *folder, int r)
{
	if (r == -EPERM)
		log_warning(
			"%s/%s is not tierd's own, or others may write to it: jobs that have files there do "
			"not come back; if you trust what is in it: chown %u %s/%s, chmod 0700 %s/%s",
			path->folder, folder, (unsigned)geteuid(), path->folder, folder, path->folder,
			folder);
	else
		log_warning("%s/%s cannot be read: %s; jobs that have files there do not come back before it "
			    "can be",
			    path->folder, folder, strerror(-r));
}

/* What cannot be read holds back its own jobs alone. */
static int look_at_folder(struct search *search, unsigned path, int fd, const char *folder, const char *name)
{
	uid_t uid;
	int r;

	if (strcmp(name, MARK_NAME) == 0)
		return 0;
	r = parse_folder(name, &uid) ? look_through(search, path, name, look_at_file) : -ENOTDIR;
	if (r == -ENOMEM || r == 0)
		return r;
	if (r == -ENOTDIR || r == -ELOOP)
		log_foreign(&search->node->paths[path], "", name);
	else
		log_unreadable(&search->node->paths[path], name, r);
	return 0;
}

static int look_at_paths(struct search *search)
{
	for (unsigned i = 0; i < search->node->path_count; i++) {
		int r = look_through(search, i, ".", look_at_folder);

		if (r < 0 && r != -ENOMEM)
			log_unreadable(&search->node->paths[i], "", r);
		if (r < 0)
			return r;
	}
	return 0;
}

/* A user's folder may be left when its last job has gone. */
static int look_for_any(struct search *search, unsigned path, int fd, const char *folder, const char *name)
{
	uid_t uid;

	if (strcmp(folder, ".") == 0 && parse_folder(name, &uid))
		return look_through(search, path, name, look_for_any);
	return -ENOTEMPTY;
}

bool job_files_are_absent(struct node *node, unsigned path)
{
	struct search search = { .node = node };

	return look_through(&search, path, ".", look_for_any) == 0;
}

/* ---- Jobs ---- */

/* The oldest first; files that are of one job beside each other. */
static int compare(const void *one, const void *another)
{
	const struct job_file *a = one, *b = another;

	if (a->number != b->number)
		return a->number < b->number ? -1 : 1;
	if (a->uid != b->uid)
		return a->uid < b->uid ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* What is on the list, and nowhere else. */
static int add_listed(struct search *search)
{
	const struct job_list *list = listing_list(search->node);
	int r = 0;

	for (size_t i = 0; list && i < list->store_count && r == 0; i++) {
		struct job_file job;

		if (!job_file_parse(list->stores[i].file, &job))
			continue;
		job.is_given_up = job_list_is_given_up(&list->stores[i]);
		r = add(search, &job);
	}
	if (list && list->highest > search->highest)
		search->highest = list->highest;
	return r;
}

/* Of files that are of one job, one entry. */
static void join_files(struct search *search)
{
	size_t count = 0;

	qsort(search->jobs, search->count, sizeof(search->jobs[0]), compare);
	for (size_t i = 0; i < search->count; i++) {
		const struct job_file *job = &search->jobs[i];
		struct job_file *last = count > 0 ? &search->jobs[count - 1] : NULL;

		if (last && compare(last, job) == 0) {
			last->is_unfinished |= job->is_unfinished;
			last->is_given_up |= job->is_given_up;
		} else {
			search->jobs[count++] = *job;
		}
	}
	search->count = count;
}

int job_files_find(struct node *node,
		   int (*found)(struct node *node, const struct job_file *job, void *argument),
		   void *argument)
{
	struct search search = { .node = node };
	int r = look_at_paths(&search);

	if (r == 0)
		r = add_listed(&search);
	if (search.highest > node->jobs.created)
		node->jobs.created = search.highest;
	if (r == 0 && search.count > 0)
		join_files(&search);
	for (size_t i = 0; i < search.count && r == 0; i++)
		r = found(node, &search.jobs[i], argument);
	free(search.jobs);
	return r;
}

/* And the names that lead to it. */
static int finish_on(const struct node_path *path, const char *file, const char *folder)
{
	_cleanup_close_ int fd = own_open(path->directory_fd, file, O_RDONLY, 0);
	_cleanup_close_ int folder_fd = own_open_folder(path->directory_fd, folder);

	if (fd < 0 || folder_fd < 0)
		return fd < 0 ? fd : folder_fd;
	if (fchmod(fd, 0600) < 0 || fsync(fd) < 0 || fsync(folder_fd) < 0 || fsync(path->directory_fd) < 0)
		return -errno;
	return 0;
}

int job_file_finish(const struct node *node, const struct path_list *paths, const struct job_file *job)
{
	char folder[16];
	int r = 0;

	snprintf(folder, sizeof(folder), "%u", (unsigned)job->uid);
	for (unsigned i = 0; i < paths->count && r == 0; i++)
		r = finish_on(&node->paths[paths->paths[i]], job->file, folder);
	return r;
}

/* In the order in which they were finished: what is left if that ends half-way is unfinished still. */
void job_file_remove(const struct node *node, const struct job_file *job)
{
	for (unsigned i = 0; i < node->path_count; i++)
		(void)unlinkat(node->paths[i].directory_fd, job->file, 0);
}
