/* A plan says what a model needs under ZeRO before it is trained: memory, places, and what moves in a step.
 * Arithmetic only. */
#ifndef TIERD_CLIENT_TIERCTL_PLAN_H
#define TIERD_CLIENT_TIERCTL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define PLAN_STAGES 4

enum plan_format { PLAN_BF16, PLAN_FP16, PLAN_FP32 };
enum plan_moments { PLAN_MOMENTS_FP32, PLAN_MOMENTS_BF16, PLAN_MOMENTS_INT8 };

struct plan_model {
	uint64_t parameters;   /* that are trained */
	uint64_t frozen_bytes; /* of tensors that are not; they lie evenly beside the parameters */
	uint64_t largest_unit; /* elements */
	unsigned world_size, local_ranks;
	unsigned micro_batches;
	bool is_pushed_once;	   /* each unit, in a step */
	unsigned gradient_buffers; /* per rank */
	bool is_durable;	   /* all state is written to NVMe, wherever it lies */
	uint64_t commit_ms;	   /* between two commits of state in host memory, or a step; 0: a minute */
	unsigned snapshots;	   /* of durable state, that are to have room beside it */
	bool is_gradient_nvme;	   /* sums beyond a few go to NVMe, at the stages that can do that */
	enum plan_format format;
	const char *optimizer;
	unsigned slots; /* that it keeps */
	enum plan_moments moments;
};

/* Bytes per parameter. bf16: the parameter is the upper half of its fp32 master, beside the optimizer's slots
 * lies the 16-bit remainder. fp16: the fp32 master lies beside the parameter. fp32: the parameter is its own
 * master. Gradients are summed in fp32, but where there is nothing to sum. Of moments in 8 bits, 256 share 4
 * bytes. */
struct plan_layout {
	double parameter, gradient, optimizer;
};

/* Of one rank, by the ZeRO papers' account: what is shared by the ranks of a node counts for each. */
struct plan_memory {
	uint64_t parameters, gradients, optimizer, total;
};

/* Of this node, where each shared byte lies once. */
struct plan_place {
	bool is_parameter_nvme, is_optimizer_nvme, is_gradient_nvme;
	uint64_t parameters_host, gradients_host, optimizer_host, buffers_host;
	uint64_t host_bytes;
	uint64_t nvme_bytes; /* twice the state there: updates go to free places; once more for each snapshot;
			      * what is frozen, and sums, once */
};

/* Bytes per parameter of this node, in one step. */
struct plan_traffic {
	double update_read, update_written;
	/* If nothing stays in memory from one use to the next. */
	double gather_read, gradient_read, gradient_written;
};

/* More than any model, and small enough for all sums and products of a plan. */
#define PLAN_MAX_PARAMETERS (UINT64_C(1) << 44)
#define PLAN_MAX_RANKS 1024
#define PLAN_MAX_MICRO_BATCHES 65536
#define PLAN_MAX_SNAPSHOTS 14
#define PLAN_MAX_FROZEN_BYTES (UINT64_C(1) << 46)

/* -EINVAL: not a model (a zero, more local ranks than ranks, a unit larger than the model); -ERANGE: too
 * large to count. The other functions take only what passed. */
int plan_check(const struct plan_model *model);

const char *plan_format_name(enum plan_format format);
/* -EINVAL. */
int plan_set_format(struct plan_model *model, const char *name);

struct plan_layout plan_layout(const struct plan_model *model);
struct plan_memory plan_memory(const struct plan_model *model, unsigned stage);

/* Logical elements that a rank sends in a step. */
uint64_t plan_communication(const struct plan_model *model, unsigned stage);

/* -EINVAL: only at stage 3 may parameters leave host memory. */
int plan_place(const struct plan_model *model, unsigned stage, bool is_parameter_nvme, bool is_optimizer_nvme,
	       struct plan_place *ret_place);
struct plan_traffic plan_traffic(const struct plan_model *model, const struct plan_place *place);

/* Bytes written to this node's NVMe in a day of steps that take so long. */
double plan_written_per_day(const struct plan_model *model, unsigned stage, const struct plan_place *place,
			    uint64_t step_ms);

/* What placement = auto takes: what fits in these bytes and leaves the least to move on NVMe. -ENOSPC:
 * nothing fits. */
int plan_choose(const struct plan_model *model, unsigned stage, uint64_t host_bytes, uint64_t nvme_bytes,
		struct plan_place *ret_place);

/* "step", "none", or seconds. *ret_is_durable: it is not none. -EINVAL. */
int plan_set_durability(struct plan_model *model, const char *text, bool *ret_is_durable);

/* "adamw", "adam", "lion", "momentum" (SGD with it), "none", "sgd" (without). -EINVAL. */
int plan_set_optimizer(struct plan_model *model, const char *name);

/* How its slots are kept: "fp32", "bf16", "int8". -EINVAL. */
int plan_set_moments(struct plan_model *model, const char *name);
const char *plan_moments_name(enum plan_moments moments);

/* Where sums of gradients are: "host", "nvme". -EINVAL. */
int plan_set_gradients(struct plan_model *model, const char *place);

/* "7B", "1.5B", "350M", "124000000": with K, M, B (or G) and T, powers of ten. -EINVAL, -ERANGE. */
int plan_parse_count(const char *text, uint64_t *ret_count);

/* "64G": powers of two. -EINVAL, -ERANGE. */
int plan_parse_bytes(const char *text, uint64_t *ret_bytes);

#endif
