/* Copying the values of an import from its files into the job, which has no values yet. */
#ifndef TIERD_CLIENT_TIERCTL_IMPORT_COPY_H
#define TIERD_CLIENT_TIERCTL_IMPORT_COPY_H

#include "client/tierctl/import_list.h"
#include "client/tierctl/progress.h"

struct import_copy {
	const struct safetensors_model *model;
	const struct import_list *list;
	struct tierd_job *job; /* with its units defined */
	struct progress *progress;
	uint64_t bytes; /* so far */
	float *masters; /* its own, while it runs */
};

/* An exit code, after a message. */
int import_copy_run(struct import_copy *copy);

#endif
