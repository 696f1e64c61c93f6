#include "offload/store/head_record.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* docs/store.md describes it. */
enum {
	AT_RECORDS = 64,
	RECORD_BYTES = 256,
	AT_KIND = 0,
	AT_JOB = 4,
	AT_STEP = 8,
	AT_EXTENTS = 16,
	AT_SECONDS = 24,
	AT_ROOT = 32,
	AT_NAME = 56,
	AT_SERIAL = 120,
	AT_ORIGIN = 128,
};
_Static_assert(AT_NAME + HEAD_NAME_BYTES == AT_SERIAL, "a record has room for a name");
_Static_assert(AT_RECORDS + HEAD_RECORDS * RECORD_BYTES <= NODE_BYTES, "a table has room for its records");

static void put_record(uint8_t bytes[NODE_BYTES], unsigned index, const struct head_record *record)
{
	uint8_t *at = bytes + AT_RECORDS + index * RECORD_BYTES;

	put32(at + AT_KIND, record->kind);
	put32(at + AT_JOB, record->job);
	put64(at + AT_STEP, record->step);
	put64(at + AT_EXTENTS, record->extents);
	put64(at + AT_SECONDS, record->seconds);
	put64(at + AT_SERIAL, record->serial);
	put64(at + AT_ORIGIN, record->origin);
	node_pointer_put(at + AT_ROOT, &record->root);
	memcpy(at + AT_NAME, record->name, HEAD_NAME_BYTES);
}

static int get_record(const uint8_t bytes[NODE_BYTES], unsigned index, struct head_record *ret_record)
{
	const uint8_t *at = bytes + AT_RECORDS + index * RECORD_BYTES;
	struct head_record record = {
		.kind = get32(at + AT_KIND),
		.job = get32(at + AT_JOB),
		.step = get64(at + AT_STEP),
		.extents = get64(at + AT_EXTENTS),
		.seconds = get64(at + AT_SECONDS),
		.serial = get64(at + AT_SERIAL),
		.origin = get64(at + AT_ORIGIN),
		.root = node_pointer_get(at + AT_ROOT),
	};

	memcpy(record.name, at + AT_NAME, HEAD_NAME_BYTES);
	if ((record.kind != HEAD_JOB && record.kind != HEAD_SNAPSHOT) ||
	    record.name[HEAD_NAME_BYTES - 1] != '\0')
		return -EBADMSG;
	*ret_record = record;
	return 0;
}

void head_table_put(uint8_t bytes[NODE_BYTES], const struct head_table *table, uint64_t generation,
		    uint64_t epoch)
{
	struct node_header header = { HEAD_TABLE_LEVEL, table->count, 0, generation, epoch };

	node_begin(bytes, &header);
	for (unsigned i = 0; i < table->count; i++)
		put_record(bytes, i, &table->records[i]);
}

/* A number is of one job, a job is before its snapshots, and all maps have as many extents. table: the
 * records before. */
static int check_record(struct head_table *table, const struct head_record *record)
{
	bool is_snapshot = record->kind == HEAD_SNAPSHOT;
	bool is_known = head_table_number(table, record->job) != NULL;
	/* Names are unique. */
	const struct head_record *same = is_snapshot ? head_table_snapshot(table, record->job, record->name)
						     : head_table_job(table, record->name);

	return is_known == is_snapshot && !same && record->extents == table->records[0].extents ? 0
												: -EBADMSG;
}

int head_table_get(const uint8_t bytes[NODE_BYTES], struct head_table *ret_table)
{
	struct head_table table = { .count = 0 };
	unsigned count = node_count(bytes);
	int r = count > 0 && count <= HEAD_RECORDS ? 0 : -EBADMSG;

	while (table.count < count && r == 0) {
		struct head_record *record = &table.records[table.count];

		r = get_record(bytes, table.count, record);
		if (r == 0)
			r = check_record(&table, record);
		table.count++;
	}
	if (r == 0)
		*ret_table = table;
	return r;
}

/* ---- Looking for one ---- */

static struct head_record *find(struct head_table *table, enum head_kind kind, const char *name,
				const uint32_t *job)
{
	for (unsigned i = 0; i < table->count; i++) {
		struct head_record *record = &table->records[i];

		if (record->kind == (uint32_t)kind && (!name || strcmp(record->name, name) == 0) &&
		    (!job || record->job == *job))
			return record;
	}
	return NULL;
}

struct head_record *head_table_snapshot(struct head_table *table, uint32_t job, const char *name)
{
	return find(table, HEAD_SNAPSHOT, name, &job);
}

struct head_record *head_table_job(struct head_table *table, const char *name)
{
	return find(table, HEAD_JOB, name, NULL);
}

struct head_record *head_table_number(struct head_table *table, uint32_t job)
{
	return find(table, HEAD_JOB, NULL, &job);
}

void head_table_remove(struct head_table *table, struct head_record *record)
{
	unsigned index = (unsigned)(record - table->records);

	memmove(record, record + 1, (table->count - index - 1) * sizeof(*record));
	table->count--;
}

unsigned head_table_count(const struct head_table *table, enum head_kind kind)
{
	unsigned count = 0;

	for (unsigned i = 0; i < table->count; i++)
		count += table->records[i].kind == (uint32_t)kind;
	return count;
}
