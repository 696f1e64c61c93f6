/* The job of an import: all of its ranks are this process, until it has its values. */
#ifndef TIERD_CLIENT_TIERCTL_IMPORT_JOB_H
#define TIERD_CLIENT_TIERCTL_IMPORT_JOB_H

#include "client/tierctl/import_list.h"

struct import_job {
	struct tierd_node *node;
	struct tierd_job **ranks; /* all of them have the units; the first one gets the values */
	uint32_t count;		  /* that are open */
};

/* They return an exit code, after a message. */
int import_job_open(struct import_job *job, const char *socket, const struct tierd_job_options *options);
int import_job_define(struct import_job *job, const struct import_list *list);
/* Blocks until the job has a state. */
int import_job_ready(struct import_job *job);
int import_job_close(struct import_job *job);
/* A job that is not ready goes with its ranks. */
void import_job_clear(struct import_job *job);

#endif
