/* Gradient buffers: how many a rank has, how large they are, and where. */
#ifndef TIERD_DAEMON_GRADIENT_BUFFERS_H
#define TIERD_DAEMON_GRADIENT_BUFFERS_H

#include "daemon/model/catalog.h"
#include "proto/pages.h"

struct job;

/* wanted: as many at once as the job was opened with; room: bytes of all of them, or 0. */
struct gradient_buffers gradient_buffers_plan(const struct catalog *catalog, uint32_t wanted, uint64_t room);

/* All buffers of a rank. */
uint64_t gradient_buffers_bytes(const struct gradient_buffers *buffers);

/* At most so many bytes beside a buffer say which tensors of a push have no gradient. */
uint64_t gradient_absent_bytes(const struct job *job);

#endif
