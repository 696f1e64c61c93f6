/* Fuzzes what libtierd makes of a daemon's answers about a GPU, which a stand-in plays: a job gathers and
 * pushes there, with a peer that answers as the input says. Whatever comes, calls return, and what they
 * return without an error can be used. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/tierd.h"
#include "offload/cuda/driver.h"
#include "tests/fuzz/liar.h"
#include "tests/unit/fake_gpu.h"

#define ELEMENTS 300
#define UNITS 2
/* A peer that leaves a request without an answer ends the stream; this is for those that it forgets. */
#define PATIENCE_MS 200

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

#define did(call) assert((call) == DRIVER_DONE)

/* A process of the GPU serves so many inputs: its stream comes to know those of all of them, and the
 * stand-in has room for some. */
#define INPUTS_OF_GPU 32
static struct fake_gpu gpu = { .is_late = true };
static struct driver driver;
static struct driver_stream *stream;
static int gradients;

/* Memory that no copy goes to. */
static void make_gradients(void)
{
	const struct driver_memory_kind kind = { .type = DRIVER_PINNED,
						 .handles = DRIVER_DESCRIPTOR,
						 .location = { DRIVER_ON_GPU, 0 } };
	driver_allocation allocation;

	did(driver.memory_create(&allocation, FAKE_GPU_BYTES, &kind, 0));
	did(driver.memory_export(&gradients, allocation, DRIVER_DESCRIPTOR, 0));
}

/* That process is this program, too. */
int LLVMFuzzerInitialize(int *count, char ***arguments)
{
	struct dynamic_library library = { .is_found = false };
	struct driver_context *context;

	if (strcmp((*arguments)[0], FAKE_GPU_NAME) == 0)
		exit(fake_gpu_main(*arguments));
	fake_gpu_start(&gpu);
	assert(driver_open(&driver, &library));
	did(driver.context_retain(&context, 0));
	did(driver.context_enter(context));
	make_gradients();
	return 0;
}

/* ---- The peer ---- */

/* A client that believed other lies may ask for what there is not. */
static bool is_sound(const struct fake_peer *peer, const Tierd__Wire__Request *request)
{
	const Tierd__Wire__GpuAttach *attach = request->gpu_attach;
	const Tierd__Wire__GpuGather *gather = request->gpu_gather;

	switch (request->body_case) {
	case BODY(GPU_ATTACH):
		return attach->job == 7 && attach->epoch == peer->epoch;
	case BODY(GPU_GATHER):
		return gpu.directory && gather->unit < gpu.unit_count && gather->is_blocking &&
		       gather->version <= peer->step;
	default:
		return request->body_case == BODY(GPU_GRADIENTS);
	}
}

static bool answer(struct liar *liar, uint32_t number, const Tierd__Wire__Request *request)
{
	Tierd__Wire__GpuGradientsReply reply = TIERD__WIRE__GPU_GRADIENTS_REPLY__INIT;

	if (request->body_case != BODY(GPU_ATTACH) && request->body_case != BODY(GPU_GATHER) &&
	    request->body_case != BODY(GPU_GRADIENTS))
		return false;
	reply.bytes = FAKE_GPU_BYTES;
	if (!is_sound(&liar->peer, request))
		shutdown(liar->peer.fd, SHUT_RDWR);
	else if (!fake_gpu_answer(&gpu, &liar->peer, number, request))
		fake_peer_reply_fds(&liar->peer, number, WIRE_REPLY(GPU_GRADIENTS, gpu_gradients, &reply),
				    &gradients, 1);
	return true;
}

/* ---- The rank ---- */

static void define(struct tierd_job *job, const char *name)
{
	struct tierd_tensor tensors[2] = { TIERD_TENSOR_INIT, TIERD_TENSOR_INIT };

	for (int i = 0; i < 2; i++) {
		tensors[i].name = i ? "weight" : "norm";
		tensors[i].format = i ? TIERD_BF16 : TIERD_FP32;
		tensors[i].dimensions = 1;
		tensors[i].shape[0] = ELEMENTS;
	}
	tierd_unit_define(job, name, tensors, 2, NULL);
}

/* The stand-in's memory is the host's: what is not there ends the process. */
static void use(struct tierd_job *job, uint32_t unit)
{
	struct tierd_view view;
	char bytes[ELEMENTS * 4];

	if (tierd_gather_on(job, unit, stream, &view) == 0) {
		memcpy(bytes, tierd_at(&view, 0), ELEMENTS * 4);
		memcpy(bytes, tierd_at(&view, 1), ELEMENTS * 2);
		tierd_release_on(job, unit, stream);
	}
	if (tierd_gradients_on(job, unit, 0, stream, &view) == 0) {
		did(driver.stream_synchronize(stream));
		memset(tierd_at(&view, 0), 0, ELEMENTS * 4);
		memset(tierd_at(&view, 1), 0, ELEMENTS * 2);
		tierd_push_on(job, unit, NULL, 0, stream, NULL);
	}
}

static void play(struct tierd_node *node)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_job *job;

	tierd_set_timeout(node, PATIENCE_MS);
	options.name = "job";
	options.gpu = 0;
	options.gpu_gradients = true;
	if (tierd_job_open(node, &options, &job) < 0)
		return;
	define(job, "first");
	define(job, "second");
	tierd_job_ready(job, PATIENCE_MS, NULL);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		use(job, unit);
	tierd_step(job, &rates, NULL);
	use(job, 0);
	tierd_job_close(job);
}

static void renew_gpu(void)
{
	static unsigned inputs;

	if (++inputs % INPUTS_OF_GPU == 0) {
		fake_gpu_stop(&gpu);
		fake_gpu_start(&gpu);
	}
	memset(gpu.values, 0, sizeof(gpu.values));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct liar liar = { .answer_gpu = answer, .gpu_gradients = gradients };
	struct tierd_node *node;

	renew_gpu();
	liar.gpu_memory = gpu.fds[2];
	did(driver.stream_create(&stream, DRIVER_NO_STREAM_0));
	liar_start(&liar, bytes, length);
	if (tierd_connect(liar.peer.path, &node) == 0) {
		play(node);
		tierd_disconnect(node);
	}
	liar_stop(&liar);
	did(driver.stream_synchronize(stream));
	did(driver.stream_destroy(stream));
	return 0;
}
