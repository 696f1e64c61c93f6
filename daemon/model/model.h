/* What a job is: catalog, options, shape, names; data that all may read. */
#ifndef TIERD_DAEMON_MODEL_FRONT_H
#define TIERD_DAEMON_MODEL_FRONT_H

#include "daemon/model/access.h"
#include "daemon/model/catalog.h"
#include "daemon/model/definition.h"
#include "daemon/model/gradient_buffers.h"
#include "daemon/model/job.h"
#include "daemon/model/location.h"
#include "daemon/model/member.h"
#include "daemon/model/node.h"
#include "daemon/model/options.h"
#include "daemon/model/quota.h"
#include "daemon/model/state.h"
#include "daemon/model/step_state.h"
#include "daemon/model/sums.h"

#endif
