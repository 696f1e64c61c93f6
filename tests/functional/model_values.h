/* The values of a job that has a model, as readers see them, and those that it should have. */
#ifndef TIERD_TESTS_MODEL_VALUES_H
#define TIERD_TESTS_MODEL_VALUES_H

#include "model.h"

/* snapshot: NULL, or which one of the job. */
struct tierd_reader *values_reader(struct tierd_node *node, const char *name, const char *snapshot);
/* The master, or of a frozen tensor what it would be; the caller's. */
float *values_read_masters(struct tierd_reader *reader, const struct kind *kind);
/* Fails unless here, a job of that model, has the values of there, one of model_base. */
void values_require(struct tierd_reader *here, struct tierd_reader *there, const struct model *model);
/* Both have model_base's tensors: masters, and what the optimizer keeps. */
void values_require_state(struct tierd_reader *here, struct tierd_reader *there);

/* Fails unless all is the same that two jobs keep of the same tensors, in whatever units. */
void values_require_same(struct tierd_job *here, const struct model *model, struct tierd_job *there,
			 const struct model *other, const char *what);
/* All that a job keeps, to a file. */
void values_write(struct tierd_job *job, const struct model *model, const char *path);

#endif
