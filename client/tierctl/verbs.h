/* The verbs that tierctl has, in the order of its help. */
#ifndef TIERD_CLIENT_TIERCTL_VERBS_H
#define TIERD_CLIENT_TIERCTL_VERBS_H

#include "client/tierctl/verb.h"

extern const struct verb verbs[];

#endif
