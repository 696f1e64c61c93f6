/* What a training run tells: lines of progress, a summary, and a file for programs. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

#include <stdio.h>

#include "backend.h"
#include "options.h"
#include "sample.h"

#include "client/tierd.h"

/* What was done so far. */
struct progress {
	uint64_t steps;		    /* also those that were computed again */
	uint64_t tokens;	    /* of all ranks that this process played */
	uint64_t training_ns;	    /* without evaluation and sampling */
	struct backend_times times; /* likewise */
};

struct report {
	const struct options *options;
	const struct model *model;
	const char *backend;
	unsigned threads;
	uint64_t work_bytes; /* of the network */
	uint64_t data_bytes;

	double *losses;		/* of each step, of this rank; NaN where another process ran it */
	uint64_t first_step;	/* of this process */
	struct progress done;	/* by this process */
	double gradient_norm;	/* of the last step */
	double evaluation_loss; /* NaN: none */
	float loss_scale;	/* of the coming step */
	uint64_t skipped_steps, recoveries;
	struct progress shown; /* by the last line */
	struct sampling sampling;
	char *sample_buffer; /* owned; made at the start, so that its end is not without memory for it */
	const char *sample;  /* in it; NULL: none */
	bool has_statistics;
	struct tierd_statistics statistics;
};

int report_new(const struct options *options, const struct model *model, struct report **ret_report);
struct report *report_free(struct report *report);
DEFINE_FREEP(struct report *, report_free)

/* Where the job stands, if it is not at its beginning. */
void report_start(const struct report *report);

/* A line for the step that is finished, every --log-every steps. */
void report_step(struct report *report, uint64_t step, float learning_rate,
		 const struct backend_result *result);

void report_summary(const struct report *report);

/* For programs. -errno if the file cannot be written; ferror(file) then. */
int report_write(const struct report *report, FILE *file);

#endif
