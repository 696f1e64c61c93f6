/* What a job takes of each GPU, and what PCIe moves for it, by arithmetic on its units. A unit is gathered
 * whole, whatever the stage, and copied to the GPU from host memory; each rank has copies of its own. */
#ifndef TIERD_CLIENT_TIERCTL_PLAN_GPU_H
#define TIERD_CLIENT_TIERCTL_PLAN_GPU_H

#include "client/tierctl/plan_units.h"

/* Bytes in a second, each way: 16 lanes of PCIe 4 have 31.5 GB/s on paper, and headers take their part. */
#define PLAN_PCIE_USUAL UINT64_C(25000000000)
#define PLAN_PCIE_LEAST UINT64_C(100000000)
#define PLAN_PCIE_MOST UINT64_C(1000000000000)

/* Those of this node, which are alike. */
struct plan_gpus {
	unsigned count;		   /* 0: one for each rank */
	unsigned ranks;		   /* that each has */
	uint64_t bytes;		   /* of each; 0: nobody asks */
	uint64_t activation_bytes; /* of each rank */
	uint64_t pcie_rate;	   /* bytes in a second, each way, of each */
};

/* "4x24G", or "24G". -EINVAL, -ERANGE. */
int plan_gpus_parse(const char *text, struct plan_gpus *gpus);

/* Gives all of them as many ranks; there is one at least. -EINVAL: that cannot be. ret_count: so many GPUs
 * would do then, at most as many as there are. */
int plan_gpus_spread(struct plan_gpus *gpus, unsigned ranks, unsigned *ret_count);

/* Of each GPU, for all its ranks. */
enum plan_gpu_figure {
	PLAN_GPU_UNITS, /* bytes of two units of each size: one is computed with while the next one comes */
	PLAN_GPU_GRADIENTS, /* of two units: one's are computed while those of another one go */
	PLAN_GPU_BYTES,	    /* both, and activations */
	PLAN_GPU_TO,	    /* bytes that are copied there in a step */
	PLAN_GPU_FROM,
	PLAN_GPU_SECONDS, /* of that, both ways at once */
	PLAN_GPU_FIGURES
};

/* Of all ways to cut the model. At least: what has room stays on the GPU, and what is trained until a step
 * changes it. At most: nothing stays, and each micro-batch has each unit copied for forward and for backward.
 */
struct plan_gpu_bounds {
	double low[PLAN_GPU_FIGURES], high[PLAN_GPU_FIGURES];
	const char *largest; /* unit, of the first cut */
	double largest_bytes;
};

/* units: of each cut. -ENOMEM. */
int plan_gpu_bounds(const struct plan_gpus *gpus, Tierd__Wire__PlanRequest *const *units, unsigned cuts,
		    unsigned micro_batches, struct plan_gpu_bounds *ret_bounds);

#endif
