/* A scene for the daemon's handlers: a real node on a loop and a folder of its own, and actors, which are
 * clients in this process: their answers are recorded instead of sent, and what the answers' descriptors
 * share is mapped. */
#ifndef TIERD_TESTS_UNIT_DAEMON_SUPPORT_H
#define TIERD_TESTS_UNIT_DAEMON_SUPPORT_H

#include <event2/event.h>
#include <semaphore.h>

#include "common/size.h"
#include "daemon/life/state.h"
#include "daemon/session/client.h"
#include "proto/pages.h"
#include "proto/unit_layout.h"
#include "proto/vocabulary.h"

#define ACTOR_REQUESTS 256
#define ACTOR_ANSWERS 512
#define ACTOR_EVENTS 64
#define ACTOR_UNITS 64

struct job;

struct scene {
	struct event_base *loop;
	struct node *node;
	char folder[256];
	struct actor *actors;	   /* that have entered */
	struct blockade *blockade; /* that has begun */
	struct event *device;	   /* by which the loop hears of devices, once it has been asked not to */
};

/* What the node is made from; 0 is the default everywhere. */
struct scene_options {
	uint64_t host_budget, capacity;
	size_t background_bytes;
	bool is_without_nvme, is_plain_io;
	bool reads_nothing_ahead; /* of the states of optimizers */
	const char *fault;
};

/* 0, or what node_new() returned; then only scene_close() may follow. */
int scene_open(const struct scene_options *options, struct scene *scene);
/* A blockade ends, devices are heard, and actors that are still there die. */
void scene_close(struct scene *scene);

/* Another node on what the last one has left on the disk; no actor is there. */
int scene_restart(const struct scene_options *options, struct scene *scene);

/* Waits for one thing to happen on the loop. */
void scene_wait(struct scene *scene);
/* What devices have done is not heard of until they are heard again. */
void scene_hear_nothing_of_devices(struct scene *scene);
void scene_hear_of_devices(struct scene *scene);
/* Turns the loop until no job has anything in flight. */
void scene_settle(struct scene *scene);
/* Until what jobs have given back is gone. */
void scene_await_disposals(struct scene *scene);

/* The host memory that it would not give up; the rest comes and goes in its own time. */
uint64_t promised_bytes(const struct job *job);

/* Keeps all threads of a pool busy until it ends. */
struct blockade {
	struct scene *scene;
	sem_t started, end;
	unsigned count, done;
	struct blocker {
		struct work work;
		struct blockade *blockade;
	} blockers[8];
};

/* When it returns, what was submitted before has been run, and nothing else will be. */
void blockade_begin(struct scene *scene, struct workers *workers, struct blockade *blockade);
/* Waits until the job has its memory. Of that one further piece or segment may have its pages, or none; those
 * of the others do not come. */
void blockade_begin_for_pages(struct scene *scene, const struct job *job, struct blockade *blockade);
/* Again, or of one that has not begun: does nothing. */
void blockade_end(struct blockade *blockade);

struct answer {
	uint32_t number;
	int status;		   /* 0 or negative errno */
	Tierd__Wire__Reply *reply; /* owned */
};

struct actor {
	struct port port; /* first */
	struct scene *scene;
	struct actor *next; /* of the scene's */
	struct client *client;
	uint32_t last_number;
	struct answer answers[ACTOR_ANSWERS];
	unsigned answer_count;
	/* Of its last requests: the answers that are still to come. */
	struct asked {
		uint32_t number;
		unsigned answers_left;
	} asked[ACTOR_ANSWERS];
	unsigned ended_epochs;
	/* What it has heard as one who watches, the first ones. */
	struct happened {
		char event[32], job[80], text[256];
		uint64_t step;
	} happened[ACTOR_EVENTS];
	unsigned happened_count;
	uint64_t lost_count;
	bool is_slow;	/* there is no room for more events */
	bool is_closed; /* the daemon wants to end the connection */
	char reason[1024];

	/* What it has got from its job. */
	uint32_t job, rank, epoch, buffer_count, unit_count;
	uint32_t refused_pushes; /* silent ones of this epoch, as far as its steps say */
	bool has_clip_norm;	 /* its steps say how they are clipped */
	float clip_norm;
	bool is_dropping;      /* they are dropped */
	const uint8_t *absent; /* its pushes have no gradients of these tensors, a bit for each; NULL: they
				  have all */
	size_t absent_bytes;
	enum wire_moments moments;
	struct unit_layout layouts[ACTOR_UNITS]; /* of the first units */
	uint64_t elements[ACTOR_UNITS];		 /* and of their first tensors */
	uint32_t defined;
	uint64_t step, buffer_bytes, last_buffer_bytes, cache_offset;
	struct memory_view {
		char *base;
		size_t bytes;
	} window, directory, arena, cache, leases, gradients, statistics, reader_window, gpu_directory,
		gpu_leases;
	int gpu_memory;	   /* its descriptor; 0: none */
	int gpu_gradients; /* the same */
	int reader_file;   /* for memory of a reader, once it was given; 0: none */
};

/* -ENOMEM: the daemon has none for another client. */
int actor_enter(struct scene *scene, struct actor *actor);
/* As if its process had died. Keeps the recorded answers until it enters again. */
void actor_die(struct actor *actor);

/* Sends a request; returns its number. */
uint32_t actor_send(struct actor *actor, Tierd__Wire__Request *request);
const struct answer *actor_find(const struct actor *actor, uint32_t number, unsigned nth);
/* Answers that are still to come; of silent pushes, none. */
unsigned actor_outstanding(const struct actor *actor);
/* Waits for the nth answer (from 0) to a request. */
const struct answer *actor_await(struct actor *actor, uint32_t number, unsigned nth);
/* Sends, waits, and returns the status. */
int actor_ask(struct actor *actor, Tierd__Wire__Request *request, const Tierd__Wire__Reply **ret_reply);
/* The message of the last answer. */
const char *actor_message(const struct actor *actor);

/* ---- The requests of a training ---- */

struct actor_job {
	const char *name;
	uint32_t rank, world_size, stage, mode, nonfinite;
	uint64_t host_budget, blob_bytes, gradient_bytes;
	uint32_t snapshots;
	uint32_t parameter_placement, optimizer_placement, gradient_placement, optimizer, durability;
	enum wire_moments moments;
	uint32_t group_count; /* up to 3, of the rates 0 and 1, and 1 with moments in bf16; 0: one, of the
				 rate 1 */
	float clip_norm;
	uid_t owner;
	const char *source; /* of the first user; NULL: none */
	bool has_owner, is_strict, is_takeover, is_reconnect, is_pushed_once, is_drafted;
};

int actor_open(struct actor *actor, const struct actor_job *job);
/* Enters, and opens it. */
int actor_join(struct scene *scene, struct actor *actor, const struct actor_job *job);

struct actor_tensor {
	const char *name;
	uint32_t format, initializer;
	uint64_t elements;
	bool is_frozen;
	uint32_t gradient_format; /* 0: its own */
};

/* A unit of that name and tensors; they are tensors of one dimension. */
int actor_define(struct actor *actor, const char *name, const struct actor_tensor *tensors, size_t count);

/* Units "u0", "u1", … of as many elements, of ones, in a format. */
int actor_define_sizes(struct actor *actor, uint32_t format, const uint64_t *elements, unsigned count);
/* So many units of one bf16 tensor each. */
int actor_define_units(struct actor *actor, unsigned count, uint64_t elements);

/* A job on NVMe, "play", whose units are packs of their own, with room in host memory for some, all of which
 * is there; its only rank is ready. */
#define PLAY_UNITS 8
#define PLAY_ELEMENTS (UINT64_C(1) << 20)
#define PLAY_HOST_BUDGET (46 * MIB)
struct job *actor_play(struct scene *scene, struct actor *actor);
/* The job "play" in host memory, of so many fp32 units, of ones, which are packs of their own. */
void actor_join_in_host_memory(struct scene *scene, struct actor *actor, unsigned units, uint64_t elements);
/* It is durable, and its only rank is ready: that dies, and the job gives its host memory back. */
void actor_leave_released(struct scene *scene, struct actor *actor);

uint32_t actor_send_ready(struct actor *actor, int timeout_ms);
/* Maps what the answer brought. */
int actor_ready(struct actor *actor);
int actor_finish_ready(struct actor *actor, uint32_t number);
/* The only two ranks of a job. */
void actor_ready_both(struct actor *first, struct actor *second);

/* By request, as if the unit were not resident. ret_address: of the unit's slot. */
int actor_gather(struct actor *actor, uint32_t unit, uint64_t version, const void **ret_address);
/* pushed: of the buffers that can take the unit. */
uint32_t actor_send_buffer_wait(struct actor *actor, uint32_t unit, uint32_t pushed);
uint32_t actor_send_gather(struct actor *actor, uint32_t unit, uint64_t version, bool is_blocking);
void actor_release(struct actor *actor, uint32_t unit);
uint32_t actor_leases(const struct actor *actor, uint32_t unit);
/* Where the unit's section begins in its slot. */
uint64_t actor_section(const struct actor *actor, uint32_t unit, int section);

/* Fills buffer 0 with count fp32 or bf16 values, or that of the largest unit, which is pushed from its own
 * whatever the actor says. */
void actor_fill(struct actor *actor, uint32_t format, uint64_t count, float value);
uint32_t actor_send_push(struct actor *actor, uint32_t unit, uint32_t buffer);
uint32_t actor_send_silent_push(struct actor *actor, uint32_t unit, uint32_t buffer);
/* From there, whether the unit may lie there or not. */
uint32_t actor_send_push_at(struct actor *actor, uint32_t unit, uint32_t buffer, uint64_t offset);
/* Of a unit's tensors, from the coming step on. */
int actor_set_groups(struct actor *actor, uint32_t unit, const uint32_t *groups, size_t count);
/* As they are then. ret_groups: valid as an answer is. */
int actor_get_groups(struct actor *actor, uint32_t unit, const Tierd__Wire__GroupsReply **ret_groups);

uint32_t actor_send_step(struct actor *actor, float learning_rate);
/* Announces such a step. */
int actor_begin_step(struct actor *actor, float learning_rate, uint32_t micro_batches);
/* It has been applied. */
int actor_take_step(struct actor *actor);
/* Of the optimizer none; answered at once. */
int actor_finish(struct actor *actor);
/* The first answer comes when values may be written, the second one when they are applied. */
uint32_t actor_send_write_begin(struct actor *actor);
int actor_end_write(struct actor *actor, bool is_cancelled);
/* Of what is in the window: values in the tensor's format, or masters. */
int actor_write(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count);
uint32_t actor_send_masters(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t first,
			    uint64_t count);
/* What the optimizer keeps, of the first unit, or of any. */
uint32_t actor_send_state(struct actor *actor, uint32_t tensor, const char *state, uint64_t step,
			  uint64_t first, uint64_t count);
uint32_t actor_send_unit_state(struct actor *actor, uint32_t unit, uint32_t tensor, const char *state,
			       uint64_t step, uint64_t first, uint64_t count);
uint32_t actor_send_read(struct actor *actor, uint32_t unit, uint32_t tensor, const char *state,
			 uint64_t first, uint64_t count, uint64_t version);
int actor_read(struct actor *actor, uint32_t unit, uint32_t tensor, const char *state, uint64_t first,
	       uint64_t count, uint64_t version);
/* Many pieces with one request. */
uint32_t actor_send_read_many(struct actor *actor, Tierd__Wire__TensorPiece *pieces, size_t count,
			      uint64_t version);
/* In pieces, each of whose bytes is fill; at the next step. */
int actor_set_blob(struct actor *actor, const char *key, uint64_t size, char fill);
/* To the window; ret_blob: what the answer says. */
int actor_get_blob(struct actor *actor, const char *key, uint64_t offset, Tierd__Wire__BlobReply *ret_blob);
int actor_set_phase(struct actor *actor, const char *name);
uint32_t actor_send_leave(struct actor *actor, bool is_at_once);
/* The job "play". */
int actor_drop(struct actor *actor, bool is_forced);

/* ---- Those of a reader ---- */

uint32_t actor_send_open_reader(struct actor *actor, const char *job);
/* ret_reader: its number. The window is that of the last one. */
int actor_open_reader(struct actor *actor, const char *job, uint32_t *ret_reader);
/* pieces NULL: those that are kept already. */
uint32_t actor_send_refresh(struct actor *actor, uint32_t reader, const Tierd__Wire__ReaderPiece *pieces,
			    size_t count);
uint32_t actor_send_reader_read(struct actor *actor, uint32_t reader, const Tierd__Wire__ReaderRead *read);
/* Of bytes 0 the file is given. */
int actor_reader_memory(struct actor *actor, uint32_t reader, uint64_t bytes);
uint32_t actor_send_reader_read_many(struct actor *actor, uint32_t reader, Tierd__Wire__TensorPiece *pieces,
				     size_t count, uint64_t step);
uint32_t actor_send_close_reader(struct actor *actor, uint32_t reader);

#endif
