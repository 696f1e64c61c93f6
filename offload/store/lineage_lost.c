/* A job or snapshot is lost if both copies of a node of its map are bad.
 *
 * The places below that node are unknown, and look free. So no place is given out while something is lost.
 * The names of what could be read are not counted either: a map that is read later would take nodes that both
 * have for complete. */
#include <errno.h>

#include "offload/store/lineage_backend.h"

void lineage_lose(struct lineage *lineage, unsigned record)
{
	lineage->lost |= 1U << record;
	node_area_clear(lineage->nodes);
	for (unsigned device = 0; device < lineage->device_count; device++)
		places_clear(&lineage->extents[device]);
}

void lineage_lock_places(struct lineage *lineage)
{
	node_area_lock(lineage->nodes);
	for (unsigned device = 0; device < lineage->device_count; device++)
		lineage->extents[device].is_locked = true;
}

bool lineage_has_lost(const struct lineage *lineage)
{
	return lineage->lost != 0;
}

bool lineage_has_lost_job(const struct lineage *lineage, const struct head_record *record)
{
	for (unsigned i = 0; i < lineage->heads.count; i++) {
		const struct head_record *other = &lineage->heads.records[i];

		if (other->kind == HEAD_JOB && other->job == record->job)
			return lineage->lost >> i & 1;
	}
	return false;
}

uint32_t lineage_lost(const struct lineage_head *head)
{
	const struct lineage *lineage = head->lineage;
	uint32_t lost = 0;
	unsigned count = 0;

	for (unsigned i = 0; i < lineage->heads.count; i++) {
		const struct head_record *record = &lineage->heads.records[i];

		if (record->kind == HEAD_SNAPSHOT && record->job == head->job)
			lost |= (lineage->lost >> i & 1) << count++;
	}
	return lost;
}

int lineage_refuse_writing(struct lineage *lineage)
{
	const struct head_record *first = &lineage->heads.records[__builtin_ctz(lineage->lost)];

	return lineage_refuse(
		lineage, -EROFS,
		"nothing is written as long as %s %s is there, whose map cannot be read: "
		"nobody knows its places; bring back the disk as it was and open it again, or %s",
		first->kind == HEAD_JOB ? "job" : "snapshot", first->name,
		first->kind == HEAD_JOB ? "drop that job" : "delete that snapshot as lost");
}

int lineage_check_found(struct lineage *lineage, const struct head_record *record)
{
	if (!(lineage->lost >> (record - lineage->heads.records) & 1))
		return 0;
	return lineage_refuse(lineage, -EBADMSG, "the map of %s %s cannot be read",
			      record->kind == HEAD_JOB ? "job" : "snapshot", record->name);
}

static int check_deletion(struct lineage *lineage)
{
	return lineage->is_fenced ? -EROFS : lineage->request ? -EBUSY : 0;
}

/* Commits what is left of the table. */
static int commit_rest(struct lineage *lineage, struct lineage_request *request)
{
	lineage->committed = lineage_end_for_good;
	return lineage_begin(lineage, request, lineage_commit_table);
}

int lineage_delete_lost(struct lineage_head *head, const char *name, struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	struct head_record *record = NULL;
	int r = check_deletion(lineage);

	if (r == 0)
		r = lineage_find(head, name, &record);
	if (r < 0)
		return r;
	if (lineage_check_found(lineage, record) == 0)
		return lineage_refuse(lineage, -EINVAL,
				      "snapshot %s can be read: it is not lost, and can be deleted as others "
				      "are once no other one is lost",
				      name);
	lineage->next_heads = lineage->heads;
	head_table_remove(&lineage->next_heads, head_table_snapshot(&lineage->next_heads, head->job, name));
	return commit_rest(lineage, request);
}

int lineage_drop_lost(struct lineage_head *head, const char *job, struct lineage_request *request)
{
	struct lineage *lineage = head->lineage;
	struct head_record *record = head_table_job(&lineage->heads, job);
	int r = check_deletion(lineage);

	if (r < 0)
		return r;
	if (!record)
		return lineage_refuse(lineage, -ENOENT, "there is no job %s", job);
	if (lineage_check_found(lineage, record) == 0)
		return lineage_refuse(lineage, -EINVAL, "job %s can be read: it is not lost", job);
	lineage->next_heads = lineage->heads;
	lineage_drop_records(&lineage->next_heads, record->job, NULL);
	return commit_rest(lineage, request);
}
