/* A ticket is a request on its way: blocking calls use one too. All functions need the node's lock. */
#ifndef TIERD_CLIENT_TICKET_H
#define TIERD_CLIENT_TICKET_H

#include "client/library/connection/connection.h"

#define TICKET_MAX_FDS 6
#define TICKET_EVENTS 3

struct attachment;
struct tierd_ticket;

/* What came: a status with its text, a body, and descriptors. The handler takes those it keeps. */
struct answer {
	int status;
	const char *text;
	const Tierd__Wire__Reply *reply;
	int fds[TICKET_MAX_FDS];
};

/* What a kind of request does with its replies. */
struct ticket_kind {
	const char *name; /* for messages */
	unsigned replies; /* 1; a step has 2 */
	int body;	  /* of a good reply, TIERD__WIRE__REPLY__BODY_…; 0: it makes no difference */
	/* Handles a reply and completes the ticket, sends it again (ticket_send_again), or ends the
	 * connection (ticket_violation). The ticket may be freed then. The job may be gone (NULL) only where
	 * is_jobless. NULL: a ticket of which only the status counts. */
	void (*answer)(struct tierd_ticket *ticket, const struct answer *answer);
	/* The user gives up a ticket: takes back what it has, or asks tierd not to go on. May be NULL. */
	void (*abandon)(struct tierd_ticket *ticket);
	void (*dispose)(struct tierd_ticket *ticket); /* frees what the ticket owns; may be NULL */
	/* The connection is lost, and with it the answer: notes what that leaves. May be NULL. */
	void (*lose)(struct tierd_ticket *ticket);
	/* Somebody comes to wait for the last reply. May be NULL. */
	void (*hurry)(struct tierd_ticket *ticket);
	bool is_jobless;
	bool begins_epoch; /* and does not fail because the one before has ended */
};

struct tierd_ticket {
	const struct ticket_kind *kind;
	struct tierd_node *node; /* NULL: disconnected */
	uint32_t generation;	 /* the node's */
	struct tierd_job *job;	 /* NULL: none, or it was left */
	struct queue pending;	 /* while replies are to come */
	struct queue all;
	uint32_t request;
	uint32_t epoch;
	uint32_t refused_pushes;     /* of a step: those that were known when it was sent */
	unsigned fd_count;	     /* descriptors that a good reply brings; with a cache one more */
	bool is_reducing;	     /* of a step: with the optimizer none, it has a third event */
	bool is_hurried;	     /* of a step: tierd knows that somebody waits for it to be durable */
	bool is_silent;		     /* of a push: an answer comes only if it is refused */
	bool is_orphan;		     /* the user has given it up; it frees itself after the last reply */
	int fd;			     /* that a reply has brought; -1: none */
	struct tierd_reader *reader; /* whose request it is; NULL: no reader's; gone, if is_orphan */
	struct {
		bool is_here, is_unseen;
		int status;
		char *text;	 /* owned; NULL: none */
	} events[TICKET_EVENTS]; /* by enum tierd_event */
	union {
		struct {
			uint32_t unit;
			uint64_t offset, version;
			bool is_blocking, is_leased;
			bool is_of_many;		     /* whoever asks for them notes them all */
			const struct attachment *attachment; /* that the lease is in */
		} gather;
		struct {
			uint32_t buffer;
			uint64_t number; /* of the pushes of this buffer */
		} push;
		Tierd__Wire__JobOpenReply open;
		struct tierd_step_result step;
		struct tierd_job_state state;
		struct {
			struct unit *unit; /* owned until it is the job's */
			uint32_t index;
		} define;
		Tierd__Wire__StatisticsReply statistics;
		Tierd__Wire__BlobReply blob;
		struct {
			uint32_t *numbers; /* the caller's room; unless is_orphan */
			size_t count;
		} groups;
		Tierd__Wire__ReaderOpenReply reader_open;
	};
};

/* For requests whose reply is a bare status. */
extern const struct ticket_kind ticket_plain;

/* Not sent yet: the caller fills in what the kind needs. job may be NULL. */
int ticket_new(struct tierd_node *node, struct tierd_job *job, const struct ticket_kind *kind,
	       struct tierd_ticket **ret_ticket);

/* Sends the request. The ticket is freed if that fails. */
int ticket_send(struct tierd_ticket *ticket, const Tierd__Wire__Request *request);

/* From a handler: the same ticket, another request. */
void ticket_send_again(struct tierd_ticket *ticket, const Tierd__Wire__Request *request);

/* Notes an event; frees the ticket if it is an orphan and nothing is to come. */
void ticket_complete(struct tierd_ticket *ticket, enum tierd_event event, int status, const char *text);

/* Ends the connection: the reply makes no sense. */
void ticket_violation(struct tierd_ticket *ticket, const char *what);

/* For handlers: an error completes the ticket, and there is nothing else in the reply. */
bool ticket_is_refused(struct tierd_ticket *ticket, const struct answer *answer);

/* Completes the ticket, which keeps the reply's first descriptor. */
void ticket_complete_fd(struct tierd_ticket *ticket, const struct answer *answer);

/* Waits for an event: its status, with the text as this thread's message; -ETIMEDOUT; or the connection's
 * error. */
int ticket_await(struct tierd_ticket *ticket, enum tierd_event event, uint64_t deadline);

/* Gives the ticket up: it is freed now or after its last reply. */
void ticket_abandon(struct tierd_ticket *ticket);

/* A ticket of this kind was given up, and its answer is still to come. */
bool ticket_is_given_up(const struct tierd_job *job, const struct ticket_kind *kind);

/* Sends a request with a plain reply and waits for it. */
int ticket_call(struct tierd_job *job, const Tierd__Wire__Request *request);
int ticket_call_until(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline);
/* The same with a ticket that is not sent yet, of any kind: its handler has what came. It is given up then.
 */
int ticket_run(struct tierd_ticket *ticket, const Tierd__Wire__Request *request, uint64_t deadline);
/* The same, but the ticket is the caller's to give up if it returns 0: it has what came. */
int ticket_ask(struct tierd_ticket *ticket, const Tierd__Wire__Request *request, uint64_t deadline);

/* Locks the node of a ticket, and returns 0, where it is of this kind and has its result; ticket_exit()
 * follows then, with the node that the ticket has: a ticket that outlived its node has no lock. Without the
 * lock. */
int ticket_enter_result(const struct tierd_ticket *ticket, const struct ticket_kind *kind);
void ticket_exit(struct tierd_node *node);

/* The reply to a request of this number, if somebody still wants it. */
void ticket_answer(struct tierd_node *node, uint32_t request, const Tierd__Wire__Reply *reply);

void ticket_fail_all(struct tierd_node *node, int status, const char *text);

/* The silent requests of the job, up to this number, are done: nobody will answer them. */
void ticket_settle_silent(const struct tierd_job *job, uint32_t request);

/* The answers to requests of the job that are on their way do not come. */
void ticket_lose_job(const struct tierd_job *job);

/* The job's handle is about to go: its tickets fail with -ECANCELED. */
void ticket_leave_job(struct tierd_node *node, const struct tierd_job *job);

/* The node is about to go: users' tickets stay, as they are. */
void ticket_leave_node(struct tierd_node *node);

#endif
