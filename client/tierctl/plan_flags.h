/* The flags of tierctl plan. */
#ifndef TIERD_CLIENT_TIERCTL_PLAN_FLAGS_H
#define TIERD_CLIENT_TIERCTL_PLAN_FLAGS_H

#include "client/tierctl/plan_request.h"

/* An exit code, after a message. What is read points to the context. */
int plan_flags_read(const struct command_context *context, struct plan_request *request);

#endif
