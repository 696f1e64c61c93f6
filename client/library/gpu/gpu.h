/* GPU: the one that a rank gathers on, by its driver, in this process.
 *
 * What a program queues in a stream the GPU does later. So the rank has events, which tierd waits for before
 * it overwrites what was released; and tierd has events, which streams of the program wait for before they
 * read what was gathered. The rank's events are recorded in a stream of the library's own, which waits for
 * the program's streams first. So each event is behind all events before it, whichever streams they were for,
 * and whether those are still there.
 *
 * Here nothing waits for the GPU, unless a stream was destroyed: it cannot be asked any more, so all is
 * awaited that the program has queued. The thread of the caller keeps its current context. What fails leaves
 * a message. This module knows nothing of jobs; any thread may call it, but for a forked child. */
#ifndef TIERD_CLIENT_GPU_H
#define TIERD_CLIENT_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/cuda/driver.h"
#include "proto/gpu_pages.h"

struct gpu;

/* number: as this process counts its GPUs. -ENODEV: there is no driver, or no such GPU. */
int gpu_new(int32_t number, struct gpu **ret_gpu);

/* Lets it go: it is freed with the last of its mappings. In a forked child nothing is told to the driver. */
struct gpu *gpu_free(struct gpu *gpu, bool is_child);

int32_t gpu_number(const struct gpu *gpu);
const struct driver_uuid *gpu_uuid(const struct gpu *gpu);
/* Of its GPU_EVENTS events. */
const struct driver_event_handle *gpu_handles(const struct gpu *gpu);

/* ---- What streams have queued so far ---- */

/* Records the next event behind it. ret_number: the event's, counted from 1. */
int gpu_record(struct gpu *gpu, struct driver_stream *stream, uint64_t *ret_number);

/* What the stream is told from now on comes after that event, and so after all events before it. */
int gpu_follow(struct gpu *gpu, uint64_t number, struct driver_stream *stream);

/* Notes the stream, without a call of the driver if it was noted before. */
int gpu_note(struct gpu *gpu, struct driver_stream *stream);
/* Records an event behind what all streams have queued that were noted since the last time; without one there
 * is no new event. ret_number: of the last such event; 0: there has been none. */
int gpu_join(struct gpu *gpu, uint64_t *ret_number);

/* Has the stream write that byte there, and notes the stream. */
int gpu_fill(struct gpu *gpu, char *address, unsigned char value, size_t bytes, struct driver_stream *stream);

/* ---- Memory of the daemon's ---- */

/* Memory of the GPU, mapped here, with the events of those who write it. The driver does not tell reading
 * from writing where memory is imported: a program that writes there breaks what its job has there. */
struct gpu_mapping;

/* The descriptor is the caller's. */
int gpu_mapping_new(struct gpu *gpu, int fd, uint64_t bytes, const struct driver_event_handle *handles,
		    size_t count, struct gpu_mapping **ret_mapping);

char *gpu_mapping_address(const struct gpu_mapping *mapping);
size_t gpu_mapping_events(const struct gpu_mapping *mapping);

/* What the stream is told from now on comes after the event, which is below gpu_mapping_events(). */
int gpu_mapping_wait(const struct gpu_mapping *mapping, size_t event, struct driver_stream *stream);

/* Unmaps it, once what all streams have queued in it so far has ended: then the next call about a mapping
 * does so. In a forked child it only frees the handle. */
struct gpu_mapping *gpu_mapping_free(struct gpu_mapping *mapping, bool is_child);

#endif
