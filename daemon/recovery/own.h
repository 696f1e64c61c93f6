/* What the recovery module keeps of a node, and of each job that is on its way back; for its own files. */
#ifndef TIERD_DAEMON_RECOVERY_OWN_H
#define TIERD_DAEMON_RECOVERY_OWN_H

#include "daemon/durability/durability.h"
#include "daemon/life/life.h"
#include "daemon/recovery/restore.h"

/* What a job that comes back has from its life in this daemon, and its store does not know. */
struct origin {
	bool is_asked; /* somebody opens it */
	struct restore_notice *notice;
	struct job_scrub *scrub; /* owned; NULL: there is none */
	struct sharing sharing;
};

enum restore_state {
	RESTORE_WAITING, /* another restore or job has the files: it gives this one its store, or closes them
			  */
	RESTORE_SEEKING, /* the files are being opened, or a job that has them open is asked for the store */
	RESTORE_READING, /* the record is being read */
	RESTORE_READ,	 /* it has been read, or status says why not */
	RESTORE_MADE,	 /* the job is there, or the restore ends */
};

/* What becomes of the job. */
enum restore_purpose {
	RESTORE_RETURN,	 /* it comes back */
	RESTORE_FIRST,	 /* the same, of the first job in the files, whatever it is called */
	RESTORE_FORK,	 /* it is a new one, for which there is room on the paths already */
	RESTORE_REMOVAL, /* it is removed from its store */
};

/* What its files are. */
enum restore_files {
	FILES_OPEN,	 /* or not tried yet */
	FILES_UNREAD,	 /* they cannot be opened */
	FILES_EXPLAINED, /* the same, and the message says what to do about it */
	FILES_EMPTY,	 /* nothing of it was ever committed */
	FILES_STRANGE,	 /* the record of another user's job: nothing is made of it, nor lost */
};

struct restore {
	struct queue link; /* of the node's */
	struct node *node;
	struct job_file file;
	struct path_list paths;
	enum restore_state state;
	enum restore_purpose purpose;
	enum restore_files files;
	uint64_t round; /* of the node, in which it was looked at last */
	struct origin origin;
	struct store *store;
	struct job *job;	      /* once it is there, and its blobs are on their way */
	struct store_request request; /* of its end */
	struct store_transfer transfer;
	struct store_task task; /* for a job that has the files open */
	struct listing_wait listed;
	struct record_header header;
	struct loss_record record;   /* of what was read, and becomes no job */
	char *definition, *progress; /* with their headers, page-aligned */
	int status;
	char message[640];
};

struct node_recovery {
	struct queue restores; /* struct restore */
	struct queue notices;  /* struct restore_notice: of jobs that end, and come back then */
	bool is_starting;      /* the daemon starts: all records are read before any becomes a job */
	uint64_t rounds;       /* of restore_go_on() */
};

/* ---- restore.c ---- */

/* In the node's queue; NULL: no memory. */
struct restore *restore_new(struct node *node, const struct job_file *file);
void restore_free(struct restore *restore);
/* A fork is on its way: its name is taken from now on. file: its name and number, and its origin's files. It
 * goes on with restore_end_fork(), or ends with restore_free(). NULL: no memory. */
struct restore *restore_begin_fork(const struct job *origin, const struct job_file *file,
				   struct restore_notice *notice);
/* store: its own, which it takes over. */
void restore_end_fork(struct restore *restore, struct store *store);
/* It has been read, or has failed, with a message. It may be freed. */
void restore_finish(struct restore *restore, int r);
/* Restores that have been read become jobs, in the order in which they began: so it is always the same jobs
 * that get room where there is not enough for all. */
void restore_make_in_order(struct node *node);
/* The next daemon will find the job. Frees the restore. */
void restore_give_up(struct restore *restore, const char *why);
/* Nothing of the job was ever committed: it is off the list. 0. */
int restore_forget(struct restore *restore);

/* What cannot be read of the store, and where it lies, becomes its message. r. */
int restore_explain(struct restore *restore, int r, const char *what);

/* ---- restore_record.c ---- */

/* It has its store. Reads its record, or, if that is its purpose, removes the job from the store. */
void restore_read(struct restore *restore);

/* ---- restore_store.c ---- */

/* Opens its files, or asks a job that has them open for the store. */
void restore_seek(struct restore *restore);
/* Removes its job from the store that it has; with the last job, the files. Frees the restore. */
void restore_end_head(struct restore *restore);

#endif
