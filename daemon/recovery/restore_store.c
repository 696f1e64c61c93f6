/* How a job that comes back gets its store.
 *
 * Nobody has the files open ─► they are opened, the first store is that of the first job in the table that is
 * not lost, and every other one is reached through it; all jobs of the files come back then, whoever asked
 * for one. A job that is there has them open ─► its store is asked, in the order of that job's tasks. It is
 * broken, or ends, or the devices take no writes any more ─► all of the files' jobs have to let go first:
 * wait. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/durability/durability.h"
#include "daemon/life/life.h"
#include "daemon/recovery/own.h"
#include "daemon/request/request.h"
#include "daemon/resources/resources.h"
#include "offload/device/fault.h"
#include "offload/device/nvme.h"

/* Writes of a daemon that was killed may take as long to end. */
#define LOCK_MS 10000

_Static_assert(STORE_SNAPSHOT_NAME_BYTES == WIRE_MAX_JOB_NAME + 1, "a store has room for a job's name");

/* Of the files of a store, for all jobs in them. */
struct opening {
	struct restore *opener; /* that opens them */
	struct work work;
	struct store_request request;
	struct store *first; /* of the first job in them that is not lost; through it others' are reached */
	unsigned opened;     /* the number of that one */
	struct store_job jobs[STORE_MAX_SNAPSHOTS + 1];
	struct restore *restores[STORE_MAX_SNAPSHOTS + 1]; /* of each that comes back, or has to end */
	unsigned count, next;
	struct job_list_store listed; /* what the list of jobs says of them */
	bool is_listed;
};

static bool is_of(const struct restore *restore, const char *file)
{
	return strcmp(restore->file.file, file) == 0;
}

static int refuse_store(struct restore *restore, int r, const struct store *store)
{
	return refuse(restore->message, sizeof(restore->message), r, "%s",
		      store_message(store)[0] ? store_message(store) : strerror(-r));
}

/* ---- Through a job that has the files open ---- */

static int begin_attach(struct store_task *task, struct store *store)
{
	struct restore *restore = container_of(task, struct restore, task);

	return store_attach(store, restore->file.name, &task->request, &restore->store);
}

static int begin_drop_lost(struct store_task *task, struct store *store)
{
	struct restore *restore = container_of(task, struct restore, task);

	return store_drop_lost(store, restore->file.name, &task->request);
}

/* Nothing is written before all of the store's jobs have let go of it. */
static void on_lost_dropped(struct store_task *task, int status)
{
	struct restore *restore = container_of(task, struct restore, task);
	struct job *host = task->job;

	if (status == -ESHUTDOWN) {
		restore_seek(restore);
		return;
	}
	if (status < 0) {
		refuse_store(restore, status, job_nvme_store(host));
		restore_finish(restore, status);
		return;
	}
	log_info("job %s of user %u: it has been given up, and is not in %s any more", restore->file.name,
		 (unsigned)restore->file.uid, restore->file.file);
	listing_forget(restore->node, restore->file.file, restore->file.name);
	drop_others(host);
	restore_free(restore);
}

static void send_drop_lost(struct restore *restore)
{
	restore->task.begin = begin_drop_lost;
	restore->task.done = on_lost_dropped;
	store_task_send(&restore->task);
}

static void on_attached(struct store_task *task, int status)
{
	struct restore *restore = container_of(task, struct restore, task);

	if (status == -ESHUTDOWN || status == -EROFS)
		restore_seek(restore);
	else if (status == -EBADMSG && restore->purpose == RESTORE_REMOVAL)
		send_drop_lost(restore);
	else if (status < 0)
		restore_finish(restore, refuse_store(restore, status, job_nvme_store(task->job)));
	else
		restore_read(restore);
}

static void attach(struct restore *restore, struct job *host)
{
	restore->state = RESTORE_SEEKING;
	restore->paths = host->location.paths;
	restore->task.job = host;
	restore->task.begin = begin_attach;
	restore->task.done = on_attached;
	store_task_send(&restore->task);
}

/* ---- The jobs in the files ---- */

static uint64_t number_of(const struct restore *opener, const struct store_job *job)
{
	uint64_t number = job->serial ? job->serial : opener->file.number;

	if (number > opener->node->jobs.created)
		opener->node->jobs.created = number;
	return number;
}

/* What was found under one name is another job's. */
static int identify(struct restore *opener, const struct store_job *first)
{
	uint64_t number = number_of(opener, first);

	opener->purpose = RESTORE_RETURN;
	/* A copy may be as old as it likes, and is not taken for the job. */
	if ((first->origin && first->origin != opener->file.number) ||
	    (number == opener->file.number && strcmp(first->name, opener->file.name) != 0))
		return refuse(opener->message, sizeof(opener->message), -EBADMSG,
			      "it is a file of job %s, by another name", first->name);
	opener->file.number = number;
	memcpy(opener->file.name, first->name, sizeof(first->name));
	return 0;
}

/* It is there, and is lost: it is tried again when somebody wants that. */
static bool is_among(const struct queue *jobs, const struct restore *opener, const char *name)
{
	FAMILY_FOREACH (job, jobs, opener->file.file)
		if (strcmp(job->name, name) == 0)
			return true;
	return false;
}

static bool is_lost(const struct restore *opener, const char *name)
{
	return is_among(&opener->node->jobs.live, opener, name) ||
	       is_among(&opener->node->jobs.dying, opener, name);
}

static struct restore *find(const struct restore *opener, const char *name)
{
	QUEUE_FOREACH (link, &opener->node->recovery->restores) {
		struct restore *restore = queue_entry(link, struct restore, link);

		if (is_of(restore, opener->file.file) && strcmp(restore->file.name, name) == 0 &&
		    (restore == opener || restore->state == RESTORE_WAITING))
			return restore;
	}
	return NULL;
}

/* Who waits for that job, or has to, since it comes back, too. NULL: nobody, or there is no memory. */
static struct restore *find_or_make(const struct restore *opener, const struct store_job *job)
{
	struct restore *restore = find(opener, job->name);
	struct job_file file = opener->file;

	if (restore || is_lost(opener, job->name))
		return restore;
	file.number = number_of(opener, job);
	memcpy(file.name, job->name, sizeof(job->name));
	restore = restore_new(opener->node, &file);
	if (!restore)
		log_error("job %s of user %u: it does not come back: out of memory; start tierd again",
			  file.name, (unsigned)file.uid);
	return restore;
}

static void end_opening(struct opening *opening, int r)
{
	struct restore *opener = opening->opener;

	store_free(opening->first);
	free(opening);
	if (r < 0 && opener->files == FILES_OPEN)
		opener->files = FILES_UNREAD;
	restore_finish(opener, r);
}

/* Whoever fails, or ends, may be gone at once. */
static void hand_out(struct opening *opening)
{
	struct restore *opener = opening->opener;

	if (opening->restores[opening->opened])
		opening->restores[opening->opened]->store = TAKE_PTR(opening->first);
	for (unsigned i = 0; i < opening->count; i++) {
		struct restore *restore = opening->restores[i];

		opener = restore == opener ? NULL : opener;
		if (restore && restore->store)
			restore_read(restore);
		else if (restore)
			restore_finish(restore, restore->status);
	}
	store_free(opening->first);
	free(opening);
	if (opener)
		restore_finish(opener, refuse(opener->message, sizeof(opener->message), -ENOENT,
					      "it is not in its files any more"));
}

static void attach_next(struct opening *opening);

static void on_next_attached(struct store_request *request, int status)
{
	struct opening *opening = container_of(request, struct opening, request);
	struct restore *restore = opening->restores[opening->next++];

	if (status < 0)
		restore->status = refuse_store(restore, status, opening->first);
	attach_next(opening);
}

static void attach_next(struct opening *opening)
{
	for (; opening->next < opening->count; opening->next++) {
		struct restore *restore = opening->restores[opening->next];
		int r;

		if (!restore || opening->next == opening->opened)
			continue;
		opening->request.done = on_next_attached;
		r = store_attach(opening->first, restore->file.name, &opening->request, &restore->store);
		if (r == 0)
			return;
		restore->status = refuse_store(restore, r, opening->first);
	}
	hand_out(opening);
}

static void share(struct opening *opening)
{
	struct restore *opener = opening->opener;

	listing_match(opener->node, opener->file.file, opening->jobs, opening->count);
	for (unsigned i = 0; i < opening->count; i++) {
		struct restore *restore = find_or_make(opener, &opening->jobs[i]);

		opening->restores[i] = restore;
		if (!restore)
			continue;
		restore->state = RESTORE_SEEKING;
		restore->paths = opener->paths;
		if (listing_is_given_up(opener->node, opener->file.file, restore->file.name))
			restore->purpose = RESTORE_REMOVAL;
	}
	while (opening->jobs[opening->opened].is_lost)
		opening->opened++;
	attach_next(opening);
}

static void on_opened(struct store_request *request, int status)
{
	struct opening *opening = container_of(request, struct opening, request);
	struct restore *opener = opening->opener;

	if (status == -ENOENT) {
		/* A daemon was killed before its first commit: there never was a state. */
		store_keep(opening->first, false);
		end_opening(opening, restore_forget(opener));
		return;
	}
	if (status < 0)
		status = refuse_store(opener, status, opening->first);
	opening->count = status < 0 ? 0 : store_jobs(opening->first, opening->jobs);
	for (unsigned i = 0; i < opening->count && status == 0; i++)
		if (opening->jobs[i].serial > INT64_MAX || opening->jobs[i].origin > INT64_MAX)
			status = refuse(opener->message, sizeof(opener->message), -EBADMSG,
					"it gives a job a number that none can have");
	if (status == 0 && opener->purpose == RESTORE_FIRST)
		status = identify(opener, &opening->jobs[0]);
	if (status < 0)
		end_opening(opening, status);
	else
		share(opening);
}

/* ---- The files, on a worker ---- */

static const char *explain_tier(int r)
{
	switch (r) {
	case -EBUSY:
		return "another process has locked it; end that one (fuser tells which)";
	case -EINVAL:
		return "it is no file of tierd's own: a regular one of 1 MiB or more, of mode 0600";
	case -ENXIO:
		return "it is no regular file";
	case -EPERM:
		return "its folder is another user's, or others may write to it";
	default:
		return strerror(-r);
	}
}

static int open_tier(struct restore *restore, unsigned index, struct tier **ret_tier)
{
	struct node *node = restore->node;
	struct node_path *path = &node->paths[restore->paths.paths[index]];
	struct nvme_config config = { .engine = node->engine,
				      .directory_fd = path->directory_fd,
				      .directory = path->folder,
				      .name = restore->file.file,
				      .is_buffered = !path->is_direct,
				      .device = path->device,
				      .share.user = restore->file.uid,
				      .moved = path->moved };
	struct fault_config fault;
	int r = nvme_tier_open(&config, LOCK_MS, ret_tier);

	if (r < 0)
		return refuse(restore->message, sizeof(restore->message), r, "%s/%s cannot be opened: %s",
			      path->folder, restore->file.file, explain_tier(r));
	if (node->fault && fault_config_parse(node->fault, &fault) == 0)
		r = fault_tier_new(*ret_tier, &fault, ret_tier);
	return r;
}

static void run_open(struct work *work)
{
	struct opening *opening = container_of(work, struct opening, work);
	struct restore *opener = opening->opener;
	struct store_config config = { .workers = opener->node->workers };
	struct tier *tiers[NODE_MAX_PATHS];
	unsigned count = 0;

	opener->status =
		devices_find(opener->node, &opener->file, opening->is_listed ? &opening->listed : NULL,
			     &opener->paths, opener->message, sizeof(opener->message));
	if (opening->is_listed && opener->status < 0)
		opener->files = FILES_EXPLAINED;
	while (opener->status == 0 && count < opener->paths.count) {
		opener->status = open_tier(opener, count, &tiers[count]);
		count += opener->status == 0;
	}
	if (opener->status == 0) {
		opener->status = store_new_found(&config, tiers, count, &opening->first);
		return;
	}
	while (count > 0)
		tier_free(tiers[--count]);
}

static void on_found(struct work *work)
{
	struct opening *opening = container_of(work, struct opening, work);
	struct restore *opener = opening->opener;
	int r = opener->status;

	opening->request.done = on_opened;
	if (r == 0)
		r = store_open(opening->first, &opening->request);
	if (r == 0)
		return;
	if (opener->message[0] == '\0')
		refuse(opener->message, sizeof(opener->message), r, "%s", strerror(-r));
	end_opening(opening, r);
}

static void open_files(struct restore *restore)
{
	struct opening *opening = calloc(1, sizeof(*opening));

	restore->state = RESTORE_SEEKING;
	restore->files = opening ? FILES_OPEN : FILES_UNREAD;
	if (!opening) {
		restore_finish(restore,
			       refuse(restore->message, sizeof(restore->message), -ENOMEM, "out of memory"));
		return;
	}
	opening->opener = restore;
	opening->is_listed = listing_copy(restore->node, restore->file.file, &opening->listed);
	opening->work = (struct work){ .run = run_open, .done = on_found, .urgency = WORK_NORMAL };
	workers_submit(restore->node->slow_workers, &opening->work);
}

/* ---- Which way ---- */

static bool has_open(const struct queue *jobs, const char *file)
{
	FAMILY_FOREACH (job, jobs, file)
		if (job_nvme_store(job))
			return true;
	return false;
}

static bool is_taken_care_of(const struct restore *restore)
{
	QUEUE_FOREACH (link, &restore->node->recovery->restores) {
		const struct restore *other = queue_entry(link, struct restore, link);

		if (other != restore && is_of(other, restore->file.file) && other->state != RESTORE_WAITING)
			return true;
	}
	return false;
}

void restore_seek(struct restore *restore)
{
	struct node *node = restore->node;
	struct job *host = family_find_host(node, restore->file.file);

	restore->state = RESTORE_WAITING;
	if (node->is_stopping && restore->purpose != RESTORE_REMOVAL) {
		restore_give_up(restore, "tierd is stopping");
		return;
	}
	/* That one has the store, or opens the files, and gives it what is its own. */
	if (is_taken_care_of(restore))
		restore_make_in_order(node);
	else if (host)
		attach(restore, host);
	else if (!has_open(&node->jobs.live, restore->file.file) &&
		 !has_open(&node->jobs.dying, restore->file.file))
		open_files(restore);
	else
		/* Nobody waits for who waits. */
		restore_make_in_order(node);
}

static struct restore *next_waiting(const struct node *node, uint64_t round)
{
	QUEUE_FOREACH (link, &node->recovery->restores) {
		struct restore *restore = queue_entry(link, struct restore, link);

		if (restore->state == RESTORE_WAITING && restore->round < round)
			return restore;
	}
	return NULL;
}

/* One that goes on may end others, and bring the caller here again. */
void restore_go_on(struct node *node)
{
	uint64_t round = ++node->recovery->rounds;
	struct restore *restore;

	while ((restore = next_waiting(node, round)) != NULL) {
		restore->round = round;
		restore_seek(restore);
	}
}

/* ---- The end of one ---- */

/* The last one takes its files with it, which may be large. What others have open is the loop's. */
static void leave_files(struct restore *restore)
{
	struct made made = MADE_INIT;
	struct store_family family;

	store_keep(restore->store, false);
	store_get_family(restore->store, &family);
	if (family.others == 0) {
		made.parameter_store = TAKE_PTR(restore->store);
		disposal_start(restore->node, &made);
	}
	restore_free(restore);
}

static void on_ended(struct store_request *request, int status)
{
	struct restore *restore = container_of(request, struct restore, request);

	if (status < 0) {
		restore_finish(restore, refuse_store(restore, status, restore->store));
		return;
	}
	listing_forget(restore->node, restore->file.file, restore->file.name);
	family_charge_again(restore->node, restore->file.file);
	leave_files(restore);
}

void restore_end_head(struct restore *restore)
{
	int r;

	restore->request.done = on_ended;
	r = store_drop(restore->store, &restore->request);
	if (r < 0)
		restore_finish(restore, refuse_store(restore, r, restore->store));
}
