#include "offload/head_record.h"

#include <errno.h>

#include "common/little_endian.h"

/* docs/store.md describes it. */
enum {
	AT_RECORDS = 64,
	RECORD_BYTES = 256,
	AT_KIND = 0,
	AT_STEP = 8,
	AT_EXTENTS = 16,
	AT_SECONDS = 24,
	AT_ROOT = 32,
	AT_NAME = 56,
};
_Static_assert(AT_NAME + HEAD_NAME_BYTES <= RECORD_BYTES, "a record has room for a name");
_Static_assert(AT_RECORDS + HEAD_RECORDS * RECORD_BYTES <= NODE_BYTES, "a table has room for its records");

static void put_record(uint8_t bytes[NODE_BYTES], unsigned index, const struct head_record *record)
{
	uint8_t *at = bytes + AT_RECORDS + index * RECORD_BYTES;

	put32(at + AT_KIND, record->kind);
	put64(at + AT_STEP, record->step);
	put64(at + AT_EXTENTS, record->extents);
	put64(at + AT_SECONDS, record->seconds);
	put64(at + AT_ROOT, record->root.places[0]);
	put64(at + AT_ROOT + 8, record->root.places[1]);
	put64(at + AT_ROOT + 16, record->root.checksum);
	memcpy(at + AT_NAME, record->name, HEAD_NAME_BYTES);
}

static int get_record(const uint8_t bytes[NODE_BYTES], unsigned index, struct head_record *ret_record)
{
	const uint8_t *at = bytes + AT_RECORDS + index * RECORD_BYTES;
	struct head_record record = {
		.kind = get32(at + AT_KIND),
		.step = get64(at + AT_STEP),
		.extents = get64(at + AT_EXTENTS),
		.seconds = get64(at + AT_SECONDS),
		.root = { { get64(at + AT_ROOT), get64(at + AT_ROOT + 8) }, get64(at + AT_ROOT + 16) },
	};

	memcpy(record.name, at + AT_NAME, HEAD_NAME_BYTES);
	if (record.kind > HEAD_SNAPSHOT || record.name[HEAD_NAME_BYTES - 1] != '\0')
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

int head_table_get(const uint8_t bytes[NODE_BYTES], struct head_table *ret_table)
{
	struct head_table table = { .count = node_count(bytes) };
	int r = table.count > 0 && table.count <= HEAD_RECORDS ? 0 : -EBADMSG;

	for (unsigned i = 0; i < table.count && r == 0; i++) {
		r = get_record(bytes, i, &table.records[i]);
		if (r == 0 && table.records[i].kind != (i == 0 ? HEAD_JOB : HEAD_SNAPSHOT))
			r = -EBADMSG;
	}
	if (r == 0)
		*ret_table = table;
	return r;
}
