/* Listing: the node's list of jobs, in the state directory. Jobs that are on the list and not on the paths
 * are missed. A path that has another file system than before is absent: nothing new is put there. */
#ifndef TIERD_DAEMON_LISTING_H
#define TIERD_DAEMON_LISTING_H

#include "daemon/durability/job_list.h"
#include "offload/store/store_device.h"

struct listing;

/* All jobs have come back, or are lost. Writes the list, if it has changed; until then nothing writes it. */
void listing_settle(struct node *node);

/* False: the store is not on it. */
bool listing_copy(const struct node *node, const char *file, struct job_list_store *ret_store);
/* All paths of the store are here, or it is not on the list. */
bool listing_has_paths(const struct node *node, const char *file);
/* The job is on it, and was given up while its files were away. */
bool listing_is_given_up(const struct node *node, const char *file, const char *name);

/* The list, as it is when this begins, on its way to the disk. Writes take that way in turn, ahead of
 * whatever removes files later. */
struct listing_write {
	struct work work;
	struct listing *listing;
	void *bytes;
	size_t length;
	int status;
	void (*done)(struct listing_write *write, int status);
};

/* A new job's, while its store is being made. */
struct listing_entry {
	struct work work;
	struct listing_write write;
	struct job *job;
	struct store_device says;
	int status;
	char *message;
	size_t size;
	/* Once: the list on the disk has the job; or it has not, with a message. */
	void (*done)(struct listing_entry *entry, int status);
};

/* The superblocks of its store have been written. job, done, message and size are set. */
void listing_add(struct listing_entry *entry);
/* Of a job that has come back, or a fork. It is on the disk soon. */
void listing_note(const struct job *job);
/* Takes a job off the list whose files are removed next, or that has left them to others. */
void listing_forget(struct node *node, const char *file, const char *name);
/* The store has been opened, and has these jobs. Takes others off the list. */
void listing_match(struct node *node, const char *file, const struct store_job *jobs, unsigned count);
/* As listing_forget(), of a job that is lost. Files on paths that are not here are removed when they are
 * back. */
void listing_give_up(struct node *node, const char *file, const char *name);

/* Waits until the list is on the disk as it is now. */
struct listing_wait {
	struct work work;
	void (*done)(struct listing_wait *wait);
};
void listing_await(struct node *node, struct listing_wait *wait);

#endif
