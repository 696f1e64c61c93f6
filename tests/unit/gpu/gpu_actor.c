#include "tests/unit/gpu/gpu_actor.h"

uint32_t gpu_actor_send_attach(struct gpu_peer *peer, struct actor *actor, uint8_t uuid[GPU_UUID_BYTES],
			       uint64_t budget)
{
	return gpu_actor_send_attach_for(peer, actor, uuid, budget, 0);
}

uint32_t gpu_actor_send_attach_for(struct gpu_peer *peer, struct actor *actor, uint8_t uuid[GPU_UUID_BYTES],
				   uint64_t budget, float update_fraction)
{
	Tierd__Wire__GpuAttach attach = TIERD__WIRE__GPU_ATTACH__INIT;
	ProtobufCBinaryData events[GPU_EVENTS];

	for (unsigned i = 0; i < GPU_EVENTS; i++)
		events[i] = (ProtobufCBinaryData){ GPU_HANDLE_BYTES, peer->events[i] };
	attach.job = actor->job;
	attach.epoch = actor->epoch;
	attach.uuid = (ProtobufCBinaryData){ GPU_UUID_BYTES, uuid };
	attach.budget = budget;
	attach.has_gradients = peer->has_gradients;
	attach.update_fraction = update_fraction;
	attach.n_events = GPU_EVENTS;
	attach.events = events;
	return actor_send(actor, WIRE_REQUEST(GPU_ATTACH, gpu_attach, &attach));
}

uint32_t gpu_actor_send_gather(struct actor *actor, uint32_t unit, uint64_t version)
{
	Tierd__Wire__GpuGather gather = TIERD__WIRE__GPU_GATHER__INIT;

	gather.job = actor->job;
	gather.epoch = actor->epoch;
	gather.unit = unit;
	gather.version = version;
	gather.is_blocking = true;
	return actor_send(actor, WIRE_REQUEST(GPU_GATHER, gpu_gather, &gather));
}

uint32_t gpu_actor_send_gradients(struct actor *actor)
{
	Tierd__Wire__GpuGradients gradients = TIERD__WIRE__GPU_GRADIENTS__INIT;

	gradients.job = actor->job;
	gradients.epoch = actor->epoch;
	return actor_send(actor, WIRE_REQUEST(GPU_GRADIENTS, gpu_gradients, &gradients));
}

uint32_t gpu_actor_send_push(struct actor *actor, uint32_t unit, uint32_t buffer, uint64_t event)
{
	Tierd__Wire__Push push = TIERD__WIRE__PUSH__INIT;

	push.job = actor->job;
	push.epoch = actor->epoch;
	push.unit = unit;
	push.buffer = buffer;
	push.event = event;
	return actor_send(actor, WIRE_REQUEST(PUSH, push, &push));
}
