/* Gradient buffers: how many a rank has, how large they are, and where. */
#ifndef TIERD_DAEMON_GRADIENT_BUFFERS_H
#define TIERD_DAEMON_GRADIENT_BUFFERS_H

#include "daemon/model/catalog.h"
#include "proto/pages.h"

struct job;

/* wanted: as many at once as the job was opened with; room: bytes of all of them, or 0. */
struct gradient_buffers gradient_buffers_plan(const struct catalog *catalog, uint32_t wanted, uint64_t room);

/* Of a rank's. */
uint64_t gradient_buffers_bytes(const struct gradient_buffers *buffers);

/* Beside a buffer: bytes that say which tensors a contribution has no gradient of, at most. */
uint64_t gradient_absent_bytes(const struct job *job);

#endif
