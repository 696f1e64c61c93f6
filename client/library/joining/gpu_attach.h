/* Attaching: a rank that is ready asks for memory of the GPU that it gathers on. */
#ifndef TIERD_CLIENT_GPU_ATTACH_H
#define TIERD_CLIENT_GPU_ATTACH_H

#include "client/library/joining/joining.h"

/* From the handler of a ready: asks with its ticket, whose handler gets the answer. False: the job asks for
 * no GPU, or was given memory there over this connection already. */
bool gpu_attach_ask(struct tierd_ticket *ticket);

/* If the memory cannot be had, notes why: the rank goes on without. False: the connection has ended. */
bool gpu_attach_answer(struct tierd_ticket *ticket, const struct answer *answer);

#endif
