/* What an actor of a scene sends for a GPU, of whose peer the events are. */
#ifndef TIERD_TESTS_UNIT_GPU_ACTOR_H
#define TIERD_TESTS_UNIT_GPU_ACTOR_H

#include "tests/unit/daemon_support.h"
#include "tests/unit/gpu/gpu_peer.h"

/* The number of the request. A gather blocks its actor. */
uint32_t gpu_actor_send_attach(struct gpu_peer *peer, struct actor *actor, uint8_t uuid[GPU_UUID_BYTES],
			       uint64_t budget);
/* And of that many of its updates. */
uint32_t gpu_actor_send_attach_for(struct gpu_peer *peer, struct actor *actor, uint8_t uuid[GPU_UUID_BYTES],
				   uint64_t budget, float update_fraction);
uint32_t gpu_actor_send_gather(struct actor *actor, uint32_t unit, uint64_t version);
uint32_t gpu_actor_send_gradients(struct actor *actor);
/* From the buffer on the GPU, behind that event of the actor's. */
uint32_t gpu_actor_send_push(struct actor *actor, uint32_t unit, uint32_t buffer, uint64_t event);

#endif
