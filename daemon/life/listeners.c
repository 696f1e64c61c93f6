#include "daemon/life/listeners.h"

#include "daemon/durability/durable.h"
#include "daemon/gradients/gradient_listener.h"
#include "daemon/model/job.h"
#include "daemon/update/early.h"

static const struct gradient_listener gradient_listener = {
	.changed = step_advance,
	.summed = early_note_sum,
	.measured = durable_advance,
	.sums_came = operation_resume,
	.is_giving_up = early_is_ending,
	.find_norm = early_norm,
};

void listeners_set(struct job *job)
{
	job->gradient_listener = &gradient_listener;
}
