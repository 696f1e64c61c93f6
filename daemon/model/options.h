/* Options of a job: what its first rank asked for, checked and completed. */
#ifndef TIERD_DAEMON_OPTIONS_H
#define TIERD_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/loss_scale.h"
#include "offload/optimizer/optimizer.h"
#include "proto/frame.h"
#include "proto/vocabulary.h"

/* Of a job. */
#define BLOBS_MOST_BYTES (UINT64_C(64) << 30)

/* Rates of one step. Whoever keeps some has room for the groups of a job: rates_copy() fills it. */
struct step_rates {
	float learning_rate, gradient_scale;
	float loss_scale; /* 0: the job's */
	float clip_norm;  /* negative: the job's */
	bool is_dropped;
	uint32_t group_count;
	struct optimizer_group *groups;
};

struct job_options {
	uint32_t world_size, stage, nonfinite, parameter_placement, optimizer_placement, gradient_placement,
		gradient_buffers, io_weight, durability;
	const struct optimizer *optimizer;
	unsigned slot_count; /* of the optimizer's slots, those that the job keeps */
	float clip_norm;
	struct loss_scale_options loss_scale;
	uint32_t sharing, share_group;
	bool is_sharing_set; /* by daemon/life/share.h: its ranks need not know */
	uint64_t host_budget, nvme_budget, gradient_bytes, blob_bytes, seed;
	uint32_t snapshots; /* that its store has room for */
	uint32_t snapshot_keep;
	uint64_t snapshot_every; /* 0: none is kept by itself */
	bool is_strict;
	bool is_pushed_once; /* each unit, in a step, by a rank */
	uint32_t group_count;
	const struct optimizer_group *groups; /* borrowed from whoever read them, or the job's own */
};

/* 0, or -EINVAL with a message. */
int options_check_name(const char *name, char *message, size_t size);

/* It is one at which applied steps become durable. */
bool options_durability_lasts(uint32_t durability);

/* groups: where those of the options lie. -EINVAL with a message for the client. */
int options_read(struct job_options *options, struct optimizer_group groups[WIRE_MAX_GROUPS],
		 const Tierd__Wire__JobOpen *open, bool has_paths, char *message, size_t size);
/* The way back: options_read() makes the same options of it. Name, rank and mode are the caller's; the
 * groups lie in storage. */
struct options_groups {
	Tierd__Wire__Group groups[WIRE_MAX_GROUPS], *pointers[WIRE_MAX_GROUPS];
};
void options_write(const struct job_options *options, Tierd__Wire__JobOpen *open,
		   struct options_groups *storage);
void options_write_groups(const struct optimizer_group *groups, uint32_t count,
			  struct options_groups *storage);
/* Room for the groups of so many rates, one after the other: for free(). NULL: there is no memory. */
struct optimizer_group *options_new_groups(const struct job_options *options, unsigned count);
/* What the rates of a step say of the groups. */
int options_set_groups(const struct job_options *options, struct optimizer_group *groups, uint32_t *count,
		       Tierd__Wire__Group *const *wire, size_t wire_count, char *message, size_t size);

/* What is kept of a job is kept in one format for good. */
int options_compare_moments(const struct job_options *job, const struct optimizer_group *groups,
			    uint32_t count, char *message, size_t size);

/* Numbers that have to be equal by their bits: 0 and -0 are not. where: the others are. -EINVAL names the
 * first that differs, and both values; of: of what, before its name. */
struct options_real {
	const char *name;
	float here, other;
};
int options_compare_reals(const char *of, const struct options_real *reals, size_t count, const char *where,
			  char *message, size_t size);
/* The same of what groups have beside the format of moments. */
int options_compare_groups(const struct optimizer_group *here, const struct optimizer_group *other,
			   uint32_t count, const char *where, char *message, size_t size);

/* The first difference: -EINVAL. */
int options_difference(const struct job_options *here, const struct job_options *job, char *message,
		       size_t size);
/* And what to do about it. */
int options_compare(const struct job_options *here, const struct job_options *job, char *message,
		    size_t size);

#endif
