/* The figures of a plan that follow from the model alone, whatever the machine: memory of each rank by the
 * formulas of ZeRO, and what moves in a step. What a job takes of a node is the daemon's to say:
 * client/tierctl/plan_ask.h. Arithmetic only. */
#ifndef TIERD_CLIENT_TIERCTL_PLAN_H
#define TIERD_CLIENT_TIERCTL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define PLAN_STAGES 4

enum plan_format { PLAN_BF16, PLAN_FP16, PLAN_FP32, PLAN_FORMATS };
enum plan_moments { PLAN_MOMENTS_FP32, PLAN_MOMENTS_BF16, PLAN_MOMENTS_INT8, PLAN_MOMENTS };

struct plan_optimizer {
	const char *name;
	uint32_t kind; /* enum wire_optimizer */
	bool has_momentum;
	unsigned slots; /* that it keeps */
};

struct plan_model {
	uint64_t elements[PLAN_FORMATS]
			 [PLAN_MOMENTS]; /* that are trained: by their format, and that of their moments */
	uint64_t frozen_bytes;		 /* of tensors that are not; they lie evenly beside the others */
	unsigned world_size;
	unsigned micro_batches;
	bool is_pushed_once; /* each unit, in a step */
	bool is_durable;     /* all state is written to NVMe, wherever it lies */
	uint64_t commit_ms;  /* between two commits of state in host memory, or a step; 0: a minute */
	const struct plan_optimizer *optimizer;
};

/* Bytes per parameter, on average. bf16: the parameter is the upper half of its fp32 master, beside the
 * optimizer's slots lies the 16-bit remainder. fp16: the fp32 master lies beside the parameter. fp32: the
 * parameter is its own master. Gradients are summed in fp32, but where there is nothing to sum. Of moments in
 * 8 bits, 256 share 4 bytes. */
struct plan_layout {
	double parameter, gradient, optimizer;
};

/* The memory of one rank, as the ZeRO papers count it: memory that ranks of a node share counts for each. */
struct plan_memory {
	uint64_t parameters, gradients, optimizer, total;
};

/* What lies on NVMe; the rest in host memory. */
struct plan_place {
	bool is_parameter_nvme, is_optimizer_nvme, is_gradient_nvme;
};

/* Bytes per parameter, in one step. */
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

uint64_t plan_parameters(const struct plan_model *model);

/* "bf16"; of a model of several "bf16, fp32". */
#define PLAN_FORMAT_TEXT 24
const char *plan_formats(const struct plan_model *model, char text[PLAN_FORMAT_TEXT]);
const char *plan_moments(const struct plan_model *model, char text[PLAN_FORMAT_TEXT]);
/* "adamw", "adam", "lion", "momentum" (SGD with it), "none", "sgd" (without). NULL: there is none. */
const struct plan_optimizer *plan_find_optimizer(const char *name);
const struct plan_optimizer *plan_optimizer_of(uint32_t kind, bool has_momentum);

struct plan_layout plan_layout(const struct plan_model *model);
struct plan_memory plan_memory(const struct plan_model *model, unsigned stage);

/* Logical elements that a rank sends in a step. */
uint64_t plan_communication(const struct plan_model *model, unsigned stage);

struct plan_traffic plan_traffic(const struct plan_model *model, const struct plan_place *place);

/* What is more than a number can be is the largest one. */
static inline uint64_t plan_whole(double value)
{
	return value < 0x1p64 ? (uint64_t)value : UINT64_MAX;
}

/* Bytes written to NVMe in a day of steps that take so long. */
double plan_written_per_day(const struct plan_model *model, const struct plan_place *place, uint64_t step_ms);

/* "step", "none", or seconds, as JobOpen has it. -EINVAL. */
int plan_parse_durability(const char *text, uint32_t *ret_durability);
/* And what that is in milliseconds between two commits; 0: the daemon's default. */
uint64_t plan_commit_ms(uint32_t durability);

/* "7B", "1.5B", "350M", "124000000": with K, M, B (or G) and T, powers of ten. -EINVAL, -ERANGE. */
int plan_parse_count(const char *text, uint64_t *ret_count);

/* "64G": powers of two. -EINVAL, -ERANGE. */
int plan_parse_bytes(const char *text, uint64_t *ret_bytes);

#endif
