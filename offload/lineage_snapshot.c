/* Snapshots: records of the table beside the job's, each with a name for the root of its map. Taking one,
 * dropping one and rolling back to one are commits of a table alone. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "offload/lineage_backend.h"

static const struct head_record *find_snapshot(const struct lineage *lineage, const char *name)
{
	for (unsigned i = 1; i < lineage->heads.count; i++)
		if (strcmp(lineage->heads.records[i].name, name) == 0)
			return &lineage->heads.records[i];
	return NULL;
}

int lineage_find(struct lineage *lineage, const char *name, const struct head_record **ret_record)
{
	const struct head_record *record = find_snapshot(lineage, name);

	if (!record)
		return lineage_refuse(lineage, -ENOENT, "there is no snapshot %s", name);
	*ret_record = record;
	return 0;
}

static int find_head(struct lineage *lineage, const char *name, const struct head_record **ret_record)
{
	if (name)
		return lineage_find(lineage, name, ret_record);
	if (lineage->heads.count == 0)
		return lineage_refuse(lineage, -ENODATA, "nothing has been committed");
	*ret_record = &lineage->heads.records[0];
	return 0;
}

int lineage_make_tree(struct lineage *lineage, const char *name, struct map_tree *tree)
{
	const struct head_record *record = NULL;
	int r = find_head(lineage, name, &record);

	if (r == 0)
		r = lineage_check_found(lineage, record);
	if (r < 0)
		return r;
	tree_destroy(tree);
	r = tree_init(tree, record->extents);
	if (r < 0)
		return lineage_refuse(lineage, r, "no memory for the map of a snapshot");
	tree_set_root(tree, &record->root);
	return 0;
}

unsigned lineage_snapshots(const struct lineage *lineage, struct head_record *ret_records)
{
	unsigned count = lineage->heads.count > 0 ? lineage->heads.count - 1 : 0;

	memcpy(ret_records, &lineage->heads.records[1], count * sizeof(*ret_records));
	return count;
}

/* A map of which nothing was ever written has none. */
static int name_root(struct lineage *lineage, const struct node_pointer *root)
{
	return node_pointer_is_none(root) ? 0 : node_area_name(lineage->nodes, root);
}

int lineage_check_writable(struct lineage *lineage)
{
	/* The message says what has ended the writing. */
	if (lineage->is_fenced)
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

/* ---- Taking one ---- */

static int check_new(struct lineage *lineage, const char *name)
{
	if (name[0] == '\0' || strlen(name) >= HEAD_NAME_BYTES)
		return lineage_refuse(lineage, -EINVAL, "the name of a snapshot has 1 to %d bytes",
				      HEAD_NAME_BYTES - 1);
	if (lineage->heads.count == 0)
		return lineage_refuse(lineage, -ENODATA, "nothing has been committed that could be kept");
	if (find_snapshot(lineage, name))
		return lineage_refuse(lineage, -EEXIST,
				      "there is a snapshot %s already: delete it, or take another name",
				      name);
	if (lineage->heads.count == HEAD_RECORDS)
		return lineage_refuse(lineage, -EMFILE,
				      "there are %d snapshots, and a store has no more: delete one",
				      HEAD_RECORDS - 1);
	return lineage_check_room(lineage);
}

int lineage_snapshot(struct lineage *lineage, const char *name, struct lineage_request *request)
{
	struct head_record record;
	int r = lineage_check_writable(lineage);

	if (r == 0)
		r = check_new(lineage, name);
	if (r < 0)
		return r;
	record = lineage->heads.records[0];
	record.kind = HEAD_SNAPSHOT;
	record.seconds = (uint64_t)time(NULL);
	memset(record.name, 0, sizeof(record.name));
	memcpy(record.name, name, strlen(name));
	/* Also while nobody knows whether the commit is there. */
	r = name_root(lineage, &record.root);
	if (r < 0)
		return r;
	lineage->next_heads = lineage->heads;
	lineage->next_heads.records[lineage->next_heads.count++] = record;
	lineage->committed = end_well;
	return lineage_begin(lineage, request, lineage_commit_table);
}

/* ---- Deleting one ---- */

/* A node that cannot be read leaves what it names where it is, until the store is opened again. */
static void places_given(struct lineage *lineage, int status)
{
	tree_destroy(&lineage->walked[0]);
	lineage_end(lineage, 0);
}

/* Nothing leads there any more, whatever happens now. */
static void give_places(struct lineage *lineage)
{
	struct lineage_walk walk = { .tree = &lineage->walked[0],
				     .meet = lineage_give_node,
				     .take = lineage_give_extents,
				     .then = places_given };

	lineage_walk(lineage, &walk);
}

void lineage_drop_record(struct head_table *table, unsigned index)
{
	memmove(&table->records[index], &table->records[index + 1],
		(table->count - index - 1) * sizeof(table->records[0]));
	table->count--;
}

int lineage_delete_snapshot(struct lineage *lineage, const char *name, struct lineage_request *request)
{
	const struct head_record *record = NULL;
	int r = lineage_check_writable(lineage);

	if (r == 0)
		r = lineage_find(lineage, name, &record);
	if (r == 0)
		r = lineage_make_tree(lineage, name, &lineage->walked[0]);
	if (r < 0)
		return r;
	lineage->next_heads = lineage->heads;
	lineage_drop_record(&lineage->next_heads, (unsigned)(record - lineage->heads.records));
	lineage->committed = give_places;
	return lineage_begin(lineage, request, lineage_commit_table);
}

/* ---- Rolling back ---- */

void lineage_end_for_good(struct lineage *lineage)
{
	lineage->is_fenced = true;
	lineage_end(lineage, 0);
}

int lineage_roll_back(struct lineage *lineage, const char *name, struct lineage_request *request)
{
	const struct head_record *record = NULL;
	struct head_record *job = &lineage->next_heads.records[0];
	int r = lineage_check_writable(lineage);

	if (r == 0)
		r = lineage_find(lineage, name, &record);
	if (r < 0)
		return r;
	lineage->next_heads = lineage->heads;
	*job = *record;
	job->kind = HEAD_JOB;
	memcpy(job->name, lineage->heads.records[0].name, sizeof(job->name));
	lineage->committed = lineage_end_for_good;
	return lineage_begin(lineage, request, lineage_commit_table);
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

/* Somebody else than the table names the root: then all below it looks as if others had it, too. */
static bool is_viewed(const struct lineage *lineage, const struct node_pointer *root)
{
	int names = 0;

	if (node_pointer_is_none(root))
		return false;
	for (unsigned i = 0; i < lineage->heads.count; i++)
		names += memcmp(&lineage->heads.records[i].root, root, sizeof(*root)) == 0;
	return node_area_names(lineage->nodes, root) > names;
}

int lineage_measure_snapshot(struct lineage *lineage, const char *name, uint64_t *ret_extents,
			     struct lineage_request *request)
{
	int r = lineage->request ? -EBUSY : lineage_make_tree(lineage, name, &lineage->walked[0]);

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

static int take_for_view(struct lineage *lineage, const struct node_read *read)
{
	return lineage->view->ops->load_node(lineage->view, &read->expected, read->bytes);
}

static void view_read(struct lineage *lineage, int status)
{
	if (status < 0)
		(void)lineage_give_node(lineage, tree_root(&lineage->view->tree));
	lineage_end_walk(lineage, status);
}

static void read_view(struct lineage *lineage)
{
	struct lineage_walk walk = {
		.tree = &lineage->view->tree, .meet = meet_any, .take = take_for_view, .then = view_read
	};
	int r = name_root(lineage, tree_root(&lineage->view->tree));

	if (r < 0)
		lineage_end_walk(lineage, r);
	else
		lineage_walk(lineage, &walk);
}

int lineage_open_view(struct lineage *lineage, const char *name, struct lineage_head *view,
		      struct lineage_request *request)
{
	const struct head_record *record = NULL;
	int r = lineage->request ? -EBUSY : lineage_find(lineage, name, &record);

	if (r == 0)
		r = lineage_check_found(lineage, record);
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
