/* A backend keeps a model's parameters, gradients and optimizer state: tierd does, or, as the reference,
 * plain memory. The trainer reaches them through this table only. */
#ifndef GPT_BACKEND_H
#define GPT_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "model.h"

struct options;
struct team;
struct tierd_statistics;
struct backend;

/* The optimizer's slots come last: not each has both. */
enum backend_state { STATE_PARAMETER, STATE_MASTER, STATE_SLOT_0, STATE_SLOT_1, STATE_COUNT };

/* The same on every rank. */
struct backend_rates {
	float learning_rate;
	float gradient_scale; /* multiplies the sum over ranks and micro-batches */
	float loss_scale;     /* what the loss was multiplied with */
};

struct backend_result {
	uint64_t step; /* its number, counted from 1 */
	double gradient_norm;
	bool is_skipped;       /* gradients were not finite */
	float next_loss_scale; /* for the coming step */
};

/* Where a rank is in its batches: the state of its generator, of which the draw-th step comes next. */
struct backend_position {
	uint64_t seed, draw;
};

/* Nanoseconds that the trainer spent waiting in the backend. */
struct backend_times {
	uint64_t gather, push, step;
};

/* Every operation returns 0 or a negative errno. -ESTALE, which any but release may return: a rank died;
 * after abandon and ready all ranks go on from the step that ready tells. */
struct backend_ops {
	/* Before the first ready: whether somebody has to write the parameters' values. */
	int (*is_new)(struct backend *backend, bool *ret_is_new);
	/* Writes initial values of count elements, before the first ready. */
	int (*write)(struct backend *backend, unsigned unit, unsigned tensor, uint64_t first, uint64_t count,
		     const float *values);
	/* Waits for all ranks; tells how many steps the state contains, and sets loss_scale. -ENODATA:
	 * somebody has to write values; every rank is told. */
	int (*ready)(struct backend *backend, uint64_t *ret_step);
	/* Drops what this rank holds: leases, gradients, a step under way. */
	void (*abandon)(struct backend *backend);
	/* After the job's last step: a backend that needs no other rank for what is left. -EAGAIN and others:
	 * it has steps to take. NULL: the other ranks are here. */
	int (*outlive)(struct backend *backend, struct backend **ret_backend);

	/* Names the phase whose order of gathers follows. */
	int (*phase)(struct backend *backend, const char *name);
	/* Parameters to read, until release. */
	int (*gather)(struct backend *backend, unsigned unit, struct unit_view *ret_parameters);
	int (*release)(struct backend *backend, unsigned unit);
	/* The same in the memory of a GPU, for what is queued in that stream. -EOPNOTSUPP: it has none there.
	 * NULL: neither. */
	int (*gather_on)(struct backend *backend, unsigned unit, void *stream,
			 struct unit_view *ret_parameters);
	int (*release_on)(struct backend *backend, unsigned unit, void *stream);
	/* Gradients, of which every element is to be written, until push adds them to the step's sum as this
	 * rank's next micro-batch. */
	int (*gradients)(struct backend *backend, unsigned unit, struct unit_view *ret_gradients);
	int (*push)(struct backend *backend, unsigned unit);
	/* The same there. -EOPNOTSUPP and -ENOMEM: from host memory alone. NULL: neither. */
	int (*gradients_on)(struct backend *backend, unsigned unit, void *stream,
			    struct unit_view *ret_gradients);
	int (*push_on)(struct backend *backend, unsigned unit, void *stream);

	/* Keeps this rank's position with the state of the coming step; and tells that of the last one:
	 * -ENOENT, there is none. NULL: the state does not outlive the trainer. */
	int (*keep)(struct backend *backend, const struct backend_position *position);
	int (*kept)(struct backend *backend, struct backend_position *ret_position);
	/* Tells the rates of the coming step, and the micro-batches of each rank, before the first push.
	 * NULL: nobody wants to know. */
	int (*announce)(struct backend *backend, const struct backend_rates *rates, uint64_t micro_batches);
	/* Begins the step; the next begins only after wait has told the result of this one. */
	int (*step)(struct backend *backend, const struct backend_rates *rates);
	int (*wait)(struct backend *backend, struct backend_result *ret_result);

	/* Reads count elements of a tensor: parameters in their format, the rest as fp32. */
	int (*read)(struct backend *backend, unsigned unit, unsigned tensor, enum backend_state state,
		    uint64_t first, uint64_t count, void *ret_data);
	/* -EOPNOTSUPP where nobody counts. */
	int (*statistics)(struct backend *backend, struct tierd_statistics *ret_statistics);
	/* Why the last operation failed, for people. */
	const char *(*message)(struct backend *backend);

	/* Leaves in good order and frees the backend in every case. */
	int (*close)(struct backend *backend);
	/* Leaves at once. */
	void (*free)(struct backend *backend);
};

/* Embedded first in every backend's own struct. */
struct backend {
	const struct backend_ops *ops;
	const char *name;
	unsigned ranks;	      /* that this process plays, one after the other */
	unsigned acting_rank; /* whose gradients are pushed */
	float loss_scale;     /* of the coming step, once the last one's result is known */
	bool is_stepping;     /* a step has begun whose result nobody has asked for */
	const struct options *options;
	struct backend_times times;
	uint64_t step; /* the one under way, for the crash point */
};

/* The reference: plays all ranks of the world. */
int plain_backend_new(const struct options *options, const struct model *model, struct team *team,
		      struct backend **ret_backend);

/* Connects to tierd and joins the job; an error has been reported. */
int tierd_backend_new(const struct options *options, const struct model *model, struct backend **ret_backend);

/* A job that has taken its last step, to be read without its other ranks. -EAGAIN: it has not; or whatever
 * tierd says. Nothing is reported. */
int finished_backend_new(const struct options *options, const struct model *model,
			 struct backend **ret_backend);

/* The front doors: they check, take the time, and crash where --crash-at says so. */
int backend_gather(struct backend *backend, unsigned unit, struct unit_view *ret_parameters);
int backend_release(struct backend *backend, unsigned unit);
int backend_gather_on(struct backend *backend, unsigned unit, void *stream, struct unit_view *ret_parameters);
int backend_gradients(struct backend *backend, unsigned unit, struct unit_view *ret_gradients);
int backend_gradients_on(struct backend *backend, unsigned unit, void *stream,
			 struct unit_view *ret_gradients);
int backend_push(struct backend *backend, unsigned unit);
int backend_push_on(struct backend *backend, unsigned unit, void *stream);
int backend_step(struct backend *backend, const struct backend_rates *rates);
/* -ENODATA if no step is under way. */
int backend_wait(struct backend *backend, struct backend_result *ret_result);
/* Drops what is held after -ESTALE, waits for all ranks, and tells the step at which they stand. */
int backend_recover(struct backend *backend, uint64_t *ret_step);

struct backend *backend_free(struct backend *backend);
DEFINE_FREEP(struct backend *, backend_free)

/* Dies at once if --crash-at names this point of this step: gather, push, step, stepped, end. */
void backend_crash_point(const struct backend *backend, const char *point);

#endif
