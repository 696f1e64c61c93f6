/* The list of jobs: which durable jobs there are, in which files, and on which NVMe paths. It is kept outside
 * of the paths, so that what is not there is missed. Data and bytes; daemon/durability/listing.h keeps it. */
#ifndef TIERD_DAEMON_JOB_LIST_H
#define TIERD_DAEMON_JOB_LIST_H

#include "daemon/model/model.h"
#include "daemon/durability/mark.h"

#define JOB_LIST_MAX_PATHS 64
#define JOB_LIST_MAX_PATH 4096
#define JOB_LIST_MAX_JOBS (STORE_MAX_SNAPSHOTS + 1) /* of a store */
#define JOB_LIST_MAX_BYTES (UINT64_C(64) << 20)

/* A file system, and the path that it had last. */
struct job_list_path {
	uint8_t mark[MARK_BYTES];
	char *path; /* owned */
};

struct job_list_job {
	char name[WIRE_MAX_JOB_NAME + 1];
	uint64_t number;
	bool is_given_up; /* what there is of it goes as soon as it is there */
};

struct job_list_store {
	char file[JOB_FILE_BYTES]; /* in the folder of each path */
	uint8_t store[16];	   /* as its superblocks say */
	uint64_t generation;	   /* that they had at least */
	unsigned path_count, job_count;
	uint8_t paths[NODE_MAX_PATHS]; /* of the list */
	struct job_list_job jobs[JOB_LIST_MAX_JOBS];
};

struct job_list {
	uint64_t highest; /* number that any job has had */
	struct job_list_path paths[JOB_LIST_MAX_PATHS];
	unsigned path_count;
	struct job_list_store *stores; /* owned */
	size_t store_count, store_capacity;
};

void job_list_clear(struct job_list *list);

/* -1: it is not in it. */
int job_list_find_path(const struct job_list *list, const uint8_t mark[MARK_BYTES]);
/* The one with this mark, of that path from now on; a new one if need be. Its number; -ENOMEM; -ENOSPC: there
 * are too many. */
int job_list_set_path(struct job_list *list, const uint8_t mark[MARK_BYTES], const char *path);
/* The numbers of all behind it change. */
void job_list_remove_path(struct job_list *list, unsigned path);

/* NULL: it is not in it. */
struct job_list_store *job_list_find(const struct job_list *list, const char *file);
/* A new one, without paths and jobs. NULL: no memory. */
struct job_list_store *job_list_add(struct job_list *list, const char *file);
void job_list_remove(struct job_list *list, struct job_list_store *store);

struct job_list_job *job_list_find_job(const struct job_list_store *store, const char *name);
/* -ENOSPC: a store cannot have so many. */
int job_list_add_job(struct job_list_store *store, const char *name, uint64_t number);
void job_list_remove_job(struct job_list_store *store, const char *name);
/* There is none that is not. */
bool job_list_is_given_up(const struct job_list_store *store);

/* -EBADMSG: these are not what job_list_encode() has made; -EPROTONOSUPPORT: that of a later tierd has;
 * -ENOMEM. Nothing is taken then. */
int job_list_decode(struct job_list *list, const void *bytes, size_t length);
/* The caller frees the bytes. -ENOMEM. */
int job_list_encode(const struct job_list *list, void **ret_bytes, size_t *ret_length);

#endif
