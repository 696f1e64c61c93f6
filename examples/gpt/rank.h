/* A rank's life: it builds the model, joins the job, trains, and, as rank 0, draws a sample and reports. */
#ifndef GPT_RANK_H
#define GPT_RANK_H

#include "options.h"

/* Returns 0 or a negative errno; an error has been reported. Sets the options' GPU. */
int rank_train(struct options *options);

#endif
