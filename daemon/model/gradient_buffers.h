/* Gradient buffers: how many a rank has, how large they are, and where. */
#ifndef TIERD_DAEMON_GRADIENT_BUFFERS_H
#define TIERD_DAEMON_GRADIENT_BUFFERS_H

#include <stddef.h>

#include "daemon/model/catalog.h"
#include "proto/pages.h"

struct job;
struct member;

/* wanted: as many at once as the job was opened with; room: bytes of all of them, or 0. */
struct gradient_buffers gradient_buffers_plan(const struct catalog *catalog, uint32_t wanted, uint64_t room);

/* Of a rank's. */
uint64_t gradient_buffers_bytes(const struct gradient_buffers *buffers);

/* Whether the rank may push that unit from there: -EINVAL. */
int gradient_buffers_check(const struct member *member, const Tierd__Wire__Push *push, char *message,
			   size_t size);
/* Where it pushes it from. */
uint64_t gradient_buffers_offset(const struct member *member, const Tierd__Wire__Push *push);

/* Of a rank that waits for a buffer: which bytes it wants, and whether a buffer has some of them that is on
 * its way. */
struct gradient_span gradient_buffers_wanted(const struct member *member,
					     const Tierd__Wire__BufferWait *wait);
bool gradient_buffers_block(const struct member *member, uint32_t buffer, struct gradient_span wanted);

/* Beside a buffer: bytes that say which tensors a contribution has no gradient of, at most. */
uint64_t gradient_absent_bytes(const struct job *job);

#endif
