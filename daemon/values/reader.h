/* What the files of a reader share. */
#ifndef TIERD_DAEMON_READER_H
#define TIERD_DAEMON_READER_H

#include "daemon/durability/durability.h"
#include "daemon/values/own.h"
#include "daemon/values/view.h"

/* Pieces of one request that are copied at the same time: a worker does not wait for the loop. */
#define READER_LANES 4

struct reader_lane {
	struct reader *reader;
	bool is_copying;
	struct copy copy; /* to the window, or to the client's memory */
	unsigned streams; /* that the copy reads to the buffer, while it is_copying */
};

struct reader {
	struct queue link;	  /* of the node's */
	struct queue job_link;	  /* of the job's */
	struct queue client_link; /* of the client's */
	struct node *node;
	struct job *job;     /* NULL: the job is gone, */
	bool job_comes_back; /* or is opened again */
	char job_name[WIRE_MAX_JOB_NAME + 1];
	uint32_t handle;
	uid_t uid;
	struct port *port;	  /* its client's, until it is closed */
	uint64_t bytes;		  /* charged */
	struct shortage shortage; /* of memory for its request */
	bool may_read_all;	  /* else parameters only */
	bool is_closed;
	bool keeps_window; /* its client was denied it, and may be copying what it has read */
	uint64_t step;
	char snapshot_name[WIRE_MAX_SNAPSHOT_NAME + 1];
	bool as_snapshot;	   /* of the last commit, which has no name */
	struct store *snapshot;	   /* NULL: it reads the job as it is now, or the snapshot is not open yet */
	struct pinned_step kept;   /* the step of the open snapshot */
	struct store_task opening; /* of the snapshot */
	bool is_opening;
	struct memory window;
	struct memory buffer; /* for copies from NVMe: a half for each of the first two lanes */
	struct memory
		memory; /* the client's own, which is written and never read; absent until it is mapped */
	int memory_fd;	/* of its file, until it is mapped; -1: none */
	struct {
		struct work work;
		struct memory memory;
		uint64_t bytes;
		int status;
		const char *reason;
	} mapping; /* while is_mapping */
	bool is_mapping;

	struct pending *pending; /* the request that it works for, or NULL */
	enum { OPENING, REFRESHING, READING, MAPPING } activity;
	struct view view;
	struct selection chosen; /* for the next view, if has_chosen */
	bool has_chosen;
	/* What a request reads, in any order. */
	struct reader_piece {
		struct copy_range range;
		char *target;
	} * pieces;				/* owned */
	size_t piece_count, piece, pieces_here; /* the next that is begun, and those that are copied */
	struct reader_lane lanes[READER_LANES];
	bool has_given_up; /* the request that lanes still copy for was answered already */
};

/* The longest refusal. */
#define READER_MESSAGE (HEADROOM_TEXT + 200)

/* Host memory: of the node's budget and the reader's user's. */
int reader_charge(struct reader *reader, uint64_t bytes, char *message, size_t size);
void reader_uncharge(struct reader *reader, uint64_t bytes);

/* Something of the reader has ended. If it is closed, and nothing else is in flight, it is freed. */
void reader_release(struct reader *reader);

/* Answers the request, if there is one, and takes back what has not begun. A reader that is not open yet is
 * gone then. */
void reader_fail(struct reader *reader, int r, const char *message);

/* False, and the request is answered: the reader cannot take it now. */
bool reader_check(struct reader *reader, struct pending *pending);

/* A copy of a read is in flight, perhaps of one that was given up. */
bool reader_is_copying(const struct reader *reader);

/* Fails because of a copy. which: what values, for the message. */
void reader_fail_values(struct reader *reader, const char *which, const struct copy *copy, int status);

/* 0, or why the job cannot be read. */
int reader_check_job(const struct job *job, char *message, size_t size);

/* Of a new reader; and once it has its buffer, before anything is copied. */
void reader_view_init(struct reader *reader);
void reader_buffer_init(struct reader *reader);
void reader_view_clear(struct reader *reader);
void reader_free_pieces(struct reader *reader);
/* Gives the client's memory back. */
void reader_memory_clear(struct reader *reader);

/* In the job's turn, of one that works for a request. */
void reader_go_on_opening(struct reader *reader);
void reader_go_on_refreshing(struct reader *reader);
void reader_go_on_reading(struct reader *reader);

#endif
