/* The list of an export: the tensors of its files, and the slices of a job's state that make each of them. */
#ifndef TIERD_CLIENT_TIERCTL_EXPORT_LIST_H
#define TIERD_CLIENT_TIERCTL_EXPORT_LIST_H

#include "client/safetensors/dtype.h"
#include "client/tierctl/source.h"

struct export_options {
	bool is_fp32; /* masters, in place of parameters */
	bool with_optimizer;
};

/* A tensor of the job, or, of a larger one, some rows. */
struct export_slice {
	char *name; /* of the whole, owned */
	struct tierd_tensor tensor;
	const char *state;
	uint32_t unit, index;
	size_t order;
	enum safetensors_dtype dtype;
	bool is_widened; /* a frozen one of 16 bits, to fp32 */
	uint64_t elements;
};

struct export_tensor {
	const char *name;
	enum safetensors_dtype dtype;
	uint64_t shape[TIERD_MAX_DIMENSIONS];
	uint32_t dimensions;
	const char *alias; /* NULL: none */
	uint64_t bytes;
	const struct export_slice *slices; /* in the order of their rows */
	size_t slice_count;
};

struct export_list {
	struct export_slice *slices;
	size_t slice_count, slice_capacity;
	struct export_tensor *tensors; /* in the order of the job's units */
	size_t tensor_count;
	uint64_t bytes;
};

/* An exit code, after a message. The list may be half full then; its strings live as long as the reader. */
int export_list_read(struct export_list *list, struct tierd_reader *reader,
		     const struct export_options *options);
void export_list_clear(struct export_list *list);

/* Has the daemon keep what may change, as it is at one step. Negative errors, as of tierd_reader_refresh().
 */
int export_list_keep(const struct export_list *list, struct tierd_reader *reader);

#endif
