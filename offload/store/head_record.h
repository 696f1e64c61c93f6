/* The table at the root of a store: a record for the map of each job and snapshot. A job is before its
 * snapshots. */
#ifndef TIERD_OFFLOAD_HEAD_RECORD_H
#define TIERD_OFFLOAD_HEAD_RECORD_H

#include "offload/store/map_node.h"

#define HEAD_NAME_BYTES 64
/* Records of a table, at most. */
#define HEAD_RECORDS 15
/* The level in the header of a table. */
#define HEAD_TABLE_LEVEL 256

enum head_kind { HEAD_NONE, HEAD_JOB, HEAD_SNAPSHOT };

struct head_record {
	uint32_t kind;		    /* enum head_kind */
	uint32_t job;		    /* its number in this table; of a snapshot: whose it is */
	char name[HEAD_NAME_BYTES]; /* ends with a zero */
	uint64_t step;
	uint64_t extents; /* of its map */
	uint64_t seconds; /* since 1970, when it was written */
	uint64_t serial;  /* of a job: whatever number its user knows it by; 0: none */
	uint64_t origin;  /* that of the job for which the store was made */
	struct node_pointer root;
};

struct head_table {
	struct head_record records[HEAD_RECORDS];
	unsigned count;
};

/* The header of a table, whatever its count. */
#define HEAD_TABLE_HEADER ((struct node_header){ .level = HEAD_TABLE_LEVEL, .count = NODE_ANY_COUNT })

/* A node of its own. */
void head_table_put(uint8_t bytes[NODE_BYTES], const struct head_table *table, uint64_t generation,
		    uint64_t epoch);
/* -EBADMSG: its content is impossible, though its checksum matches. */
int head_table_get(const uint8_t bytes[NODE_BYTES], struct head_table *ret_table);

/* A snapshot of the job; a job by name, or by number; NULL: there is none. */
struct head_record *head_table_snapshot(struct head_table *table, uint32_t job, const char *name);
struct head_record *head_table_job(struct head_table *table, const char *name);
struct head_record *head_table_number(struct head_table *table, uint32_t job);
void head_table_remove(struct head_table *table, struct head_record *record);
/* How many of one kind. */
unsigned head_table_count(const struct head_table *table, enum head_kind kind);

#endif
