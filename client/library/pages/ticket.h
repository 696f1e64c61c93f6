/* A ticket is a request that was sent and not answered yet. Blocking calls have one, too. All functions need
 * the node's lock. */
#ifndef TIERD_CLIENT_TICKET_H
#define TIERD_CLIENT_TICKET_H

#include "client/library/connection/connection.h"
#include "client/library/pages/attachment.h"

#define TICKET_MAX_FDS 6
#define TICKET_EVENTS 3

struct tierd_ticket;

/* A reply: a status with its text, a body, and descriptors. Those that the handler does not take are closed.
 */
struct answer {
	int status;
	const char *text;
	const Tierd__Wire__Reply *reply;
	int fds[TICKET_MAX_FDS];
};

/* What a kind of request does with its replies. */
struct ticket_kind {
	const char *name;  /* for messages */
	int body;	   /* of a good reply, TIERD__WIRE__REPLY__BODY_…; 0: it makes no difference */
	unsigned fd_count; /* descriptors that a good reply brings */
	/* Handles a reply: completes the ticket, sends it again (ticket_send_again), or ends the connection
	 * (ticket_violation). Afterwards the ticket may be freed. The job may be NULL only where is_jobless.
	 * answer NULL: ticket_complete_answer(). */
	void (*answer)(struct tierd_ticket *ticket, const struct answer *answer);
	/* The user has freed the ticket: gives back what it holds, or asks tierd to stop. May be NULL. */
	void (*abandon)(struct tierd_ticket *ticket);
	void (*dispose)(struct tierd_ticket *ticket); /* frees what the ticket owns; may be NULL */
	/* The connection was lost before the reply came: notes what may be left behind. May be NULL. */
	void (*lose)(struct tierd_ticket *ticket);
	/* A thread begins to wait for the last reply. May be NULL. */
	void (*hurry)(struct tierd_ticket *ticket);
	bool is_jobless;
	bool has_durable;  /* of a step: a second reply says that it is durable */
	bool begins_epoch; /* does not fail when the epoch before it ends */
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
	unsigned fd_count;	     /* as its kind has it, or 0; with a cache one more */
	bool is_reducing;	     /* of a step: with the optimizer none, it has a third event */
	bool is_hurried;	     /* of a step: tierd knows that somebody waits for it to be durable */
	bool is_attaching;	     /* of a ready: it is answered, and memory of a GPU is asked for */
	bool is_silent;		     /* of a push: tierd replies only if it refuses */
	bool is_orphan;		     /* the user has freed it; it frees itself after the last reply */
	int fd;			     /* that a reply has brought; -1: none */
	struct tierd_reader *reader; /* whose request it is; NULL: none. Dangling, if is_orphan */
	struct {
		bool is_here, is_unseen;
		int status;
		char *text;	 /* owned; NULL: none */
	} events[TICKET_EVENTS]; /* by enum tierd_event */
	union {
		struct {
			enum place place;
			uint32_t unit;
			uint64_t offset, version;
			bool is_blocking, is_leased;
			bool is_of_many;		     /* the caller traces all of them itself */
			bool has_arrived;		     /* on the GPU: nothing is to be waited for */
			uint32_t event;			     /* else for this */
			const struct attachment *attachment; /* that the lease is in */
		} gather;
		struct {
			uint32_t buffer;
			uint64_t number; /* of the pushes of this buffer */
		} push;
		struct {
			Tierd__Wire__JobOpenReply reply;
			struct tierd_job *job; /* that is opened; dangling, if is_orphan */
		} open;
		struct tierd_step_result step;
		struct tierd_job_state state;
		struct {
			struct unit *unit; /* owned until it is the job's */
			uint32_t index;
		} define;
		Tierd__Wire__StatisticsReply statistics;
		Tierd__Wire__BlobReply blob;
		struct {
			uint32_t *numbers; /* the caller's array; unless is_orphan */
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

/* From a handler: sends another request with the same ticket. 0. */
int ticket_send_again(struct tierd_ticket *ticket, const Tierd__Wire__Request *request);

/* Notes an event; frees the ticket if it is an orphan and nothing is to come. */
void ticket_complete(struct tierd_ticket *ticket, enum tierd_event event, int status, const char *text);

/* Ends the connection: the reply makes no sense. */
void ticket_violation(struct tierd_ticket *ticket, const char *what);

/* For handlers: whether the reply is an error, with which it completes the ticket then. */
bool ticket_is_refused(struct tierd_ticket *ticket, const struct answer *answer);

/* Completes the ticket with the reply's status. It keeps the first descriptor. */
void ticket_complete_answer(struct tierd_ticket *ticket, const struct answer *answer);

/* Waits for an event: its status, with the text as this thread's message; -ETIMEDOUT; or the connection's
 * error. */
int ticket_await(struct tierd_ticket *ticket, enum tierd_event event, uint64_t deadline);

/* Gives the ticket up: it is freed now or after its last reply. */
void ticket_abandon(struct tierd_ticket *ticket);

/* Whether a ticket of this kind was abandoned and is not answered yet. */
bool ticket_is_given_up(const struct tierd_job *job, const struct ticket_kind *kind);

/* Sends a request with a plain reply and waits for it. */
int ticket_call(struct tierd_job *job, const Tierd__Wire__Request *request);
int ticket_call_until(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline);
/* The same with a ticket of any kind that is not sent yet. It is abandoned afterwards: its handler has used
 * the reply. */
int ticket_run(struct tierd_ticket *ticket, const Tierd__Wire__Request *request, uint64_t deadline);
/* The same, but where it returns 0 the ticket has what the reply brought, and the caller abandons it. */
int ticket_ask(struct tierd_ticket *ticket, const Tierd__Wire__Request *request, uint64_t deadline);

/* Checks that the ticket is of this kind and has its result, and locks its node. If it returns 0,
 * ticket_exit() follows with the ticket's node, which is NULL where the ticket outlived it. Called without
 * the lock. */
int ticket_enter_result(const struct tierd_ticket *ticket, const struct ticket_kind *kind);
void ticket_exit(struct tierd_node *node);

/* Handles the reply to the request of this number, if there is a ticket for it. */
void ticket_answer(struct tierd_node *node, uint32_t request, const Tierd__Wire__Reply *reply);

void ticket_fail_all(struct tierd_node *node, int status, const char *text);

/* Completes the job's silent requests up to this number: no reply will come. */
void ticket_settle_silent(const struct tierd_job *job, uint32_t request);

/* Tells the handlers of the job's tickets that their replies will not come. */
void ticket_lose_job(const struct tierd_job *job);

/* Before the job's handle is freed: its tickets fail with -ECANCELED. */
void ticket_leave_job(struct tierd_node *node, const struct tierd_job *job);

/* Before the node is freed: tickets that users hold stay, as they are. */
void ticket_leave_node(struct tierd_node *node);

#endif
