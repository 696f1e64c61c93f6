/* NCCL, which moves GPU memory between ranks, looked for when the program runs. */
#ifndef TIERD_COLLECTIVES_NCCL_NCCL_H
#define TIERD_COLLECTIVES_NCCL_NCCL_H

#include "common/dynamic_library.h"

/* False: the library says why not. */
bool nccl_open(struct dynamic_library *library);

#endif
