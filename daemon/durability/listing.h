/* Listing: the node keeps its list of jobs in the state directory, and misses what is on it and not on the
 * paths. A path whose file system is not the one that it was is absent: nothing new is put there. */
#ifndef TIERD_DAEMON_LISTING_H
#define TIERD_DAEMON_LISTING_H

#include "daemon/durability/job_list.h"
#include "offload/store/store_device.h"

struct listing;

/* All jobs that were there have come back, or are lost: writes the list, if that has changed anything. Until
 * then it is not written. */
void listing_settle(struct node *node);

/* False: the store is not on it. */
bool listing_copy(const struct node *node, const char *file, struct job_list_store *ret_store);
/* All paths on which the store lies are here, or it is not on the list. */
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

/* The superblocks of its store have been written; job and done are set, and room for a message. */
void listing_add(struct listing_entry *entry);
/* A job that has come back, or is a fork; on the disk soon. */
void listing_note(const struct job *job);
/* The files of the job are about to go, or it has left them to others: it is off the list before. */
void listing_forget(struct node *node, const char *file, const char *name);
/* The store has been opened, and has these jobs: others are off the list. */
void listing_match(struct node *node, const char *file, const struct store_job *jobs, unsigned count);
/* The same as listing_forget(), of a job that is lost: files on paths that are not here go as soon as they
 * are. */
void listing_give_up(struct node *node, const char *file, const char *name);

/* Who waits for the list to be on the disk as it is now. */
struct listing_wait {
	struct work work;
	void (*done)(struct listing_wait *wait);
};
void listing_await(struct node *node, struct listing_wait *wait);

#endif
