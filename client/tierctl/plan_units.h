/* The units of a plan, as the daemon is told of them: those of a model of which only the size is known are
 * made up, at both ends of what is sensible. */
#ifndef TIERD_CLIENT_TIERCTL_PLAN_UNITS_H
#define TIERD_CLIENT_TIERCTL_PLAN_UNITS_H

#include "client/tierctl/plan.h"
#include "client/tierd.h"
#include "proto/frame.h"

/* A daemon takes no more units of a job. */
#define PLAN_MAX_UNITS 100000

/* What is added is the request's, to be freed with it. -ENOMEM. */
int plan_units_add(Tierd__Wire__PlanRequest *request, const char *name);
/* To the last unit. */
int plan_units_add_tensor(Tierd__Wire__PlanRequest *request, const struct tierd_tensor *tensor);

/* Of a tensor and of its gradients as they are pushed, without padding; 0 of a shape that there cannot be. */
uint64_t plan_units_bytes(const Tierd__Wire__Tensor *tensor);
uint64_t plan_units_gradient_bytes(const Tierd__Wire__Tensor *tensor);

struct plan_size {
	uint64_t parameters, largest_unit, frozen_bytes; /* largest_unit: in elements; 0: not known */
	uint32_t format;				 /* enum tierd_format */
};

/* Ways to cut such a model in units; what it takes lies between the least and the most that they take. Layers
 * are alike: a few in one format, or many; beside one unit as large as the largest, or as an embedding of
 * 2^18 words is (of half of the model at most); or all as large as that; each of those with norms in fp32,
 * and just larger than half a pack, which wastes the most. */
#define PLAN_CUTS 5
int plan_units_cut(Tierd__Wire__PlanRequest *request, const struct plan_size *size, unsigned number);

/* Those of the example gpt. */
struct plan_gpt {
	uint64_t layers, width, context;
	uint32_t format;
};

int plan_units_of_gpt(Tierd__Wire__PlanRequest *request, const struct plan_gpt *gpt);

/* Counts the elements and bytes that the formulas need. */
void plan_units_count(const Tierd__Wire__PlanRequest *request, const Tierd__Wire__JobOpen *job,
		      struct plan_model *model);

#endif
