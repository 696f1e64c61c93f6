/* libtierd: train a model whose state lives in tierd, the node's daemon for host memory and NVMe.
 *
 * Every call returns 0 or a negative errno unless it says otherwise; tierd_message() then tells a person
 * what happened. All calls may be made from several threads. Blocking calls give up with -ETIMEDOUT after
 * the node's timeout (tierd_set_timeout; default: they wait as long as the daemon lives). A forked child
 * has no mappings: its calls return -ECHILD. Each call has a manual page of its name.
 *
 * A pointer that is NULL, where "or NULL" does not stand behind it, and a structure without its size, are -EINVAL.
 *
 * An epoch ends when a rank dies or leaves before a step is decided. From then on every call but
 * tierd_release (and its kin), tierd_discard, tierd_job_ready and the closing ones returns -ESTALE, until
 * tierd_job_ready has gathered all ranks again and told them the step at which they stand. */
#ifndef TIERD_H
#define TIERD_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define TIERD_MAX_DIMENSIONS 8
#define TIERD_MAX_BLOB_KEY 64
#define TIERD_MAX_BLOB_BYTES (64ul << 20)
#define TIERD_MAX_NAME 128 /* bytes in the name of a unit, tensor or phase, without the final zero */
#define TIERD_MAX_TENSORS 10000 /* in a unit */
#define TIERD_MAX_JOB_NAME 63
#define TIERD_MAX_SNAPSHOT_NAME 63
#define TIERD_MAX_GROUPS 1024
#define TIERD_MAX_WORLD_SIZE 1024

struct tierd_node;   /* a connection to the daemon */
struct tierd_job;    /* this rank's membership of a job */
struct tierd_ticket; /* an asynchronous request */
struct tierd_reader; /* a look at a job, without being a rank of it */

/* What went wrong in this thread's last failed call: the thing, the cause, and where there is one the remedy.
 * Never NULL. Valid until this thread's next call. */
const char *tierd_message(void);

/* The library's version, such as "0.1.0". */
const char *tierd_version(void);

/* ---- Node ------------------------------------------------------------------------------------------- */

/* Connects to the daemon at socket_path, or, if that is NULL, at $TIERD_SOCKET, else
 * $XDG_RUNTIME_DIR/tierd/tierd.sock where that exists, else /run/tierd/tierd.sock.
 * -ENOENT or -ECONNREFUSED: no daemon; -EPROTONOSUPPORT: no common version. */
int tierd_connect(const char *socket_path /* or NULL */, struct tierd_node **ret_node);

struct tierd_connect_options {
	size_t size;             /* sizeof(struct tierd_connect_options) */
	const char *socket_path; /* as of tierd_connect */
	int reconnect_ms;        /* how long it tries to open a connection, again and again; negative: $TIERD_RECONNECT_MS, else 0 */
	bool (*is_interrupted)(void *argument); /* or NULL: asked ten times a second in each call that waits; true ends it, -ETIMEDOUT */
	void *argument;                         /* of is_interrupted */
};
#define TIERD_CONNECT_OPTIONS_INIT { sizeof(struct tierd_connect_options), NULL, -1, NULL, NULL }

/* As tierd_connect, but keeps trying for reconnect_ms while no daemon listens. And if the connection is lost later,
 * because tierd was restarted or has ended it, the next call that needs it opens it again, for reconnect_ms,
 * with its jobs. A job that stands where this rank does goes on without an error; if work of this rank was
 * lost, its calls return -ESTALE, as at the end of an epoch, and say what. Without a daemon within
 * reconnect_ms they return -ECONNRESET from then on. */
int tierd_connect_with(const struct tierd_connect_options *options, struct tierd_node **ret_node);

/* Ends the connection, and with it what is left of its jobs' memberships (as tierd_job_detach). */
struct tierd_node *tierd_disconnect(struct tierd_node *node /* or NULL */);

/* How long blocking calls wait, in milliseconds; negative: without limit. */
int tierd_set_timeout(struct tierd_node *node, int timeout_ms);

/* ---- Job -------------------------------------------------------------------------------------------- */

enum tierd_open_mode {
	TIERD_EITHER,  /* resume the job if it exists, else create it */
	TIERD_CREATE,  /* -EEXIST if it exists */
	TIERD_RESUME,  /* -ENOENT if it does not */
	TIERD_REPLACE, /* take the place of the one that exists; -EBUSY if a rank of it is alive */
};

enum tierd_optimizer_kind {
	TIERD_ADAMW, /* weight decay acts on the parameters; state: "m", "v" */
	TIERD_ADAM,  /* weight decay is a part of the gradient; state: "m", "v" */
	TIERD_SGD,   /* state: "momentum", if some group has one when the job is opened */
	TIERD_LION,  /* state: "m" */
	TIERD_NONE,  /* each rank updates a part itself, see tierd_step_finish(); no state; learning rates and groups mean nothing */
};
enum tierd_placement { TIERD_PLACE_DEFAULT, TIERD_PLACE_HOST, TIERD_PLACE_NVME, TIERD_PLACE_AUTO };

/* The format of an optimizer's state ("m", "v", "momentum") between its steps. */
enum tierd_moments {
	TIERD_MOMENTS_FP32,
	TIERD_MOMENTS_BF16, /* half the bytes; rounded stochastically, by the job's seed: docs/numerics.md, "Moments" */
	TIERD_MOMENTS_INT8, /* a quarter: a byte each, and 4 for every 256; rounded in the same way */
};

/* What a step does whose summed gradients hold a NaN or an infinity. */
enum tierd_nonfinite {
	TIERD_NONFINITE_SKIP,   /* the step counts, updates nothing, and its result says skipped */
	TIERD_NONFINITE_REPORT, /* the step fails with -EDOM naming the unit; gradients are dropped, the step number stays */
};

/* A parameter group: how the optimizer treats the tensors that name its index. An optimizer looks at what it has. */
struct tierd_group {
	size_t size;         /* sizeof(struct tierd_group) */
	float learning_rate; /* multiplies the step's learning rate */
	float beta1, beta2;  /* AdamW, Adam, Lion */
	float epsilon;       /* AdamW, Adam */
	float weight_decay;
	float momentum;      /* SGD; 0: none */
	float dampening;     /* SGD with momentum */
	bool nesterov;       /* SGD with momentum and no dampening */
	uint32_t moments;    /* enum tierd_moments; the same in all steps of the job */
};
#define TIERD_GROUP_INIT { sizeof(struct tierd_group), 1.0f, 0.9f, 0.999f, 1e-8f, 0.01f, 0.0f, 0.0f, false, 0 }

/* What members of a group may do with another user's job. */
enum tierd_sharing {
	TIERD_PRIVATE,     /* for them it does not exist */
	TIERD_SHARE_READ,  /* see it, and read its parameters: see tierd_reader_open */
	TIERD_SHARE_TRAIN, /* be ranks of it, too */
};

/* Each step; never, so that the job ends with the daemon. */
#define TIERD_DURABILITY_DEFAULT 0
#define TIERD_DURABILITY_STEP UINT32_MAX
#define TIERD_DURABILITY_NONE (UINT32_MAX - 1)
#define TIERD_NO_SNAPSHOTS UINT32_MAX
#define TIERD_AS_MEASURED (-1.0f)

struct tierd_job_options {
	size_t size;         /* sizeof(struct tierd_job_options) */
	const char *name;    /* [A-Za-z0-9][A-Za-z0-9._-]{0,62}, without ".." */
	uint32_t rank;       /* 0 .. world_size - 1 */
	uint32_t world_size; /* 1 .. TIERD_MAX_WORLD_SIZE */
	uint32_t stage;      /* ZeRO stage: 0 nothing is partitioned, 1 optimizer state, 2 + gradients, 3 + parameters */
	uint32_t mode;       /* enum tierd_open_mode */
	uint32_t optimizer;  /* enum tierd_optimizer_kind */
	float clip_norm;     /* clip gradients to this global 2-norm; 0: no clipping */
	uint32_t nonfinite;  /* enum tierd_nonfinite */
	uint32_t parameter_placement; /* enum tierd_placement; NVMe needs stage 3. Default: NVMe at stage 3 where the daemon has paths, else host. Auto: host where there is room for it */
	uint32_t optimizer_placement; /* enum tierd_placement. Default: NVMe where the daemon has paths, else host. Auto: host where there is room for it */
	uint64_t host_budget;         /* most bytes of host memory for this job, cache included; 0: what the daemon gives by default, or has left */
	uint32_t gradient_buffers;    /* per rank, as large as the largest unit's gradients; a unit far larger than the others has one more of its own; 0: 2. See gradient_bytes */
	bool strict;                  /* a step in which nobody pushed some trainable unit fails with -ENODATA naming it */
	bool takeover;                /* end another session of this user that holds the rank */
	uint64_t seed;                /* of the daemon's initializers */
	uint32_t group_count;         /* 0: one group, TIERD_GROUP_INIT */
	const struct tierd_group *groups;
	float loss_scale;             /* of the first step, and of all if it is static */
	uint32_t loss_scale_interval; /* dynamic: it grows after so many steps without overflow; 0: static */
	float loss_scale_growth;      /* dynamic: times this, above 1 */
	float loss_scale_backoff;     /* dynamic: after an overflow, times this, between 0 and 1 */
	float loss_scale_minimum;     /* dynamic: but never below this */
	uint32_t io_weight;           /* 1 .. 10000: this job's share of the NVMe devices beside others of its user; 0: 100, or what the job has */
	uint64_t nvme_budget;         /* bytes on NVMe for this job; 0: what the daemon gives by default, or has left */
	int64_t owner;                /* the user whose job it is, who shares it; -1: the caller's own */
	uint32_t sharing;             /* enum tierd_sharing: what others may; the owner says */
	uint32_t share_group;         /* the group that they are members of */
	uint32_t gradient_placement;  /* enum tierd_placement, of the sums of gradients; NVMe needs stage 2 or 3. Default: host if they fit there, else NVMe */
	uint32_t durability;          /* how often applied steps are committed, of a job whose state lies on NVMe: seconds, 1 .. 86400, or one of these. Default: what the daemon says, or each step */
	uint64_t blob_bytes;          /* room for the blobs of all ranks, of host memory and, if the job is durable, of NVMe: see tierd_blob_set. 0: the job has none */
	const char *source;           /* a new job's tensors take the values of this job's (or "job@snapshot"'s) of the same names, before initializers; NULL: none. Of a job that has a state it means nothing */
	int64_t source_owner;         /* the user whose job the source is, who shares it; -1: the caller's own */
	bool partial;                 /* tensors that have no source may have initializers instead */
	uint32_t snapshots;           /* 1 .. 14: room on NVMe for so many snapshots, each as large as the state without what is
					 frozen; 0: as the administrator has set, else none; TIERD_NO_SNAPSHOTS: none */
	bool with_optimizer;          /* take what the optimizer keeps there, and how often tensors were updated, too; else it begins anew */
	uint64_t snapshot_every;      /* each such step is kept as snapshot step-N, by itself; 0: none is */
	uint32_t snapshot_keep;       /* of those so many, the last ones; 0: as many as there is room for */
	bool pushed_once;             /* each rank pushes a unit once in a step, at most; more are refused, by the push, or by the tierd_step after it. With one rank gradients then take no more memory than as they are pushed */
	bool drafted;                 /* units of a new job may be defined after others have been written: values wait in a draft, on NVMe where the daemon has paths, until all ranks are ready. Of a job that has a state it means nothing */
	uint64_t gradient_bytes;      /* per rank, one room for the gradients of as many units as have a place in it at once, of gradient_buffers at most (0: 64); it has at least the bytes of the largest unit's. 0: buffers of fixed sizes */
	int32_t gpu;                  /* the GPU on which this rank gathers, too (see tierd_gather_on), as CUDA counts them in this process; -1: none */
	uint64_t gpu_budget;          /* bytes of that GPU's memory for this job, the same for all ranks there; 0: as much as it has use for, and there is */
	bool gpu_gradients;           /* this rank pushes from that GPU: gpu_budget has room for its gradient buffers there (see tierd_gradients_on), too */
	float gpu_update;             /* GPUs of this job's ranks update so much of it: a fraction, 0 .. 1, the same for all ranks there; TIERD_AS_MEASURED: as much as makes the step shortest. The bits are the same */
};
#define TIERD_JOB_OPTIONS_INIT { sizeof(struct tierd_job_options), NULL, 0, 1, 3, TIERD_EITHER, TIERD_ADAMW, 0.0f, \
	TIERD_NONFINITE_SKIP, TIERD_PLACE_DEFAULT, TIERD_PLACE_DEFAULT, 0, 0, false, false, 0, 0, NULL, \
	1.0f, 0, 2.0f, 0.5f, 1.0f, 0, 0, -1, TIERD_PRIVATE, 0, TIERD_PLACE_DEFAULT, TIERD_DURABILITY_DEFAULT, 0, \
	NULL, -1, false, 0, false, 0, 0, false, false, 0, -1, 0, false, 0 }

enum tierd_job_status {
	TIERD_NEW = 1, /* never trained: its tensors need values */
	TIERD_RESUMED, /* its state is that of the applied step */
};

struct tierd_job_state {
	uint32_t status; /* enum tierd_job_status */
	uint32_t epoch;
	uint64_t step; /* the last applied step; 0: none yet */
	float loss_scale; /* multiply the loss of the coming step with it */
	uint64_t gpu_bytes; /* of the memory that the job has on this rank's GPU, once it is ready; 0: none, and tierd_gather_on says why */
};
/* Joins the job as one of its ranks. The first rank's options are the job's; a rank that disagrees gets
 * -EINVAL and the first difference. -EBUSY: the rank is held by a live process (see takeover).
 * Until the first ready, ranks join what the first of them created, whatever their mode (but RESUME). tierd_job_state() then says whether the job is NEW.
 * A durable job without ranks may be opened with another world size, stage, pushed_once, host_budget, gradient_buffers or
 * gradient_bytes, which are the job's from then on: its values keep their bits. -EBUSY: ranks are there. Nothing else may differ: tierd_job_options(3). */
int tierd_job_open(struct tierd_node *node, const struct tierd_job_options *options, struct tierd_job **ret_job);
int tierd_job_state(struct tierd_job *job, struct tierd_job_state *ret_state);

/* Waits until all ranks are here, with equal units, and every tensor has a value; then plans memory, runs the
 * initializers, and begins an epoch. -ETIMEDOUT names the missing ranks, -ENODATA the tensors without values,
 * -ENOSPC and -ENOMEM say what the job needs and what there is. timeout_ms < 0: the node's timeout.
 * Afterwards no unit can be defined. After -ESTALE it is called again; units stay as they are. */
int tierd_job_ready(struct tierd_job *job, int timeout_ms, struct tierd_job_state *ret_state /* or NULL */);
int tierd_job_ready_begin(struct tierd_job *job, int timeout_ms, struct tierd_ticket **ret_ticket);

/* Leaves the job in good order: waits until this rank's steps are applied, and, of a job that is durable, until
 * they are that. Others are not disturbed, unless they need this rank for another step. The job's state stays, to be
 * opened again. -EIO: it broke meanwhile, and the message says what is lost. Frees the handle in every case, also with
 * an error.
 *
 * Leases may outlive this, tierd_job_detach and tierd_disconnect: then the handle is freed with the last of them, and the
 * values under them, and the offsets of their views, stay as they were, in a copy of this process's own, for which nobody
 * waits. Until then tierd_release, tierd_release_many, tierd_release_all and tierd_release_on may be called, and everything else is
 * -EBADF. Of values on a GPU there is no copy: they stay mapped, and may change.
 * Other threads may release, and read under their leases, during these calls; nothing else. In a forked child a release is
 * -ECHILD, as ever. */
int tierd_job_close(struct tierd_job *job);

/* Leaves at once: a step that is not decided is dropped, the other ranks get -ESTALE. The state stays.
 * Frees the handle in every case. */
int tierd_job_detach(struct tierd_job *job);

/* ---- Units ------------------------------------------------------------------------------------------- */

enum tierd_format {
	TIERD_FP32 = 1,
	TIERD_BF16 = 2,
	TIERD_FP16 = 3,
	TIERD_BYTES = 4, /* of any meaning (int64, two 4-bit numbers, …): an element is a byte; frozen, without initializer */
};

enum tierd_initializer {
	TIERD_INITIALIZE_NONE,    /* some rank writes the values with tierd_tensor_write before tierd_job_ready */
	TIERD_INITIALIZE_ZEROS,
	TIERD_INITIALIZE_ONES,
	TIERD_INITIALIZE_NORMAL,  /* a: mean, b: standard deviation, not negative */
	TIERD_INITIALIZE_UNIFORM, /* a: low, b: high; [low, high) */
};

struct tierd_tensor {
	size_t size;           /* sizeof(struct tierd_tensor) */
	const char *name;      /* unique in the job */
	const char *alias;     /* another name of the same tensor (tied weights), or NULL */
	uint32_t format;       /* enum tierd_format */
	uint32_t dimensions;   /* 0 (a scalar) .. TIERD_MAX_DIMENSIONS */
	uint64_t shape[TIERD_MAX_DIMENSIONS]; /* with a 0: no elements */
	uint32_t group;        /* index of the parameter group, at first: see tierd_groups_set */
	bool is_frozen;        /* never updated: no gradients, no optimizer state */
	uint32_t initializer;  /* enum tierd_initializer */
	double a, b;           /* see enum tierd_initializer */
	const char *slice_of;  /* name of the larger tensor of which these are rows, or NULL */
	uint64_t slice_row;    /* the first of them */
	uint64_t slice_rows;   /* rows of the larger tensor */
	const char *dtype;     /* of TIERD_BYTES: what they are in a file, dtype and shape as in "I64[2,3]"; NULL: "U8", in the tensor's shape */
	uint32_t gradient_format; /* enum tierd_format of its gradients: its own, or TIERD_FP32; 0: its own. All trained tensors of a unit that have one format, and whose moments have one, have the same */
};
#define TIERD_TENSOR_INIT { sizeof(struct tierd_tensor), NULL, NULL, TIERD_BF16, 0, { 0 }, 0, false, \
	TIERD_INITIALIZE_NONE, 0.0, 0.0, NULL, 0, 0, NULL, 0 }

/* Defines the next unit; every rank defines the same units in the same order, all of them before the first
 * tierd_tensor_write of any rank, which lays the job out (-EBUSY: it comes too late), unless the job was opened with
 * drafted: then until tierd_job_ready. ret_unit: its index,
 * counted from 0; NULL: who counts needs none. The strings are copied. A rank whose unit differs from the
 * other ranks' gets -EINVAL and the first difference. */
int tierd_unit_define(struct tierd_job *job, const char *name, const struct tierd_tensor *tensors,
		      size_t tensor_count, uint32_t *ret_unit /* or NULL */);

/* ---- Gather and release ------------------------------------------------------------------------------ */

/* Where a unit's tensors lie, for as long as its lease is held. */
struct tierd_view {
	char *base;              /* parameters are mapped read-only: writing to them faults */
	const uint64_t *offsets; /* of each tensor, in bytes from base; TIERD_NO_OFFSET: not in this view */
	uint64_t version;        /* the step that the values contain */
};
#define TIERD_NO_OFFSET UINT64_MAX

#define TIERD_ALL UINT32_MAX /* in the place of a unit's or tensor's number: all of them */

/* The address of a tensor in a view, 256-byte aligned, elements in row-major order; the tensor is its index in
 * the definition of the unit. */
static inline void *tierd_at(const struct tierd_view *view, size_t tensor)
{
	return view->base + view->offsets[tensor];
}

/* Takes a lease on the whole unit, with the values of this rank's last step. Costs no system call while the unit
 * is resident. -EINVAL: no such unit; -EDEADLK: it can never fit beside what is leased (the message names the
 * holders); -EIO: its values cannot be read. */
int tierd_gather(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters);
/* The same without waiting: -EAGAIN where tierd_gather would ask the daemon. Starts nothing: tierd_gather, called next,
 * asks for the unit and waits, and tierd_prefetch asks for it without waiting. No lock, and no message to the daemon. */
int tierd_gather_try(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters);
int tierd_gather_begin(struct tierd_job *job, uint32_t unit, struct tierd_ticket **ret_ticket);
/* Blocks until the ticket of a gather is done and passes its lease to the caller. Frees the ticket unless
 * -ETIMEDOUT or -EINVAL. */
int tierd_gather_end(struct tierd_ticket *ticket, int timeout_ms, struct tierd_view *ret_parameters);

/* The same for many units, in this order: all of them, or, if one cannot be had, none. Those that are resident cost less
 * than one by one, the others come side by side. All have to fit beside each other; a unit may occur several times, with
 * as many leases. ret_parameters: a view for each, whose base is NULL after an error: those of tierd_gather(). */
int tierd_gather_many(struct tierd_job *job, const uint32_t *units /* or NULL if count is 0 */, size_t count,
		      struct tierd_view *ret_parameters /* or NULL if count is 0 */);

/* Gives one lease back; its addresses are dead. -EINVAL: this rank has none on the unit. */
int tierd_release(struct tierd_job *job, uint32_t unit);
/* One on each of these. -EINVAL: there was none on one of them; the message names the first such unit, and the others are
 * given back all the same. */
int tierd_release_many(struct tierd_job *job, const uint32_t *units /* or NULL if count is 0 */, size_t count);
/* All that this rank holds in host memory: its leases, and gradient buffers that it has not pushed. For who gives a step up,
 * as after -ESTALE. Not leases on a GPU: tierd_release_on knows which stream uses them. -EBUSY: a gather was begun, and its ticket neither ended nor freed. */
int tierd_release_all(struct tierd_job *job);

/* The same in the memory of this rank's GPU (see the options), for what is queued there: stream is a CUstream or
 * cudaStream_t of that GPU's primary context, which is also CUDA's runtime's, NULL its default stream. The addresses of the
 * view are the GPU's, and what the stream is given from now on sees the values. Nobody waits for the copy here. A unit
 * that is there costs no call of CUDA's. The driver cannot map this memory read-only: a kernel that writes there breaks
 * the parameters of all ranks on that GPU, until they are updated. Leases here and by tierd_gather are independent.
 * -EOPNOTSUPP: the job has no memory there, and the message says why; -EINVAL: also a stream of another context. */
int tierd_gather_on(struct tierd_job *job, uint32_t unit, void *stream /* or NULL */, struct tierd_view *ret_parameters);
/* Gives such a lease back, at once: the unit is overwritten only when what the stream has been given so far has ended.
 * What other streams do with the unit the stream has to wait for. It must be there until the next step is closed, or the
 * job left. -EINVAL: this rank has no lease on the unit there, or, and then it still has it, a stream of another
 * context. */
int tierd_release_on(struct tierd_job *job, uint32_t unit, void *stream /* or NULL */);

/* How many leases this rank has on the unit, of all connections and in all memory; TIERD_ALL: on all units. -EINVAL: no such unit. */
int tierd_leases(struct tierd_job *job, uint32_t unit, uint64_t *ret_leases);

/* Where this rank sees parameters and gradients: all views point into these. For who registers memory with a device. */
struct tierd_mappings {
	size_t size;              /* sizeof(struct tierd_mappings) */
	const void *parameters;   /* mapped read-only; some of it may be of no unit */
	uint64_t parameter_bytes;
	void *gradients;          /* NULL: this rank has none */
	uint64_t gradient_bytes;
	uint64_t page_bytes;      /* of the parameters' memory: 4096, or that of reserved huge pages */
	uint64_t number;          /* of these mappings, from 1: others have a higher one, even at the same addresses */
};
#define TIERD_MAPPINGS_INIT { sizeof(struct tierd_mappings), NULL, 0, NULL, 0, 0, 0 }
/* They stay until the job is left. Where a connection was lost, the next call that needs one may map others without a word,
 * and the next tierd_job_ready does: the number tells. Those before them go with their last lease. -EINVAL: the job is
 * not ready. */
int tierd_mappings(struct tierd_job *job, struct tierd_mappings *ret_mappings);

/* Hints that these units are wanted soon, in this order. */
int tierd_prefetch(struct tierd_job *job, const uint32_t *units /* or NULL if count is 0 */, size_t count);

/* Names the phase in which this rank is ("train" at first): each phase has a gather order of its own. */
int tierd_phase(struct tierd_job *job, const char *name);

/* ---- Gradients and the step -------------------------------------------------------------------------- */

/* A shared buffer for the unit's gradients, in the formats and with the tensors of its parameters (frozen ones have
 * no place in it), zeroed when handed out first; a second call before the push returns the same buffer as it is.
 * Blocks while all buffers that it could have are on their way to the daemon; -ENOBUFS: this rank itself holds them. */
int tierd_gradients(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_gradients);

enum tierd_gradients_flags {
	TIERD_GRADIENTS_OVERWRITE = 1, /* the caller writes every element: they are not zeroed, and hold anything of this rank's own */
};
/* The same, by flags; of a buffer that is held already they mean nothing. -EINVAL: an unknown flag. */
int tierd_gradients_with(struct tierd_job *job, uint32_t unit, uint32_t flags, struct tierd_view *ret_gradients);

/* Hands the buffer over: it is this rank's next micro-batch of the unit, and its addresses are dead.
 * -EINVAL: no buffer of this unit is held. With a ticket: done when the gradients are summed. */
int tierd_push(struct tierd_job *job, uint32_t unit);
int tierd_push_begin(struct tierd_job *job, uint32_t unit, struct tierd_ticket **ret_ticket);
/* The same, of a unit of which not all tensors have a gradient in this micro-batch (experts and branches that were not
 * used): absent has a flag for each of its tensors, in their order; NULL: all have one. What the buffer has of those that
 * are absent counts as zeros. A tensor of which no rank had a gradient in any micro-batch stays as it is in this step: its
 * values, its optimizer state and its number of updates. -EINVAL: the unit has another number of tensors. -EOPNOTSUPP, as
 * of a push that is refused later: the job's store was made by an older tierd. */
int tierd_push_with(struct tierd_job *job, uint32_t unit, const bool *absent /* or NULL */, size_t tensor_count,
		    struct tierd_ticket **ret_ticket /* or NULL */);

/* The same in the memory of this rank's GPU (see the options), which only this rank has there: the view's addresses are the
 * GPU's, and whatever zeroes the buffer is in the order of stream, as for tierd_gather_on. A unit's buffer is in one of the
 * two memories: -EBUSY: in the other. The bytes of a buffer are there twice, and both count. -EOPNOTSUPP: the job has no memory there; -ENOMEM: none for
 * gradients, and the message says why: push from host memory. -EINVAL: also a stream of another context. */
int tierd_gradients_on(struct tierd_job *job, uint32_t unit, uint32_t flags, void *stream /* or NULL */,
		       struct tierd_view *ret_gradients);
/* Hands such a buffer over with what the stream has been given so far, which has to write all of it, or to wait for who
 * does. Nobody waits for that here. absent, tensor_count, ret_ticket: as for tierd_push_with. The stream must be there until the next
 * step is closed, or the job left. The sums have the bits of a push from host memory. */
int tierd_push_on(struct tierd_job *job, uint32_t unit, const bool *absent /* or NULL */, size_t tensor_count,
		  void *stream /* or NULL */, struct tierd_ticket **ret_ticket /* or NULL */);

/* Gives the buffer back without pushing it. What a stream still writes to one on a GPU comes before what it is given later;
 * another stream has to wait for that one. */
int tierd_discard(struct tierd_job *job, uint32_t unit);

/* The same on every rank, else -EINVAL with the first difference. */
struct tierd_rates {
	size_t size;                        /* sizeof(struct tierd_rates) */
	float learning_rate;                /* times the group's factor; has to be given, 0 too (NaN is refused), but for the optimizer none */
	float gradient_scale;               /* multiplies the sum over ranks and micro-batches */
	float loss_scale;                   /* what the loss was multiplied with: the gradients are divided by it; 0: the job's */
	uint32_t group_count;               /* 0: the groups of the step before; else as many as at open */
	const struct tierd_group *groups;   /* replace the job's groups from this step on */
	float clip_norm;                    /* gradients are clipped to this global 2-norm; 0: they are not; negative: the job's */
	bool drop;                          /* what was pushed is thrown away and nothing is updated; the step counts as a skipped one */
};
#define TIERD_RATES_INIT { sizeof(struct tierd_rates), NAN, 1.0f, 0.0f, 0, NULL, -1.0f, false }

struct tierd_step_result {
	uint64_t step;        /* its number, counted from 1 */
	double gradient_norm; /* of the scaled sum, before clipping */
	bool is_skipped;      /* gradients were not finite, or dropped: nothing was updated */
	float loss_scale;     /* that it was taken with */
	float next_loss_scale; /* the same on all ranks: multiply the loss of the coming step with it */
};

/* Closes this rank's part of the step; when all ranks have, the step is decided. Leases held on trainable units,
 * or gradient buffers, give -EBUSY and their names. With ret_ticket NULL it waits until the step is applied, and
 * returns what tierd_ticket_wait would. An earlier push that was refused fails it, once, and the step is not taken:
 * called again, it takes the step without that push. */
int tierd_step(struct tierd_job *job, const struct tierd_rates *rates, struct tierd_ticket **ret_ticket /* or NULL */);

/* With the optimizer none a step is taken by its ranks. When all of them have closed their parts, and the sums are
 * measured, it is TIERD_REDUCED: ret_ticket must not be NULL, and is waited for until then. From there to
 * tierd_step_finish() each rank reads the gradients of its part with tierd_tensor_read(…, "gradient", …), as an
 * optimizer takes them: summed, scaled and clipped; its masters, still of the version before, with "master"; and writes
 * the new ones with tierd_tensor_write, as masters. Its part is what the ranks agree on: its shard (tierd_tensor_shard;
 * the same ranges at every stage), or whole tensors; of several that write an element one counts.
 * What nobody writes keeps its value. When all ranks have finished, the step is decided and applied like any
 * other; until then the death of a rank costs it.
 * A step that is skipped (its result says so after TIERD_REDUCED) needs no finish, and gives -EBUSY; so does one
 * that is not reduced yet, or finished already. Between its step and its finish a rank can neither push, nor step,
 * nor gather trainable units: -EBUSY. */
int tierd_step_finish(struct tierd_job *job);

/* Tells rates and the number of micro-batches early, at most once before each tierd_step, which must then give the
 * same rates; a rank that pushes a unit more often than announced gets -EINVAL, and so does one that announces more than
 * one micro-batch to a job of pushed_once. Once all ranks have, units whose gradients are complete may be updated while
 * the others are still computed: nobody sees that before the step, nor if there is none. */
int tierd_step_begin(struct tierd_job *job, const struct tierd_rates *rates, uint32_t micro_batches);

/* Says in which parameter groups the unit's tensors are from this rank's next step on: a number for each, in their order.
 * All ranks say the same before they close that step, else its tierd_step gives -EINVAL with the first difference. When it
 * is decided the tensors are there, also if it is skipped, and it updates them by the rates that it has for those groups.
 * They stay there, and are durable with the step; tierd_unit_define goes on to say what the job was made of. What the
 * optimizer keeps of a tensor stays as it is: -EINVAL, if a group has another format of moments than the one that the
 * tensor was defined with, or there is no such group. Called again before the step the last call counts; a step that
 * fails keeps it for the next one, the end of the epoch drops it. -EBUSY: a step of this rank is on its way, or announced
 * by tierd_step_begin. -EOPNOTSUPP: the job's store was made by an older tierd. */
int tierd_groups_set(struct tierd_job *job, uint32_t unit, const uint32_t *groups, size_t tensor_count);
/* In which they are in this rank's next step. */
int tierd_groups_get(struct tierd_job *job, uint32_t unit, uint32_t *ret_groups, size_t tensor_count);

/* ---- Tensors ------------------------------------------------------------------------------------------ */

/* Writes count elements from element first on, before the first tierd_job_ready, and after all units are defined, or
 * between tierd_write_begin and tierd_write_end: data is in the tensor's format, or fp32 where is_master is set (bf16 and
 * fp16 parameters then get a master of full precision). Any rank may write any piece. -EBUSY: at no other time;
 * -EOPNOTSUPP: a frozen tensor keeps its first values, and these are others.
 * With the optimizer none, new masters too, from TIERD_REDUCED to tierd_step_finish, in place of the gradients; is_master
 * must be set. -EDOM: a value is not finite, none is taken; -ENODATA: no rank has a gradient of the tensor in this step,
 * which updates it not; -EBUSY: not at this time. */
int tierd_tensor_write(struct tierd_job *job, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count,
		       const void *data /* or NULL if count is 0 */, bool is_master);

/* Writes what the optimizer keeps of count elements, as fp32, at the same times; state is a slot's name (see enum
 * tierd_optimizer_kind). Before the first tierd_job_ready it was kept after that step, the same in all calls: the job
 * begins there, and each of its trainable units counts as updated so often; what is not written is zero. Later step is
 * how often this tensor was updated, the same in all calls about it; what is not written stays. -ENODATA: the tensor has no
 * such state; -EBUSY: not at this time. */
int tierd_tensor_write_state(struct tierd_job *job, uint32_t unit, uint32_t tensor, const char *state, uint64_t step,
			     uint64_t first, uint64_t count, const void *data /* or NULL if count is 0 */);

/* Lets all ranks write values between two steps: waits until all of them have called it, and their steps are applied.
 * Then any of them writes any pieces (tierd_tensor_write, tierd_tensor_write_state), until all have called
 * tierd_write_end. What is written counts from then on, all at once, and nothing of it before; what is not written
 * stays. A writing takes the number of a step, so no two states of a job have the same, and is committed as one: after
 * -ESTALE tierd_job_ready tells by the step whether it counts. Until its tierd_write_end a rank reads what was before,
 * and can neither push, nor step, nor gather trainable units: -EBUSY. -EBUSY: this rank holds leases on trainable units
 * or gradient buffers (they are named), has pushed gradients, or announced a step; -EINVAL: other ranks have closed a
 * step instead; -ETIMEDOUT: called again, it waits on. */
int tierd_write_begin(struct tierd_job *job);

/* This rank writes no more. The ticket is that of a step; with ret_ticket NULL it waits until all ranks have ended, and
 * their values are applied. -EBUSY: no tierd_write_begin came before. An error, and all ranks get it, leaves everything as
 * it was: -ECANCELED: a rank has cancelled it; -ENOSPC, -ENOMEM, -EIO: a write has failed with that, which its caller
 * has heard; -ESTALE. -ETIMEDOUT: called again, it waits on. */
int tierd_write_end(struct tierd_job *job, struct tierd_ticket **ret_ticket /* or NULL */);

/* The same, but nothing of what any rank has written counts; for who finds that it cannot write all. Does not wait. */
int tierd_write_cancel(struct tierd_job *job);

/* Reads count elements from element first on, of the last step that this rank has closed. state is "parameter" (in its
 * format), or, as fp32, "master", what the optimizer keeps (see enum tierd_optimizer_kind), or "step", which is in each
 * element how often the tensor was updated. -ENODATA: the tensor has no such state. What the optimizer keeps has PyTorch's
 * names, too ("exp_avg", "exp_avg_sq", "momentum_buffer"), here as wherever a state is named. With the optimizer none also
 * "gradient", from TIERD_REDUCED to tierd_step_finish: -ENODATA, too, where no rank has one of the tensor in this step, or
 * masters were written over them; -EBUSY as in tierd_tensor_write. */
int tierd_tensor_read(struct tierd_job *job, uint32_t unit, uint32_t tensor, const char *state, uint64_t first,
		      uint64_t count, void *ret_data /* or NULL if count is 0 */);

/* What tierd_read_many, or tierd_reader_read_many, is to read: as of tierd_tensor_read. */
struct tierd_read {
	size_t size;           /* sizeof(struct tierd_read) */
	uint32_t unit, tensor;
	const char *state;
	uint64_t first, count; /* elements of the tensor */
	void *ret_data;        /* or NULL if count is 0 */
};
#define TIERD_READ_INIT { sizeof(struct tierd_read), 0, 0, "parameter", 0, 0, NULL }

/* The same for many pieces, of any tensors and states but "gradient": a request for as many as fit into 1 MiB, instead
 * of one for each. After an error what is in the buffers is not known. */
int tierd_read_many(struct tierd_job *job, const struct tierd_read *reads /* or NULL if count is 0 */, size_t count);

/* The part of a tensor's elements that this rank's shard of the unit holds; count may be 0. */
int tierd_tensor_shard(struct tierd_job *job, uint32_t unit, uint32_t tensor, uint64_t *ret_first,
		       uint64_t *ret_count);

/* ---- Blobs ------------------------------------------------------------------------------------------- */

/* A trainer's own bytes (where it is in its data, random states, statistics) that stay with the job's state and go where
 * that goes: they come back at the step at which the job stands. Each rank has 16 keys of its own, and 16 more are
 * shared by all; a key has 1 to TIERD_MAX_BLOB_KEY printable ASCII characters without blanks. */
enum tierd_blob_flags {
	TIERD_BLOB_SHARED = 1, /* one for all ranks; else each rank has its own under the key */
};

/* Keeps a copy of size bytes, up to TIERD_MAX_BLOB_BYTES, under the key. It counts from the step on that this rank
 * closes next, also if that is skipped; of several that set a shared one with the same step the highest rank's counts. One
 * that is set from tierd_step to tierd_step_finish, or from tierd_write_begin to tierd_write_end, is of that step.
 * If that step is lost or fails, so is the blob: set it again. -ENOSPC: blob_bytes, or the keys, are used up; -ENOMEM:
 * no host memory for it until then; -ESTALE as all calls. */
int tierd_blob_set(struct tierd_job *job, const char *key, const void *bytes /* or NULL if size is 0 */, size_t size,
		   uint32_t flags);

/* The same of taking it away. */
int tierd_blob_delete(struct tierd_job *job, const char *key, uint32_t flags);

/* Copies the blob of the last applied step to buffer, and its size to ret_size; from tierd_job_open on. With capacity 0
 * only the size is told. -ENOENT: there is none; -ERANGE: it is larger than the capacity,
 * ret_size says by what. */
int tierd_blob_get(struct tierd_job *job, const char *key, void *buffer /* or NULL if capacity is 0 */,
		   size_t capacity, size_t *ret_size, uint32_t flags);

/* ---- Snapshots ---------------------------------------------------------------------------------------- */

/* Keeps the applied step of the job, once it is durable, under a name (by the rule of job names), beside the job's state: for
 * tierctl rollback, and for readers. It takes a commit, whatever the job's size; ranks go on meanwhile. -EEXIST; -ENOSPC: the
 * room that the job has (the option snapshots, tierctl reserve) is used, the message says by what; -EOPNOTSUPP: the job is not
 * durable; -EBUSY: it has no values yet. */
int tierd_snapshot(struct tierd_job *job, const char *name);
int tierd_snapshot_begin(struct tierd_job *job, const char *name, struct tierd_ticket **ret_ticket);

/* ---- Tickets ------------------------------------------------------------------------------------------ */

enum tierd_event {
	TIERD_DONE,    /* the request is finished; of a step: applied */
	TIERD_DURABLE, /* of a step: it survives a crash; -EOPNOTSUPP if the job is not durable */
	TIERD_REDUCED, /* of a step with the optimizer none: its gradients can be read, or it was skipped, or has failed */
};

/* Waits for the event; returns the request's status, or -ETIMEDOUT. timeout_ms 0 only looks; < 0: the node's
 * timeout. Who waits for TIERD_DURABLE, and does not only look, need not wait for the seconds of the job's durability: all
 * that is applied by then is committed at once. */
int tierd_ticket_wait(struct tierd_ticket *ticket, enum tierd_event event, int timeout_ms);

/* A descriptor to poll for reading: when it is readable, look with tierd_ticket_wait(…, 0). All tickets of a node share
 * it; the node owns it. */
int tierd_ticket_descriptor(const struct tierd_ticket *ticket);

/* After TIERD_DONE: what the step did; what tierd_job_ready found. After TIERD_REDUCED: what the step did so far, but for
 * next_loss_scale, which is not known yet. -EINVAL for a ticket of another call. */
int tierd_ticket_step_result(struct tierd_ticket *ticket, struct tierd_step_result *ret_result);
int tierd_ticket_job_state(struct tierd_ticket *ticket, struct tierd_job_state *ret_state);

/* Gives the ticket up. A gather that was still wanted is cancelled, or its lease released; a step or push goes on. */
struct tierd_ticket *tierd_ticket_free(struct tierd_ticket *ticket /* or NULL */);

/* ---- Readers ------------------------------------------------------------------------------------------ */

struct tierd_reader_options {
	size_t size;      /* sizeof(struct tierd_reader_options) */
	const char *name; /* of the job */
	int64_t owner;    /* the user whose job it is; -1: the caller's own */
	const char *snapshot; /* of the job, which it reads; NULL: the job as it is now */
	bool as_snapshot;     /* of the last applied step: the job keeps it, as a snapshot that has no name and ends with the reader */
};
#define TIERD_READER_OPTIONS_INIT { sizeof(struct tierd_reader_options), NULL, -1, NULL, false }

/* Reads a job that has values, whether it is being trained or idle, without a rank: trainers do not wait for readers.
 * For the owner, administrators, and members of the group with which it is shared; those of a job shared for reading
 * get its parameters alone. All that a reader gets belongs to one applied step, until it is refreshed. -ENOENT: there is no such job;
 * -EBUSY: it has no values yet, or there are too many readers; -EIO: it is broken. as_snapshot, as tierd_snapshot: -ENOSPC,
 * -EOPNOTSUPP, -EPERM. */
int tierd_reader_open(struct tierd_node *node, const struct tierd_reader_options *options,
		      struct tierd_reader **ret_reader);

/* Frees the handle, and what was kept, in every case. */
int tierd_reader_close(struct tierd_reader *reader);

struct tierd_reader_state {
	size_t size;
	uint64_t step;       /* to which everything that is read belongs */
	uint32_t unit_count;
};
#define TIERD_READER_STATE_INIT { sizeof(struct tierd_reader_state), 0, 0 }
int tierd_reader_state(struct tierd_reader *reader, struct tierd_reader_state *ret_state);

/* What the job's ranks have defined; initializers are not told. Strings are valid until tierd_reader_close. -EINVAL: no
 * such unit or tensor. */
int tierd_reader_unit(struct tierd_reader *reader, uint32_t unit, const char **ret_name, uint32_t *ret_tensor_count);
int tierd_reader_tensor(struct tierd_reader *reader, uint32_t unit, uint32_t tensor, struct tierd_tensor *ret_tensor);

/* Finds a tensor by its name or alias. -ENOENT. */
int tierd_reader_find(struct tierd_reader *reader, const char *name, uint32_t *ret_unit, uint32_t *ret_tensor);

/* Elements of the job's state. */
struct tierd_piece {
	size_t size;       /* sizeof(struct tierd_piece) */
	const char *state; /* as in tierd_tensor_read */
	uint32_t unit;     /* or TIERD_ALL, with all their tensors */
	uint32_t tensor;   /* or TIERD_ALL of the unit that have this state, whole */
	uint64_t first, count; /* elements of the tensor */
};
#define TIERD_PIECE_INIT { sizeof(struct tierd_piece), "parameter", TIERD_ALL, TIERD_ALL, 0, 0 }

/* Moves on to the last step that is applied: waits until none is on its way, and what is kept is copied. Pieces
 * (replacing those of an earlier refresh; NULL: the same ones) are kept in the daemon's memory, beside the job's: they
 * stay readable when the job goes on. -ENOMEM says what they take and what there is. */
int tierd_reader_refresh(struct tierd_reader *reader, const struct tierd_piece *pieces /* or NULL */, size_t count,
			 uint64_t *ret_step /* or NULL */);

/* Reads count elements from element first on, as tierd_tensor_read does, of the reader's step. -ESTALE: the job has moved on and
 * they were not kept; -EPERM: it is shared for reading, and this is no parameter. */
int tierd_reader_read(struct tierd_reader *reader, uint32_t unit, uint32_t tensor, const char *state, uint64_t first,
		      uint64_t count, void *ret_data /* or NULL if count is 0 */);

/* The same for many pieces, as tierd_read_many does. */
int tierd_reader_read_many(struct tierd_reader *reader, const struct tierd_read *reads /* or NULL if count is 0 */,
			   size_t count);

/* Memory of this process' own, which tierd writes to: what is read to places within it is copied once, and not twice. *memory NULL:
 * its address is given, and it is zero. Else that of such memory of an earlier reader, of the same size: it is replaced there, with its
 * values. It stays until munmap(2), which must not come before tierd_reader_close; children that are forked share it. Of a reader once.
 * -ENOMEM; -EOPNOTSUPP: tierd is too old. Then all is read as without it. */
int tierd_reader_memory(struct tierd_reader *reader, size_t size, void **memory);

/* ---- Statistics ---------------------------------------------------------------------------------------- */

/* Of this rank since tierd_job_open, unless it says job: then of the whole job since it was created. */
struct tierd_statistics {
	size_t size;
	uint64_t gathers, gather_misses, gather_wait_ns;
	uint64_t pushes, gradient_wait_ns, step_wait_ns;
	uint64_t communicated_elements; /* the logical volume of this rank, by the ZeRO papers' account */
	uint64_t logical_parameter_bytes, logical_gradient_bytes, logical_optimizer_bytes;
	uint64_t job_parameters;           /* elements of all tensors, without padding */
	uint64_t job_host_bytes, job_host_budget;
	uint64_t job_nvme_bytes;
	uint64_t job_gather_read_bytes;    /* from NVMe, for gathers and prefetches */
	uint64_t job_update_read_bytes, job_update_written_bytes;
	uint64_t job_initialize_written_bytes;
	uint64_t job_steps, job_step_ns;   /* from the decision to applied, summed */
	uint64_t job_gradient_read_bytes, job_gradient_written_bytes; /* of sums that have no room in host memory */
	uint64_t job_gpu_parameter_bytes, job_gpu_gradient_bytes, job_gpu_update_bytes; /* memory of GPUs that tierd has for it */
	uint64_t job_gpu_state_bytes; /* and of state that stays there between updates */
};
#define TIERD_STATISTICS_INIT { sizeof(struct tierd_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
int tierd_statistics(struct tierd_job *job, struct tierd_statistics *ret_statistics);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
