/* What the command line asks for. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/tierd.h"

enum options_device { DEVICE_CPU, DEVICE_CUDA };

struct options {
	/* The model */
	uint64_t layers, width, heads, context;
	uint64_t format; /* enum number_format */

	/* Training */
	uint64_t batch, micro_batches, steps, warmup, seed;
	uint64_t optimizer; /* enum tierd_optimizer_kind */
	uint64_t moments;   /* enum tierd_moments */
	double learning_rate, clip, weight_decay, beta1, beta2, momentum;
	uint64_t evaluate_every, log_every;
	uint64_t threads; /* 0: 1 with several ranks, else one per processor */
	bool keep_activations;
	uint64_t device;	     /* enum options_device */
	const char *loss_scale_text; /* --loss-scale: N, dynamic or dynamic:N */
	double loss_scale;	     /* at first, if it is dynamic */
	bool is_scale_dynamic;

	/* tierd */
	bool is_plain;
	const char *socket, *job;
	uint64_t stage, mode, parameters_on, optimizer_on,
		gradients_on;			       /* enum tierd_open_mode, enum tierd_placement */
	uint64_t host_budget, gradient_bytes, timeout; /* bytes, bytes, seconds */
	const char *durability_text;		       /* --durability: step, none or SECONDS */
	uint64_t durability;			       /* seconds, or TIERD_DURABILITY_… */
	uint64_t snapshots;
	const char *source;
	bool with_optimizer;
	bool is_unannounced; /* steps */
	uint64_t gpu_budget; /* bytes */
	int32_t gpu;	     /* that computes, as CUDA counts them; -1: none */

	/* Ranks */
	uint64_t ranks, restarts;
	uint64_t rank, world_size;
	bool is_rank;	   /* one of several, told by the environment */
	bool is_restarted; /* in the same way: another process was this rank before */

	/* In and out */
	const char *data, *prompt, *json, *dump;
	uint64_t sample_bytes;
	double temperature;

	/* --crash-at */
	const char *crash_at;
	char crash_point[12]; /* "": none */
	uint64_t crash_step, crash_rank;
};

/* A dynamic loss scale starts here, unless --loss-scale says otherwise; what becomes of it. */
#define SCALE_INITIAL 65536.0
#define SCALE_INTERVAL 2000
#define SCALE_GROWTH 2.0f
#define SCALE_BACKOFF 0.5f
#define SCALE_MINIMUM 1.0f

/* Reads flags and environment; a mistake is reported with its remedy. -EINVAL then; -ECANCELED after --help
 * and
 * --version, which have been answered. */
int options_read(int argc, char **argv, struct options *ret_options);

#endif
