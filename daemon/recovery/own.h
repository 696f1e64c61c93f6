/* What the recovery module keeps of a node, and of each job that is on its way back; for its own files. */
#ifndef TIERD_DAEMON_RECOVERY_OWN_H
#define TIERD_DAEMON_RECOVERY_OWN_H

#include "daemon/durability/durability.h"
#include "daemon/life/life.h"
#include "daemon/recovery/restore.h"

/* What it has from the job that it was in this daemon, of which its store knows nothing. */
struct origin {
	bool is_asked; /* by who opens it */
	struct restore_notice *notice;
	struct job_scrub *scrub; /* owned; NULL: there is none */
	struct sharing sharing;
};

enum restore_state {
	RESTORE_WAITING, /* somebody else has the files of its store, and may give it the store, or close them
			  */
	RESTORE_SEEKING, /* the files are being opened, or a job that has them open is asked for it */
	RESTORE_READING, /* its record */
	RESTORE_READ,	 /* or it has failed: status */
	RESTORE_MADE,	 /* it is a job, or ends */
};

struct restore {
	struct queue link; /* of the node's */
	struct node *node;
	struct job_file file;
	struct path_list paths;
	enum restore_state state;
	uint64_t round;	   /* of the node, in which it was looked at last */
	bool is_first;	   /* whatever the first job in the files is called */
	bool is_unwanted;  /* it is to end, not to come back */
	bool is_fork;	   /* a new one, for which there is room on the paths already */
	bool is_unread;	   /* its files cannot be opened */
	bool is_explained; /* and the message says what to do about it */
	bool is_forgotten; /* nothing of it was ever committed */
	bool is_strange;   /* the record of another user's job: nothing is made of it, nor lost */
	struct origin origin;
	struct store *store;
	struct job *job;	      /* once it is there, and its blobs are on their way */
	struct store_request request; /* of its end */
	struct store_transfer transfer;
	struct store_task task; /* of a job that has the files open */
	struct listing_wait listed;
	struct record_header header;
	struct loss_record record;   /* if it is read, and becomes no job */
	char *definition, *progress; /* with what is before them, page-aligned */
	int status;
	char message[640];
};

struct node_recovery {
	struct queue restores; /* struct restore */
	struct queue notices;  /* struct restore_notice: of jobs that end, and come back then */
	bool is_starting;      /* all that there is is read, before any of it becomes a job */
	uint64_t rounds;       /* in which those that wait for files were looked at */
};

/* ---- restore.c ---- */

/* In the node's queue; NULL: no memory. */
struct restore *restore_new(struct node *node, const struct job_file *file);
void restore_free(struct restore *restore);
/* It has its store: on with its record, or with its end. */
void restore_read(struct restore *restore);
/* It has failed, with a message; or it has been read. It may be gone then. */
void restore_finish(struct restore *restore, int r);
/* Those that have been read become jobs: each after those that began before it, so that where there is not
 * room for all, it is the same ones each time that get it. */
void restore_make_in_order(struct node *node);
/* Another daemon will find it. It is gone then. */
void restore_give_up(struct restore *restore, const char *why);
/* Nothing of it was ever committed, and it is removed. 0. */
int restore_forget(struct restore *restore);

/* ---- restore_store.c ---- */

/* Looks for its store: in the files, or with a job that has them open. */
void restore_seek(struct restore *restore);
/* Removes its job from the store that it has, and the files with the last one. It is gone then. */
void restore_end_head(struct restore *restore);

#endif
