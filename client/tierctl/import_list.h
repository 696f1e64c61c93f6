/* The list of an import: what the tensors of a model become in a job, and in which units. */
#ifndef TIERD_CLIENT_TIERCTL_IMPORT_LIST_H
#define TIERD_CLIENT_TIERCTL_IMPORT_LIST_H

#include "client/safetensors/model.h"
#include "client/tierd.h"

struct import_options {
	const char *step;    /* after which the optimizer's state was kept; NULL: the files say it */
	const char *ignored; /* a pattern of names that are left out; NULL: none are */
	bool is_trainable;   /* numbers are; else everything is frozen */
	uint32_t optimizer;  /* of them; enum tierd_optimizer_kind */
	bool has_momentum;   /* SGD does */
	uint32_t format;     /* of what is trainable; 0: as in the files */
};

struct import_tensor {
	const struct safetensors_tensor *from; /* the model's */
	size_t file;			       /* of the model, in which it is */
	struct tierd_tensor tensor;	       /* its dtype is owned */
	unsigned element_bytes;		       /* in the file */
	bool is_converted;		       /* through masters, in fp32 */
	uint64_t elements;
	size_t unit, order;
	uint32_t index; /* in the unit */
	const struct import_tensor
		*base;	   /* of which it is what the optimizer keeps; NULL: it is a tensor itself */
	const char *state; /* of that */
	bool is_second;	   /* of one that has it already, under its other name */
	unsigned states;   /* what there is of this one: a bit for each slot */
};

struct import_unit {
	char *name; /* owned */
	size_t first, order;
	uint32_t count; /* of its tensors, which follow each other in by_unit */
};

struct import_list {
	struct import_tensor *tensors; /* in the order of the files and their data */
	size_t count;
	struct import_tensor **by_unit; /* those that are tensors of the job */
	size_t job_count;
	bool has_state;		   /* of the optimizer */
	uint64_t step;		   /* after which it was kept */
	unsigned slots;		   /* that the optimizer keeps: a bit for each */
	struct import_unit *units; /* in the order of their first tensors */
	size_t unit_count, unit_capacity;
	uint64_t bytes; /* of the values */
};

/* An exit code, after a message. The list may be half full then; its strings live as long as the model. */
int import_list_read(struct import_list *list, const struct safetensors_model *model,
		     const struct import_options *options);
/* Its last part: cuts the job's tensors into units. */
int import_units_group(struct import_list *list);
/* The bytes of the values of its tensors. */
uint64_t import_list_unit_bytes(const struct import_list *list, size_t unit);
void import_list_clear(struct import_list *list);

#endif
