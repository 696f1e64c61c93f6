/* Forks: jobs of one lineage, each with its own record in the table. A fork begins with the map of another
 * job, and then changes its own. The devices have what both share once. */
#include <errno.h>
#include <string.h>

#include "offload/store/lineage_backend.h"

static bool is_attached(const struct lineage *lineage, uint32_t job)
{
	for (unsigned i = 0; i < lineage->attached_count; i++)
		if (lineage->attached[i]->job == job)
			return true;
	return false;
}

/* A dropped job has its number until it is detached. */
static uint32_t next_number(struct lineage *lineage)
{
	uint32_t number = 0;

	while (head_table_number(&lineage->heads, number) || is_attached(lineage, number))
		number++;
	return number;
}

struct lineage_geometry lineage_geometry_with(const struct lineage_head *head, unsigned snapshots)
{
	unsigned jobs = head_table_count(&head->lineage->heads, HEAD_JOB);

	/* Before its first commit a job is in no table. */
	return (struct lineage_geometry){
		.extents = lineage_places_for(head, jobs > 0 ? jobs : 1, snapshots),
		.nodes = head->lineage->geometry.nodes,
		.place_bytes = head->lineage->geometry.place_bytes,
	};
}

struct lineage_geometry lineage_geometry_with_fork(const struct lineage_head *head, unsigned snapshots)
{
	struct lineage *lineage = head->lineage;
	unsigned jobs = head_table_count(&lineage->heads, HEAD_JOB) + 1;
	/* There may be more snapshots than asked for: they fit in the space of jobs that are gone. */
	unsigned there = head_table_count(&lineage->heads, HEAD_SNAPSHOT) + lineage->view_count;
	uint32_t needed = lineage_places_for(head, jobs, snapshots > there ? snapshots : there);
	struct lineage_geometry geometry = lineage->geometry;

	if (geometry.extents < needed)
		geometry.extents = needed;
	return geometry;
}

/* ---- A map that another head, or nobody, has in memory ---- */

/* Names no place: reading the nodes does. */
static int begin_load(struct lineage *lineage, struct lineage_head *head, const struct head_record *record)
{
	int r = head->ops->begin_load(head, record->extents);

	if (r < 0)
		return lineage_refuse(lineage, r, "no memory for the map of %s", head->name);
	tree_set_root(&head->tree, &record->root);
	head->step = record->step;
	return 0;
}

/* No commit has noted the devices' growth. */
static void fail_load(struct lineage *lineage, int status)
{
	struct lineage_head *head = lineage->view;

	lineage->next_extents = lineage->geometry.extents;
	lineage_refuse_map(lineage, status, head->name);
	head->ops->abandon_load(head);
	lineage_end(lineage, status);
}

static void loaded(struct lineage *lineage, int status)
{
	if (status < 0) {
		fail_load(lineage, status);
		return;
	}
	lineage_add_head(lineage, lineage->view);
	lineage_end(lineage, 0);
}

static void load(struct lineage *lineage)
{
	lineage_load(lineage, lineage->view, loaded);
}

int lineage_attach(struct lineage *lineage, struct lineage_head *head, struct lineage_request *request)
{
	const struct head_record *record = head_table_job(&lineage->heads, head->name);
	int r;

	if (lineage->is_fenced)
		return -EROFS;
	if (lineage->request)
		return -EBUSY;
	if (!record)
		return lineage_refuse(lineage, -ENOENT, "there is no job %s", head->name);
	r = lineage_check_found(lineage, record);
	if (r < 0)
		return r;
	if (is_attached(lineage, record->job))
		return lineage_refuse(lineage, -EBUSY, "the job %s is open already", head->name);
	head->job = record->job;
	head->serial = record->serial;
	r = begin_load(lineage, head, record);
	if (r < 0)
		return r;
	lineage->view = head;
	return lineage_begin_walk(lineage, request, load);
}

/* ---- A new one ---- */

static void forked(struct lineage *lineage)
{
	lineage_take_growth(lineage);
	lineage_add_head(lineage, lineage->view);
	lineage_end(lineage, 0);
}

static void commit_fork(struct lineage *lineage, int status)
{
	if (status < 0) {
		(void)lineage_give_node(lineage, tree_root(&lineage->view->tree));
		fail_load(lineage, status);
		return;
	}
	lineage->committed = forked;
	lineage_commit_table(lineage);
}

/* Names the root first, so that nothing below it is freed meanwhile. */
static void load_fork(struct lineage *lineage)
{
	int r = lineage_name_root(lineage, tree_root(&lineage->view->tree));

	if (r < 0)
		fail_load(lineage, r);
	else
		lineage_load(lineage, lineage->view, commit_fork);
}

static int check_new(struct lineage *lineage, const char *name)
{
	if (name[0] == '\0')
		return lineage_refuse(lineage, -EINVAL, "the name of a job has 1 to %d bytes",
				      HEAD_NAME_BYTES - 1);
	if (head_table_job(&lineage->heads, name))
		return lineage_refuse(lineage, -EEXIST, "there is a job %s already", name);
	if (lineage->heads.count == HEAD_RECORDS)
		return lineage_refuse(lineage, -EMFILE,
				      "there are %d jobs and snapshots, and a store has no more: delete one",
				      HEAD_RECORDS);
	return 0;
}

static int check_fork(struct lineage_head *head, const char *snapshot, const char *name,
		      struct head_record **ret_record)
{
	int r = lineage_check_writable(head);

	if (r == 0)
		r = check_new(head->lineage, name);
	return r < 0 ? r : lineage_find(head, snapshot, ret_record);
}

int lineage_can_fork(struct lineage_head *head, const char *snapshot, const char *name)
{
	struct head_record *record;

	return check_fork(head, snapshot, name, &record);
}

int lineage_fork(struct lineage_head *head, const char *snapshot, struct lineage_head *fork,
		 const struct lineage_geometry *geometry, struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	struct head_record *record = NULL, *added;
	int r = check_fork(head, snapshot, fork->name, &record);

	if (r == 0)
		r = lineage_prepare_growth(lineage, geometry);
	if (r == 0)
		r = begin_load(lineage, fork, record);
	if (r < 0) {
		lineage->next_extents = lineage->geometry.extents;
		return r;
	}
	fork->job = next_number(lineage);
	lineage->next_heads = lineage->heads;
	added = &lineage->next_heads.records[lineage->next_heads.count++];
	*added = *record;
	added->kind = HEAD_JOB;
	added->job = fork->job;
	added->serial = fork->serial;
	lineage_set_record_name(added, fork->name);
	lineage->view = fork;
	return lineage_begin_walk(lineage, request, load_fork);
}

bool lineage_has_others(const struct lineage_head *head)
{
	struct head_table *heads = &head->lineage->heads;

	return !head->lineage->is_over &&
	       head_table_count(heads, HEAD_JOB) > (head_table_number(heads, head->job) ? 1U : 0U);
}

/* ---- The end of one ---- */

/* Keeps the order of all others, because a job must be before its snapshots. */
void lineage_drop_records(struct head_table *heads, uint32_t job, struct head_table *ret_dropped)
{
	if (ret_dropped)
		ret_dropped->count = 0;
	for (unsigned i = heads->count; i-- > 0;) {
		if (heads->records[i].job != job)
			continue;
		if (ret_dropped)
			ret_dropped->records[ret_dropped->count++] = heads->records[i];
		head_table_remove(heads, &heads->records[i]);
	}
}

int lineage_drop(struct lineage_head *head, struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	int r;

	if (head_table_count(&lineage->heads, HEAD_JOB) < 2) {
		lineage->is_over = head->has_ended = true;
		return 1;
	}
	r = lineage_check_writable(head);
	if (r < 0)
		return r;
	lineage->next_heads = lineage->heads;
	lineage_drop_records(&lineage->next_heads, head->job, &lineage->dropped);
	r = lineage_commit_drop(lineage, request);
	head->has_ended = r == 0;
	return r;
}
