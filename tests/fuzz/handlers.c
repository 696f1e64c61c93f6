/* Fuzzes the daemon's handlers: two clients of a real node send what the input says, and scribble on the
 * pages that they share with it. Whatever they do, requests are answered once, nothing of the node is lost,
 * and it can be ended. A stand-in plays a GPU, on which they may have events.
 *
 * An input is a script, whose actions say who (bit 0) does what (bits 1 and 2). The bytes are a packed
 * Request, or of what is written where on the lease page. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/life/life.h"
#include "daemon/values/values.h"
#include "tests/fuzz/script.h"
#include "tests/unit/daemon_support.h"
#include "tests/unit/fake_gpu.h"

#define ACTORS 2
#define MAX_RECORDS 64

enum action { ACTION_REQUEST, ACTION_DIE, ACTION_SCRIBBLE, ACTION_SETTLE };

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static struct frame_arena *arena;
static struct actor actors[ACTORS];
static struct fake_gpu gpu; /* whose events they are */

/* Its process is this program, too. */
int LLVMFuzzerInitialize(int *count, char ***arguments)
{
	if (strcmp((*arguments)[0], FAKE_GPU_NAME) == 0)
		exit(fake_gpu_main(*arguments));
	fake_gpu_start(&gpu);
	return 0;
}

/* No input knows the handle of an event: it has a name for that. */
static void name_events(Tierd__Wire__GpuAttach *attach)
{
	for (size_t i = 0; i < attach->n_events; i++) {
		ProtobufCBinaryData *event = &attach->events[i];

		if (event->len == GPU_HANDLE_BYTES && memcmp(event->data, "event", 5) == 0)
			memcpy(event->data, fake_gpu_handle(i % FAKE_GPU_SLOTS), GPU_HANDLE_BYTES);
	}
}

/* Budgets of the input are bounded by the node's; what is left is time: sizes that only take long are cut. */
static void tame(Tierd__Wire__Request *request)
{
	if (request->body_case == TIERD__WIRE__REQUEST__BODY_JOB_READY && request->job_ready->timeout_ms > 0)
		request->job_ready->timeout_ms = 0;
	if (request->body_case == BODY(GPU_ATTACH))
		name_events(request->gpu_attach);
}

static void ask(struct actor *actor, const uint8_t *bytes, size_t length)
{
	ProtobufCMessage *message;

	if (frame_decode(arena, &tierd__wire__request__descriptor, bytes, length, &message) < 0)
		return;
	tame((Tierd__Wire__Request *)message);
	actor_send(actor, (Tierd__Wire__Request *)message);
}

/* Two bytes of offset, then what is written there. */
static void scribble(struct actor *actor, const uint8_t *bytes, size_t length)
{
	size_t offset;

	if (length < 2 || !actor->leases.base)
		return;
	offset = (size_t)(bytes[0] | bytes[1] << 8) * 4;
	length -= 2;
	if (offset < actor->leases.bytes)
		memcpy(actor->leases.base + offset, bytes + 2,
		       length < actor->leases.bytes - offset ? length : actor->leases.bytes - offset);
}

static void act(struct scene *scene, struct actor *actor, enum action action, const uint8_t *bytes,
		size_t length)
{
	switch (action) {
	case ACTION_REQUEST:
		ask(actor, bytes, length);
		break;
	case ACTION_DIE:
		actor_die(actor);
		assert(actor_enter(scene, actor) == 0);
		break;
	case ACTION_SCRIBBLE:
		scribble(actor, bytes, length);
		break;
	case ACTION_SETTLE:
		break;
	}
	/* Half of the time the next record comes while things are in flight. */
	if (action == ACTION_SETTLE || length % 2)
		scene_settle(scene);
	else
		event_base_loop(scene->loop, EVLOOP_NONBLOCK);
	if (actor->is_closed) {
		actor_die(actor);
		assert(actor_enter(scene, actor) == 0);
	}
}

static void play(struct scene *scene, const uint8_t *bytes, size_t length)
{
	struct script script = { bytes, length };
	struct script_record record;

	for (unsigned i = 0; i < MAX_RECORDS && script_next(&script, &record); i++)
		act(scene, &actors[record.action & 1], (enum action)(record.action >> 1 & 3), record.bytes,
		    record.length);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct scene scene;

	if (!arena) {
		log_open(LOG_LEVEL_ERROR);
		assert(frame_arena_new(&arena) == 0);
	}
	assert(scene_open(&(struct scene_options){ .host_budget = 32 * MIB, .capacity = 32 * MIB }, &scene) ==
	       0);
	for (unsigned i = 0; i < ACTORS; i++)
		assert(actor_enter(&scene, &actors[i]) == 0);
	play(&scene, bytes, length);
	for (unsigned i = 0; i < ACTORS; i++)
		actor_die(&actors[i]);
	scene_settle(&scene);
	assert(telemetry_clients(scene.node)->connected == 0);
	scene_close(&scene);
	return 0;
}
