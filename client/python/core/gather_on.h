/* Units in the memory of a GPU, and the streams that use them. */
#ifndef TIERD_CORE_GATHER_ON_H
#define TIERD_CORE_GATHER_ON_H

#include "core/job.h"

struct hold;

/* An argument that is a stream: the number of a CUstream, or what has __cuda_stream__(). -1 with an exception
 * set. */
int stream_take(PyObject *object, void **ret_stream);

/* What the stream is given from now on may use what the hold has, until its last share is given back. job:
 * the Job that has gathered it. -1 with an exception set: -ESTALE also where the job has its units elsewhere
 * now. */
int hold_use_on(struct hold *hold, PyObject *job, void *stream);

#endif
