/* Gradient buffers: how many a rank has, and how large they are. */
#ifndef TIERD_DAEMON_GRADIENT_BUFFERS_H
#define TIERD_DAEMON_GRADIENT_BUFFERS_H

#include "daemon/catalog.h"
#include "proto/pages.h"

/* wanted: as many at once as the job was opened with. */
struct gradient_buffers gradient_buffers_plan(const struct catalog *catalog, uint32_t wanted);

/* Of a rank's. */
uint64_t gradient_buffers_bytes(const struct gradient_buffers *buffers);

#endif
