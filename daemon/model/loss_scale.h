/* The loss scale of a job: what trainers multiply their loss with, so that small gradients do not vanish in
 * 16 bits. A dynamic one backs off when gradients overflow, and grows while they do not. */
#ifndef TIERD_DAEMON_LOSS_SCALE_H
#define TIERD_DAEMON_LOSS_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loss_scale_options {
	float initial;
	uint32_t interval; /* steps without overflow after which it grows; 0: it is static */
	float growth, backoff, minimum;
};

struct loss_scale {
	float value;	/* for the coming step */
	uint32_t steps; /* taken since it changed last, or would have */
};

/* -EINVAL with a message for the client. */
int loss_scale_check(const struct loss_scale_options *options, char *message, size_t size);

/* What a job stood at that comes back; -EINVAL if it could not have. */
int loss_scale_restore(struct loss_scale *scale, const struct loss_scale_options *options,
		       const struct loss_scale *past, char *message, size_t size);

static inline bool loss_scale_is_dynamic(const struct loss_scale_options *options)
{
	return options->interval > 0;
}

/* A step has been decided. */
void loss_scale_move(struct loss_scale *scale, const struct loss_scale_options *options, bool has_overflown);

#endif
