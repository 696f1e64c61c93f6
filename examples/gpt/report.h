/* What a training run tells: lines of progress, a summary, and a file for programs. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

#include <stdio.h>

#include "backend.h"
#include "options.h"

#include "client/tierd.h"

struct report {
	const struct options *options;
	const struct model *model;
	const char *backend;
	unsigned threads;
	uint64_t work_bytes; /* of the network */
	uint64_t data_bytes;

	double *losses;		    /* of each step, of this rank; NaN where another process ran it */
	uint64_t first_step;	    /* of this process */
	uint64_t steps;		    /* that it computed, also those that it computed again */
	uint64_t tokens;	    /* of all ranks that this process played */
	uint64_t training_ns;	    /* without evaluation and sampling */
	struct backend_times times; /* likewise */
	double gradient_norm;	    /* of the last step */
	double evaluation_loss;	    /* NaN: none */
	uint64_t skipped_steps, recoveries;
	char *sample; /* owned; NULL: none */
	bool has_statistics;
	struct tierd_statistics statistics;
};

int report_new(const struct options *options, const struct model *model, struct report **ret_report);
struct report *report_free(struct report *report);
DEFINE_FREEP(struct report *, report_free)

/* A line for the step that is finished, every --log-every steps. */
void report_step(struct report *report, uint64_t step, float learning_rate,
		 const struct backend_result *result);

void report_summary(const struct report *report);

/* -errno if the file cannot be written. */
int report_write(const struct report *report, const char *path);

#endif
