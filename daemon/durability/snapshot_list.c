#include <errno.h>

#include "daemon/durability/own.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/durability/store_task.h"
#include "daemon/durability/pinned_step.h"
#include "daemon/durability/snapshot.h"

struct snapshot_list {
	struct store_task task;
	struct store_snapshot snapshots[STORE_MAX_SNAPSHOTS];
	uint64_t own_bytes[STORE_MAX_SNAPSHOTS];
	bool is_measured[STORE_MAX_SNAPSHOTS];
	unsigned count, measured;
};

/* What the job keeps without a name. */
struct reader_list {
	Tierd__Wire__SnapshotReader entries[PINNED_STEPS_LISTED_MOST], *pointers[PINNED_STEPS_LISTED_MOST];
};

static void add_readers(const struct job *job, struct reader_list *list, Tierd__Wire__SnapshotsReply *body)
{
	const struct pinned_step *pinned[PINNED_STEPS_LISTED_MOST];

	body->n_readers = pinned_steps_list(job, pinned);
	body->readers = list->pointers;
	for (unsigned i = 0; i < body->n_readers; i++) {
		list->pointers[i] = &list->entries[i];
		tierd__wire__snapshot_reader__init(&list->entries[i]);
		list->entries[i].step = pinned[i]->step;
		list->entries[i].seconds = pinned[i]->seconds;
		list->entries[i].uid = pinned[i]->uid;
	}
}

static void reply(struct snapshot_list *list, const struct job *job)
{
	struct reader_list readers;
	Tierd__Wire__Snapshot entries[STORE_MAX_SNAPSHOTS], *pointers[STORE_MAX_SNAPSHOTS];
	Tierd__Wire__SnapshotsReply body = TIERD__WIRE__SNAPSHOTS_REPLY__INIT;

	for (unsigned i = 0; i < list->count; i++) {
		pointers[i] = &entries[i];
		tierd__wire__snapshot__init(&entries[i]);
		entries[i].name = list->snapshots[i].name;
		entries[i].step = list->snapshots[i].step;
		entries[i].seconds = list->snapshots[i].seconds;
		entries[i].own_bytes = list->own_bytes[i];
		entries[i].is_measured = list->is_measured[i];
		entries[i].is_lost = list->snapshots[i].is_lost;
	}
	body.n_snapshots = list->count;
	body.snapshots = pointers;
	body.maximum = job->options.snapshots;
	body.state_bytes = store_placed_bytes(job_nvme_store(job));
	add_readers(job, &readers, &body);
	store_task_reply(&list->task, WIRE_REPLY(SNAPSHOTS, snapshots, &body));
}

/* ---- Measuring: one after the other, so that commits come in between ---- */

static int begin(struct store_task *task, struct store *store)
{
	struct snapshot_list *list = container_of(task, struct snapshot_list, task);

	if (!task->requester.pending)
		return -ECANCELED;
	return store_measure_snapshot(store, list->snapshots[list->measured].name, &task->request,
				      &list->own_bytes[list->measured]);
}

static void measure_next(struct snapshot_list *list)
{
	struct store_task *task = &list->task;

	if (++list->measured < list->count) {
		store_task_send(task);
		return;
	}
	reply(list, task->job);
	store_task_free(task);
}

/* Nobody can tell of one that is being read, or cannot be, or was deleted meanwhile. */
static void on_measured(struct store_task *task, int status)
{
	struct snapshot_list *list = container_of(task, struct snapshot_list, task);

	if (status == -ESHUTDOWN)
		snapshot_fail(task, list->snapshots[list->measured].name, status);
	if (!task->requester.pending || status == -ESHUTDOWN) {
		store_task_free(task);
		return;
	}
	list->is_measured[list->measured] = status == 0;
	measure_next(list);
}

void snapshot_list(struct pending *pending, const Tierd__Wire__SnapshotsRead *read, struct queue *requesters)
{
	struct job *job = access_find(pending, read->name, read->has_owner, read->owner);
	struct snapshot_list *list;
	char message[SNAPSHOT_TEXT];
	int r;

	if (!job)
		return;
	r = snapshot_check_job(job, message, sizeof(message));
	if (!store_task_check(pending, r, message))
		return;
	list = store_task_new(sizeof(*list), pending, job, requesters);
	if (!list)
		return;
	list->count = store_snapshots(job_nvme_store(job), list->snapshots);
	list->task.begin = begin;
	list->task.done = on_measured;
	if (read->measures && list->count > 0) {
		store_task_send(&list->task);
	} else {
		reply(list, job);
		store_task_free(&list->task);
	}
}
