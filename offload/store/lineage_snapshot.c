/* Snapshots: further records of the table, each with a name for the root of its map. Taking one, deleting one
 * and rolling back to one commit a table alone. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "offload/store/lineage_backend.h"

static int find_snapshot(struct lineage_head *head, const char *name, struct head_record **ret_record)
{
	struct lineage *lineage = head->lineage;

	*ret_record = head_table_snapshot(&lineage->heads, head->job, name);
	return *ret_record ? 0 : lineage_refuse(lineage, -ENOENT, "there is no snapshot %s", name);
}

int lineage_find(struct lineage_head *head, const char *snapshot, struct head_record **ret_record)
{
	struct lineage *lineage = head->lineage;

	if (snapshot)
		return find_snapshot(head, snapshot, ret_record);
	*ret_record = head_table_number(&lineage->heads, head->job);
	return *ret_record ? 0 : lineage_refuse(lineage, -ENODATA, "nothing has been committed");
}

static int make_tree(struct lineage *lineage, const struct head_record *record, struct map_tree *tree)
{
	int r;

	tree_destroy(tree);
	r = tree_init(tree, record->extents);
	return r < 0 ? lineage_refuse(lineage, r, "no memory for the map of a snapshot") : 0;
}

int lineage_make_tree(struct lineage_head *head, const char *snapshot, struct map_tree *tree)
{
	struct head_record *record = NULL;
	int r = lineage_find(head, snapshot, &record);

	if (r == 0)
		r = lineage_check_found(head->lineage, record);
	if (r == 0)
		r = make_tree(head->lineage, record, tree);
	if (r == 0)
		tree_set_root(tree, &record->root);
	return r;
}

unsigned lineage_snapshots(const struct lineage_head *head, struct head_record *ret_records)
{
	const struct head_table *heads = &head->lineage->heads;
	unsigned count = 0;

	for (unsigned i = 0; i < heads->count; i++)
		if (heads->records[i].kind == HEAD_SNAPSHOT && heads->records[i].job == head->job)
			ret_records[count++] = heads->records[i];
	return count;
}

int lineage_name_root(struct lineage *lineage, const struct node_pointer *root)
{
	return node_pointer_is_none(root) ? 0 : node_area_name(lineage->nodes, root);
}

int lineage_check_writable(const struct lineage_head *head)
{
	struct lineage *lineage = head->lineage;

	/* The message stays: it says what has ended the writing. */
	if (lineage->is_fenced || head->has_ended)
		return -EROFS;
	if (lineage->request)
		return -EBUSY;
	lineage->message[0] = '\0';
	return lineage->lost ? lineage_refuse_writing(lineage) : 0;
}

static void end_well(struct lineage *lineage)
{
	lineage_end(lineage, 0);
}

void lineage_set_record_name(struct head_record *record, const char *name)
{
	memset(record->name, 0, sizeof(record->name));
	memcpy(record->name, name, strlen(name));
}

/* ---- Taking one ---- */

static int check_new(struct lineage_head *head, const char *name)
{
	struct lineage *lineage = head->lineage;

	if (name[0] == '\0' || strlen(name) >= HEAD_NAME_BYTES)
		return lineage_refuse(lineage, -EINVAL, "the name of a snapshot has 1 to %d bytes",
				      HEAD_NAME_BYTES - 1);
	if (!head_table_number(&lineage->heads, head->job))
		return lineage_refuse(lineage, -ENODATA, "nothing has been committed that could be kept");
	if (head_table_snapshot(&lineage->heads, head->job, name))
		return lineage_refuse(lineage, -EEXIST,
				      "there is a snapshot %s already: delete it, or take another name",
				      name);
	if (lineage->heads.count == HEAD_RECORDS)
		return lineage_refuse(lineage, -EMFILE,
				      "there are %u snapshots, and a store has no more: delete one",
				      head_table_count(&lineage->heads, HEAD_SNAPSHOT));
	return lineage_check_space(head);
}

int lineage_snapshot(struct lineage_head *head, const char *name, struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	struct head_record record;
	int r = lineage_check_writable(head);

	if (r == 0)
		r = check_new(head, name);
	if (r < 0)
		return r;
	record = *head_table_number(&lineage->heads, head->job);
	record.kind = HEAD_SNAPSHOT;
	record.seconds = (uint64_t)time(NULL);
	lineage_set_record_name(&record, name);
	/* Before the commit, because it may be there even if it fails. */
	r = lineage_name_root(lineage, &record.root);
	if (r < 0)
		return r;
	lineage->next_heads = lineage->heads;
	lineage->next_heads.records[lineage->next_heads.count++] = record;
	lineage->committed = end_well;
	return lineage_begin(lineage, request, lineage_commit_table);
}

/* ---- Doing without some ---- */

static void give_dropped(struct lineage *lineage);

/* The places below a node that cannot be read stay taken until the store is opened again. */
static void places_given(struct lineage *lineage, int status)
{
	give_dropped(lineage);
}

/* Frees what the removed records named; errors do not matter any more. */
static void give_dropped(struct lineage *lineage)
{
	struct lineage_walk walk = { .tree = &lineage->walked[0],
				     .meet = lineage_give_node,
				     .take = lineage_give_extents,
				     .then = places_given };

	if (lineage->dropped.count == 0) {
		tree_destroy(walk.tree);
		lineage_end(lineage, 0);
		return;
	}
	tree_clear(walk.tree);
	tree_set_root(walk.tree, &lineage->dropped.records[--lineage->dropped.count].root);
	lineage_walk(lineage, &walk);
}

int lineage_commit_drop(struct lineage *lineage, struct lineage_request *request)
{
	int r = make_tree(lineage, &lineage->dropped.records[0], &lineage->walked[0]);

	if (r < 0)
		return r;
	lineage->committed = give_dropped;
	return lineage_begin(lineage, request, lineage_commit_table);
}

int lineage_delete_snapshot(struct lineage_head *head, const char *name, struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	struct head_record *record = NULL;
	int r = lineage_check_writable(head);

	if (r == 0)
		r = find_snapshot(head, name, &record);
	if (r < 0)
		return r;
	lineage->next_heads = lineage->heads;
	lineage->dropped = (struct head_table){ .records = { *record }, .count = 1 };
	head_table_remove(&lineage->next_heads, head_table_snapshot(&lineage->next_heads, head->job, name));
	return lineage_commit_drop(lineage, request);
}

/* ---- Rolling back ---- */

/* The map in memory is void. */
void lineage_end_for_good(struct lineage *lineage)
{
	lineage->is_fenced = true;
	lineage_end(lineage, 0);
}

int lineage_roll_back(struct lineage_head *head, const char *name, struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	struct head_record *record = NULL, *job;
	int r = lineage_check_writable(head);

	if (r == 0)
		r = find_snapshot(head, name, &record);
	if (r < 0)
		return r;
	lineage->next_heads = lineage->heads;
	job = head_table_number(&lineage->next_heads, head->job);
	lineage->dropped = (struct head_table){ .records = { *job }, .count = 1 };
	job->step = record->step;
	job->seconds = record->seconds;
	job->root = record->root;
	r = lineage_name_root(lineage, &job->root);
	if (r == 0)
		r = lineage_commit_drop(lineage, request);
	head->has_ended = r == 0;
	return r;
}

/* ---- Reading one ---- */

static void measured(struct lineage *lineage, int status)
{
	if (status == 0)
		*lineage->measured = lineage->count;
	lineage_end_walk(lineage, status);
}

static void measure(struct lineage *lineage)
{
	struct lineage_walk walk = { .tree = &lineage->walked[0],
				     .meet = lineage_count_node,
				     .take = lineage_count_extents,
				     .then = measured };

	lineage->count = 0;
	lineage_walk(lineage, &walk);
}

/* Whether a view names the root, so that all below it has a name more. */
static bool is_viewed(const struct lineage *lineage, const struct node_pointer *root)
{
	int names = 0;

	if (node_pointer_is_none(root))
		return false;
	for (unsigned i = 0; i < lineage->heads.count; i++)
		names += memcmp(&lineage->heads.records[i].root, root, sizeof(*root)) == 0;
	return node_area_names(lineage->nodes, root) > names;
}

int lineage_measure_snapshot(struct lineage_head *head, const char *name, uint64_t *ret_extents,
			     struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	int r = lineage->request ? -EBUSY : lineage_make_tree(head, name, &lineage->walked[0]);

	if (r == 0 && is_viewed(lineage, tree_root(&lineage->walked[0])))
		r = -EAGAIN;
	if (r < 0)
		return r;
	lineage->measured = ret_extents;
	return lineage_begin_walk(lineage, request, measure);
}

static int meet_any(struct lineage *lineage, const struct node_pointer *pointer)
{
	return 1;
}

static int take_for_head(struct lineage *lineage, const struct node_read *read)
{
	return lineage->view->ops->load_node(lineage->view, &read->expected, read->bytes);
}

void lineage_load(struct lineage *lineage, struct lineage_head *head,
		  void (*then)(struct lineage *lineage, int status))
{
	struct lineage_walk walk = {
		.tree = &head->tree, .meet = meet_any, .take = take_for_head, .then = then
	};

	lineage->view = head;
	lineage_walk(lineage, &walk);
}

static void view_read(struct lineage *lineage, int status)
{
	if (status < 0) {
		(void)lineage_give_node(lineage, tree_root(&lineage->view->tree));
	} else {
		lineage->view_count++;
		lineage->view->lineage = lineage;
	}
	lineage_end_walk(lineage, status);
}

static void read_view(struct lineage *lineage)
{
	int r = lineage_name_root(lineage, tree_root(&lineage->view->tree));

	if (r < 0)
		lineage_end_walk(lineage, r);
	else
		lineage_load(lineage, lineage->view, view_read);
}

int lineage_open_view(struct lineage_head *head, const char *name, struct lineage_head *view,
		      struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	struct head_record *record = NULL;
	int r = lineage->request ? -EBUSY : lineage_find(head, name, &record);

	if (r == 0)
		r = lineage_check_found(lineage, record);
	/* A snapshot has its space already. */
	if (r == 0 && !name)
		r = lineage_check_space(head);
	if (r == 0)
		r = view->ops->begin_load(view, record->extents);
	if (r < 0)
		return r;
	tree_set_root(&view->tree, &record->root);
	memcpy(view->name, record->name, sizeof(view->name));
	view->step = record->step;
	lineage->view = view;
	return lineage_begin_walk(lineage, request, read_view);
}
