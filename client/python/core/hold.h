/* A hold: this process' claim on a unit's memory, shared by all that look at it; the last one gives it back.
 *
 * A lease's hold releases the unit. A gradient buffer's gives nothing back: the buffer goes with its push,
 * which is refused while somebody else looks at it (hold_is_shared). A job that nobody refers to any more
 * stays as long as somebody does (hold_set_end).
 *
 * In the memory of a GPU a hold has a lease for each stream that uses the unit: each is given back behind
 * what its stream has been given until then. */
#ifndef TIERD_CORE_HOLD_H
#define TIERD_CORE_HOLD_H

#include "core/shape.h"

struct hold;

/* Takes over the lease on the unit, with one share for the caller. NULL with an exception set: the lease is
 * still the caller's. */
struct hold *hold_new_lease(struct tierd_job *job, uint32_t unit, struct shape *shape,
			    const struct tierd_view *view);
/* The same in the memory of that GPU, for the stream. */
struct hold *hold_new_lease_on(struct tierd_job *job, uint32_t unit, struct shape *shape,
			       const struct tierd_view *view, int gpu, void *stream);
/* The same for a gradient buffer, in host memory (-1) or in that of a GPU. */
struct hold *hold_new_gradients(struct shape *shape, const struct tierd_view *view, int gpu);

struct hold *hold_share(struct hold *hold);
/* Gives a share back, in any thread, with or without the interpreter's lock: on a GPU others may have that
 * meanwhile. NULL. */
struct hold *hold_drop(struct hold *hold /* or NULL */);
bool hold_is_shared(const struct hold *hold);
/* Has the end called where the last share is given back, in that thread. The caller has a share. */
void hold_set_end(struct hold *hold, void (*end)(void *argument), void *argument);

/* Of one in the memory of a GPU; the caller has the interpreter's lock, and a share. */
bool hold_is_used_on(const struct hold *hold, const void *stream);
/* Takes over a lease of another stream. False without memory: it is still the caller's. */
bool hold_add_stream(struct hold *hold, void *stream);
/* NULL: it is in host memory. */
void *const *hold_streams(const struct hold *hold);
uint32_t hold_unit(const struct hold *hold);
const void *hold_base(const struct hold *hold);
DLDevice hold_device(const struct hold *hold);

uint32_t hold_count(const struct hold *hold);
const struct shape *hold_shape(const struct hold *hold);
/* NULL: the tensor is not in this view, as a frozen one is not in a gradient buffer. */
void *hold_data(const struct hold *hold, uint32_t tensor);

/* A DLPack capsule with a share of its own; None where hold_data() has none; NULL with an exception set. */
PyObject *hold_capsule(struct hold *hold, uint32_t tensor);
/* The same of DLPack 1, which says that it is only to be read. */
PyObject *hold_capsule_versioned(struct hold *hold, uint32_t tensor);
/* A tuple of one for each tensor. */
PyObject *hold_capsules(struct hold *hold);

#endif
