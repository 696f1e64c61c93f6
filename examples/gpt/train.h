/* Training: the steps of one rank, from wherever the job stands to the last. */
#ifndef GPT_TRAIN_H
#define GPT_TRAIN_H

#include "data.h"
#include "network.h"
#include "options.h"
#include "report.h"

struct training {
	const struct options *options;
	const struct model *model;
	struct network *network;
	struct compute *compute; /* its */
	const struct data *data;
	struct backend *backend;
	struct report *report;
	uint8_t *bytes; /* of one micro-batch */
	uint64_t step;	/* the next one, counted from 0 */
	struct backend_position position;

	/* Of the step whose result is still to come. */
	float learning_rate;
};

/* Writes the initial values where the job is new, and waits for all ranks. */
int train_start(struct training *training);

/* If the job has taken its last step: replaces the backend by one that needs no other rank. An error: it has
 * not, and nothing has changed. */
int train_outlive(struct training *training);

/* Runs the remaining steps. When a rank dies, it waits for that to come back, and goes on from where the job
 * stands: from the start, if tierd was restarted without its state. */
int train_steps(struct training *training);

#endif
