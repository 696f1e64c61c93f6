/* What tierctl plan is asked, and what it answers. */
#ifndef TIERD_CLIENT_TIERCTL_PLAN_REQUEST_H
#define TIERD_CLIENT_TIERCTL_PLAN_REQUEST_H

#include "client/tierctl/command.h"
#include "client/tierctl/plan_ask.h"
#include "client/tierctl/plan_gpu.h"
#include "client/tierctl/plan_units.h"

struct plan_request {
	/* The model, which one of these says. */
	struct plan_size size; /* parameters 0: another one does */
	struct plan_gpt gpt;   /* layers 0 */
	const char *like, *file, *units;

	/* What flags say of the job; it is what the model's source says, or usual, where they say nothing. */
	unsigned world_size, local_ranks, micro_batches, gradient_buffers, groups; /* 0: nothing */
	int stage, snapshots;							   /* -1: nothing */
	uint32_t durability, gradients;						   /* enum wire_placement */
	const struct plan_optimizer *optimizer;					   /* NULL: nothing */
	int moments; /* enum plan_moments; -1: nothing */
	bool has_format, is_pushed_once;
	uint64_t blob_bytes, gradient_bytes, host_budget, nvme_budget; /* the last three 0: nothing */
	bool has_blobs;

	/* The machine. */
	bool has_host, has_nvme;
	uint64_t host_bytes, nvme_bytes; /* free on this node */
	const char *source;		 /* of these two; NULL: not known */
	uint64_t step_ms;		 /* 0: not given */
	bool has_endurance;
	uint64_t endurance_bytes;     /* that are left of it */
	unsigned connections;	      /* that a user may have at once; 0: not known */
	Tierd__Wire__NodeReply *node; /* as it is described to the planner; NULL: nothing is known. Owned */
	struct plan_gpus gpus;

	Tierd__Wire__JobOpen *job;  /* without a placement; owned */
	struct plan_model model;    /* for the formulas */
	struct plan_gpu_bounds gpu; /* if GPUs were asked for */
	struct plan_rows rows;	    /* for each stage those of fixed places, and one of auto; then those that
				       change something */
};

enum plan_fit {
	PLAN_FITS,
	PLAN_FITS_ALONE, /* only without the other jobs of the node */
	PLAN_LACKS,
	PLAN_DEPENDS, /* on how the model is cut in units */
	PLAN_UNKNOWN, /* what the node has free */
	PLAN_IMPOSSIBLE,
};

enum plan_fit plan_fit(const struct plan_request *request, const struct plan_row *row);
/* What the row takes here. */
struct plan_bounds plan_bounds_here(const struct plan_request *request, const struct plan_row *row);
bool plan_lacks_host(const struct plan_row *row);
bool plan_lacks_nvme(const struct plan_request *request, const struct plan_row *row);

static inline unsigned plan_local_ranks(const struct plan_request *request)
{
	return request->local_ranks > 0 ? request->local_ranks : request->model.world_size;
}

/* Whether its places are fixed, and nothing is changed. */
static inline bool plan_row_is_plain(const struct plan_row *row)
{
	return row->parameters != PLACEMENT_AUTO && !row->change;
}

/* Whether a job that leaves the places to the daemon gets this row. */
bool plan_is_auto(const struct plan_request *request, const struct plan_row *row);
/* The stage that advice is for: the one that was asked for, else the one that needs the least memory. */
unsigned plan_stage(const struct plan_request *request);
/* The job of that stage whose places the daemon finds. NULL: there is none, of ranks on other nodes. */
const struct plan_row *plan_find_auto(const struct plan_request *request, unsigned stage);

struct plan_place plan_place_of(const struct plan_row *row);
/* What a daemon would say to the job; NULL: it would take it, or there is none. */
const char *plan_refusal(const struct plan_row *row);
bool plan_has_days(const struct plan_request *request, const struct plan_place *place);
uint64_t plan_days(const struct plan_request *request, const struct plan_place *place);

/* PLAN_DEPENDS: what a GPU takes depends on how the model is cut. */
enum plan_fit plan_gpu_fit(const struct plan_request *request);

/* To one cell: what both have, "1.20 to 3.4 GiB". */
void plan_add_range(struct table *table, const char *low, const char *high);
cJSON *plan_gpus_json(const struct plan_request *request);

/* They return an exit code. */
int plan_print_gpus(const struct plan_request *request);
int plan_print_json(const struct plan_request *request);
int plan_print_tables(const struct plan_request *request);

#endif
