/* A small GPT on plain memory, for the tests of the example trainer. */
#ifndef GPT_SUPPORT_H
#define GPT_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend.h"
#include "network.h"
#include "options.h"

struct fixture {
	struct options options;
	struct model *model;
	struct team *team;
	struct compute compute; /* the processors */
	struct network *network;
	struct backend *backend; /* its values are written */
};

/* Two layers, 32 wide, two heads, 12 bytes of context, two sequences per batch; one rank, stage 3, fp32. */
struct options small_options(void);

void fixture_open(struct fixture *fixture, const struct options *options);
void fixture_close(struct fixture *fixture);

/* Bytes of one micro-batch, the same for the same key. */
void fixture_bytes(const struct fixture *fixture, uint64_t key, uint8_t *ret_bytes);

/* Computes and pushes a micro-batch of every rank. */
void fixture_train(struct fixture *fixture, uint64_t key);

/* The step, without clipping or scale; returns its result. */
struct backend_result fixture_step(struct fixture *fixture);

/* A hash of all parameters, master values and moments. */
uint64_t fixture_hash(const struct fixture *fixture);

#endif
