/* The text to learn from: one file, or this repository's own sources and documents; and the batches drawn
 * from it. */
#ifndef GPT_DATA_H
#define GPT_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"

struct data;

/* path NULL: the sources that the trainer was built from, in the order of their names. A failure is reported.
 * -ENODATA: too short for sequences of `context` bytes. */
int data_open(const char *path, size_t context, struct data **ret_data);
struct data *data_close(struct data *data);
DEFINE_FREEP(struct data *, data_close)

size_t data_size(const struct data *data);

/* Which micro-batch: the same one always has the same bytes. */
struct data_key {
	uint64_t seed, step, rank, micro_batch;
};

/* Copies `batch` sequences of context + 1 bytes from the training part. */
void data_train(const struct data *data, const struct data_key *key, size_t batch, uint8_t *ret_bytes);

/* The same from the held-out last sixteenth, evenly spread: the index-th of `count` batches. */
void data_evaluate(const struct data *data, size_t index, size_t count, size_t batch, uint8_t *ret_bytes);

#endif
