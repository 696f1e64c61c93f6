/* Updates on a GPU: of state that lies there, in host memory, or some here and some there. What lies in host
 * memory goes to the GPU and comes back in chunks, several at once, so that the bus is at work in both
 * directions while the GPU computes. The bits are those of offload/optimizer. Other kernels can have what
 * they go through moved in the same way: struct gpu_pass_kind. */
#ifndef TIERD_OFFLOAD_CUDA_GPU_UPDATE_H
#define TIERD_OFFLOAD_CUDA_GPU_UPDATE_H

#include "offload/cuda/gpu_program.h"
#include "offload/cuda/kernels/kernels.h"

/* What of the GPU's memory is enough for updates, and for norms, too. More makes chunks longer. */
#define GPU_UPDATES_LEAST_BYTES (GPU_STREAMS * (size_t)8 << 10)
#define GPU_NORMS_LEAST_BYTES (GPU_STREAMS * (size_t)512 << 10)

struct gpu_updater;

struct gpu_updater_config {
	struct gpu_engine *engine;
	const struct gpu_kernels *kernels; /* loaded, by kernels_names */
	driver_address memory;		   /* of the GPU, for chunks */
	size_t bytes;
};

/* NULL: out of memory. Kernels and memory stay until it is freed. */
struct gpu_updater *gpu_updater_new(const struct gpu_updater_config *config);
/* Nothing that was asked of it may be left. */
struct gpu_updater *gpu_updater_free(struct gpu_updater *updater);
DEFINE_FREEP(struct gpu_updater *, gpu_updater_free)

/* What goes through a number of elements. The caller owns it, with the struct that it is in, and leaves it
 * alone until done() runs, once, by gpu_engine_reap(). */
struct gpu_pass {
	void (*done)(struct gpu_pass *pass, int status); /* 0 or -errno */
	struct gpu_problem problem;			 /* of what failed */
	uint64_t count;					 /* elements */
	struct gpu_event *after;			 /* as of a program */
	const struct gpu_kernels *kernels;		 /* that its kernel is of; NULL: the updater's */

	/* Of the updater, while it runs. */
	const struct gpu_pass_kind *kind;
	struct gpu_updater *updater;
	struct gpu_program wait;
	uint64_t begun;	  /* elements */
	unsigned running; /* chunks */
	int status;
	struct queue link;

	uint64_t moved[GPU_DIRECTIONS]; /* bytes that its copies were to move */
	uint64_t spared;		/* that they would have moved, too, but for mirrors */
};

/* An address of 0: the job does not keep it. In host memory any will do, which is best pinned; in the GPU's
 * it is a multiple of 16, of codes of 4. An array in host memory may have a mirror on the GPU, which has its
 * new values, too, when the update is done. */
struct gpu_array {
	driver_address address;
	bool is_on_gpu;
	driver_address mirror; /* 0: there is none */
};

/* What a pass goes through: so many elements of an array, or the rest, take so many bytes. */
#define GPU_PARTS (OPTIMIZER_MAX_SLOTS + 3)
struct gpu_pass_part {
	struct gpu_array array;
	uint64_t elements;
	size_t bytes;
	bool is_read, is_written;
	bool is_mirrored; /* what would be read is in the array's mirror */
};

struct gpu_chunk {
	uint64_t first, count;		/* elements */
	driver_address here[GPU_PARTS]; /* on the GPU; 0: there is none */
};

#define GPU_ARGUMENTS_BYTES 1024

struct gpu_pass_kind {
	uint64_t grain; /* elements that chunks are multiples of */
	/* All are none before. */
	void (*find_parts)(const struct gpu_pass *pass, struct gpu_pass_part parts[GPU_PARTS]);
	/* The kernel, and all of the step but its function. arguments: room for GPU_ARGUMENTS_BYTES, which
	 * stays until the chunk is done. */
	const char *(*launch)(const struct gpu_pass *pass, const struct gpu_chunk *chunk, void *arguments,
			      struct gpu_step *ret_step);
};

/* New values take the place of the old ones. */
struct gpu_update {
	struct gpu_pass pass;
	const struct optimizer *optimizer;
	struct optimizer_constants constants;
	enum moment_format format;
	enum master_kind kind;
	struct moment_noise noise; /* as the optimizer's kernels take it */
	struct gpu_array parameter, master, slots[OPTIMIZER_MAX_SLOTS], gradient;
	bool is_narrow;	  /* the gradients are in the parameters' format of 16 bits, not in fp32 */
	bool is_mirrored; /* mirrors have what their arrays have, which is not copied there again */
};

/* The sum of squares of each block of NORM_BLOCK_ELEMENTS values, in fp64. */
struct gpu_norm {
	struct gpu_pass pass;
	struct gpu_array values, sums;
};

/* After an error each element of an update may have its old values, its new ones, or some of each. */
void gpu_updater_update(struct gpu_updater *updater, struct gpu_update *update);
void gpu_updater_norm(struct gpu_updater *updater, struct gpu_norm *norm);
/* A pass of another kind, which stays until it is done. */
void gpu_updater_run(struct gpu_updater *updater, struct gpu_pass *pass, const struct gpu_pass_kind *kind);
/* It ends with -ECANCELED when the chunks that have begun are done, which are new then; or with 0, if those
 * are all. */
void gpu_updater_cancel(struct gpu_updater *updater, struct gpu_pass *pass);

#endif
