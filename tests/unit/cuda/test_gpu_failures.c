/* A GPU engine whose driver fails: in one call, or for ever. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "offload/cuda/gpu_private.h"
#include "tests/unit/cuda/gpu_support.h"

#define BYTES ((size_t)4096)

/* Two registrations at least. */
#define WIDE_BYTES (GPU_PIN_BYTES + BYTES)

static unsigned char host[BYTES];

/* One of each kind of request, one after the other. */
enum request { CREATE, PIN, EVENT, LOAD, COPY, WAIT, NO_COPY, RUN, UNLOAD, UNPIN, CLOSE, DESTROY, REQUESTS };

struct session {
	struct gpu_fixture fixture;
	struct gpu_memory memory;
	struct gpu_pin pin;
	struct gpu_event event;
	struct driver_function *function;
	struct gpu_kernels kernels;
	struct gpu_program program;
	struct gpu_ending ending;
	struct test_copy copy;
	void *wide;
};

static int copy_now(struct session *session, struct gpu_event *after, size_t bytes)
{
	test_copy_init(&session->copy, GPU_FROM_HOST, session->memory.address, host_address(session->wide),
		       bytes);
	session->copy.copy.after = after;
	session->copy.copy.behind = &session->event;
	gpu_copy_submit(session->fixture.engines[0], &session->copy.copy);
	return test_copy_wait(session->fixture.engines[0], &session->copy);
}

static void note_program(struct gpu_request *request, int status)
{
	struct session *session = container_of(request, struct session, program.request);

	session->ending.count++;
	session->ending.status = status;
}

/* A copy in, a kernel, and a copy out. */
static int run_now(struct session *session)
{
	driver_address here = session->memory.address, there = host_address(session->wide);
	const struct add_arguments add = { .to = here, .from = here, .count = BYTES, .value = 1 };
	const struct gpu_step steps[] = {
		{ .direction = GPU_FROM_HOST, .to = here, .from = there, .bytes = BYTES },
		{ .function = session->function,
		  .arguments = &add,
		  .blocks = BYTES / ADD_THREADS,
		  .threads = ADD_THREADS },
		{ .direction = GPU_TO_HOST, .to = there, .from = here, .bytes = BYTES },
	};

	session->program = (struct gpu_program){ .request = { .done = note_program },
						 .after = &session->event,
						 .count = ARRAY_LENGTH(steps),
						 .steps = steps };
	session->ending.count = 0;
	gpu_program_submit(session->fixture.engines[0], &session->program);
	while (session->ending.count == 0)
		gpu_reap_once(session->fixture.engines[0]);
	assert_int_equal(session->ending.count, 1);
	return session->ending.status;
}

static int do_request(struct session *session, enum request request, const char **ret_problem)
{
	struct gpu_engine *engine = session->fixture.engines[0];

	switch (request) {
	case CREATE:
		*ret_problem = session->memory.request.problem.text;
		return gpu_memory_create_now(engine, &session->memory, BYTES);
	case PIN:
		*ret_problem = session->pin.request.problem.text;
		return gpu_pin_add_now(engine, &session->pin, session->wide, WIDE_BYTES);
	case EVENT:
		*ret_problem = session->event.request.problem.text;
		return gpu_event_create_now(engine, &session->event);
	case COPY:
		*ret_problem = session->copy.copy.request.problem.text;
		return copy_now(session, NULL, BYTES);
	case WAIT:
	case NO_COPY:
		*ret_problem = session->copy.copy.request.problem.text;
		return copy_now(session, &session->event, request == WAIT ? BYTES : 0);
	case LOAD:
		*ret_problem = session->kernels.request.problem.text;
		return gpu_kernels_load_now(engine, &session->kernels);
	case RUN:
		*ret_problem = session->program.request.problem.text;
		return run_now(session);
	case UNLOAD:
		*ret_problem = session->kernels.request.problem.text;
		return gpu_kernels_unload_now(engine, &session->kernels);
	case UNPIN:
		*ret_problem = session->pin.request.problem.text;
		return gpu_pin_remove_now(engine, &session->pin);
	case CLOSE:
		*ret_problem = session->event.request.problem.text;
		return gpu_event_close_now(engine, &session->event);
	default:
		*ret_problem = session->memory.request.problem.text;
		return gpu_memory_destroy_now(engine, &session->memory);
	}
}

static const struct failure {
	const char *script, *call;
	enum request request;
	int status;
} failures[] = {
	{ "cuMemGetAllocationGranularity=1", "cuMemGetAllocationGranularity: ", CREATE, -EINVAL },
	{ "cuMemCreate=2", "GPU 0 (stand-in): 2.0 MiB are wanted, and 64.0 of 64.0 MiB are free", CREATE,
	  -ENOMEM },
	{ "cuMemAddressReserve=2", "cuMemAddressReserve: ", CREATE, -ENOMEM },
	{ "cuMemMap=999", "cuMemMap: ", CREATE, -EIO },
	{ "cuMemSetAccess=800", "cuMemSetAccess: ", CREATE, -EPERM },
	{ "cuMemExportToShareableHandle=801", "cuMemExportToShareableHandle: ", CREATE, -EOPNOTSUPP },
	{ "cuMemHostRegister_v2=2", "cuMemHostRegister: ", PIN, -ENOMEM },
	{ "cuMemHostRegister_v2#2=2", "cuMemHostRegister: ", PIN, -ENOMEM },
	{ "cuEventCreate=2", "cuEventCreate: ", EVENT, -ENOMEM },
	{ "cuIpcGetEventHandle=201", "cuIpcGetEventHandle: ", EVENT, -EINVAL },
	{ "cuMemcpyAsync=400", "cuMemcpyAsync: ", COPY, -EINVAL },
	{ "cuEventRecord=999", "cuEventRecord: ", COPY, -EIO },
	/* That of the piece is before that of the event behind it. */
	{ "cuEventRecord#2=999", "cuEventRecord: ", COPY, -EIO },
	{ "cuEventQuery=999", "cuEventQuery: ", WAIT, -EIO },
	{ "cuEventQuery#1=999", "cuEventQuery: ", NO_COPY, -EIO },
	{ "cuModuleLoadData=2", "cuModuleLoadData: ", LOAD, -ENOMEM },
	{ "cuModuleLoadData=209", "does not take tierd's kernels", LOAD, -ENOEXEC },
	{ "cuModuleLoadData=222", "does not take tierd's kernels", LOAD, -ENOEXEC },
	{ "cuModuleGetFunction=500", "cuModuleGetFunction: ", LOAD, -ENOENT },
	{ "cuEventQuery#1=400", "cuEventQuery: ", RUN, -EINVAL },
	{ "cuLaunchKernel=701", "cuLaunchKernel: ", RUN, -EIO },
	{ "cuMemcpyAsync#2=1", "cuMemcpyAsync: ", RUN, -EINVAL },
	{ "cuEventRecord=999", "cuEventRecord: ", RUN, -EIO },
	{ "cuModuleUnload=999", "cuModuleUnload: ", UNLOAD, -EIO },
	{ "cuMemHostUnregister=999", "cuMemHostUnregister: ", UNPIN, -EIO },
	{ "cuMemHostUnregister#2=713", "cuMemHostUnregister: ", UNPIN, -EINVAL },
	{ "cuEventDestroy_v2=999", "cuEventDestroy: ", CLOSE, -EIO },
	{ "cuMemUnmap=999", "cuMemUnmap: ", DESTROY, -EIO },
	{ "cuMemAddressFree=999", "cuMemAddressFree: ", DESTROY, -EIO },
	{ "cuMemRelease=999", "cuMemRelease: ", DESTROY, -EIO },
};

static bool is_end(enum request request)
{
	return request == UNLOAD || request == UNPIN || request == CLOSE || request == DESTROY;
}

static void expect_failure(const struct failure *failure, int status, const char *problem)
{
	assert_int_equal(status, failure->status);
	assert_non_null(strstr(problem, failure->call));
	assert_non_null(strstr(problem, "GPU 0 (stand-in): "));
}

static void expect_loss(enum request request, int status, const char *problem)
{
	assert_int_equal(status, is_end(request) ? 0 : -ENODEV);
	if (!is_end(request))
		assert_non_null(strstr(problem, "GPU 0 (stand-in) is lost: cu"));
}

static void open_session(struct session *session)
{
	*session = (struct session){ 0 };
	gpu_fixture_open(&session->fixture);
	session->wide = mmap(NULL, WIDE_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(session->wide != MAP_FAILED);
	session->kernels = (struct gpu_kernels){
		.image = &add_image, .count = 1, .names = add_names, .functions = &session->function
	};
}

static int do_scripted(struct session *session, enum request request, const char *script,
		       const char **ret_problem)
{
	int status;

	standin_tell("STANDIN_FAILURES", script);
	status = do_request(session, request, ret_problem);
	standin_tell("STANDIN_FAILURES", NULL);
	return status;
}

static void play(const struct failure *failure)
{
	struct session session;
	const char *problem;

	open_session(&session);
	for (enum request request = 0; request < REQUESTS; request++) {
		if (request == failure->request) {
			int status = do_scripted(&session, request, failure->script, &problem);

			expect_failure(failure, status, problem);
			assert_true(request != EVENT || !session.event.event);
			assert_true(request != LOAD || !session.kernels.module);
			assert_true(request != COPY || session.copy.recorded == 0);
		}
		if (request != failure->request || !is_end(request))
			assert_int_equal(do_request(&session, request, &problem), 0);
	}
	assert_int_equal(session.fixture.failures, 0);
	gpu_fixture_close(&session.fixture);
	/* Where it is registered for ever, no other may lie. */
	if (failure->request != UNPIN)
		munmap(session.wide, WIDE_BYTES);
}

static void expect_all_free(void)
{
	struct gpu_fixture fixture;

	gpu_fixture_open(&fixture);
	assert_int_equal(gpu_free_bytes(&fixture), (size_t)64 << 20);
	gpu_fixture_close(&fixture);
}

static void each_call_fails_and_all_goes_on(void **state)
{
	for (size_t i = 0; i < ARRAY_LENGTH(failures); i++) {
		play(&failures[i]);
		expect_all_free();
	}
}

static void play_loss(const struct failure *failure)
{
	struct session session;
	const char *problem;
	char script[64];
	int status;

	snprintf(script, sizeof(script), "%s!", failure->script);
	open_session(&session);
	for (enum request request = 0; request < failure->request; request++)
		assert_int_equal(do_request(&session, request, &problem), 0);
	status = do_scripted(&session, failure->request, script, &problem);
	expect_loss(failure->request, status, problem);
	for (enum request request = failure->request + 1; request < REQUESTS; request++) {
		status = do_request(&session, request, &problem);
		expect_loss(request, status, problem);
	}
	assert_int_equal(session.fixture.failures, 1);
	assert_non_null(strstr(session.fixture.failure, "GPU 0 (stand-in) is lost: cu"));
	gpu_fixture_close(&session.fixture);
}

static void a_gpu_is_lost_in_each_call(void **state)
{
	for (size_t i = 0; i < ARRAY_LENGTH(failures); i++) {
		play_loss(&failures[i]);
		expect_all_free();
	}
}

/* The stream has done what it was told, even if its end cannot be asked for. */
static void a_piece_is_waited_for_if_it_cannot_be_asked_for(void **state)
{
	struct session session;
	const char *problem;

	open_session(&session);
	for (enum request request = 0; request < COPY; request++)
		assert_int_equal(do_request(&session, request, &problem), 0);
	assert_int_equal(do_scripted(&session, COPY, "cuEventQuery=999", &problem), 0);
	assert_int_equal(do_scripted(&session, COPY, "cuEventQuery=999,cuStreamSynchronize=999", &problem),
			 -ENODEV);
	assert_string_equal(problem,
			    "GPU 0 (stand-in) is lost: cuStreamSynchronize: the stand-in's error 999 "
			    "(error 999)");
	assert_int_equal(do_request(&session, UNPIN, &problem), 0);
	gpu_fixture_close(&session.fixture);
}

/* Its memory may go at once, which the stand-in makes sure of. */
static void a_copy_that_has_failed_moves_nothing_any_more(void **state)
{
	struct session session;
	const char *problem;

	open_session(&session);
	for (enum request request = 0; request < COPY; request++)
		assert_int_equal(do_request(&session, request, &problem), 0);
	assert_int_equal(do_scripted(&session, COPY, "cuEventRecord=999", &problem), -EIO);
	assert_int_equal(do_request(&session, DESTROY, &problem), 0);
	assert_int_equal(do_request(&session, UNPIN, &problem), 0);
	gpu_fixture_close(&session.fixture);
}

/* Both GPUs use the memory, the first is lost, and then they let go of it. */
static void pin_and_lose(struct session *session, unsigned registering, unsigned last)
{
	struct gpu_engine *const *engines = session->fixture.engines;
	struct gpu_pin pins[2];
	const char *problem;

	assert_int_equal(gpu_pin_add_now(engines[registering], &pins[registering], session->wide, WIDE_BYTES),
			 0);
	assert_int_equal(
		gpu_pin_add_now(engines[!registering], &pins[!registering], session->wide, WIDE_BYTES), 0);
	assert_int_equal(do_scripted(session, EVENT, "cuEventCreate=719!", &problem), -ENODEV);
	assert_int_equal(gpu_pin_remove_now(engines[!last], &pins[!last]), 0);
	assert_int_equal(gpu_pin_remove_now(engines[last], &pins[last]), 0);
}

static bool is_mapped(driver_address address)
{
	int pipes[2];
	ssize_t written;

	assert_int_equal(pipe(pipes), 0);
	written = write(pipes[1], (const void *)(uintptr_t)address, 1);
	close(pipes[0]);
	close(pipes[1]);
	return written == 1;
}

/* Somebody else has its context, too, in every second round. */
static void what_a_lost_gpu_may_use_is_kept_until_its_context_has_gone(void **state)
{
	for (unsigned i = 0; i < 8; i++) {
		struct driver_context *context;
		struct gpu_fixture other;
		struct session session;
		driver_address address;
		const char *problem;

		open_session(&session);
		assert_int_equal(do_request(&session, CREATE, &problem), 0);
		address = session.memory.address;
		if (i & 1)
			assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), DRIVER_DONE);
		pin_and_lose(&session, i >> 1 & 1, i >> 2 & 1);
		assert_int_equal(do_request(&session, DESTROY, &problem), 0);
		assert_true(gpu_pin_keeps(session.wide, WIDE_BYTES) && is_mapped(address));
		gpu_fixture_close(&session.fixture);
		assert_int_equal(gpu_pin_keeps(session.wide, WIDE_BYTES), i & 1);
		assert_int_equal(is_mapped(address), i & 1);
		if (i & 1)
			assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), DRIVER_DONE);
		/* Whoever closes a GPU looks again. */
		gpu_fixture_open(&other);
		gpu_fixture_close(&other);
		assert_false(gpu_pin_keeps(session.wide, WIDE_BYTES) || is_mapped(address));
		munmap(session.wide, WIDE_BYTES);
	}
}

#define COPIES (GPU_PIECES + 4)

static void submit_copies(struct session *session, struct test_copy *tests)
{
	for (unsigned i = 0; i < COPIES; i++) {
		test_copy_init(&tests[i], GPU_FROM_HOST, session->memory.address + i,
			       host_address(session->wide) + i, 1);
		tests[i].copy.behind = &session->event;
		if (i == COPIES - 1)
			tests[i].copy.after = &session->event;
		gpu_copy_submit(session->fixture.engines[0], &tests[i].copy);
	}
	while (tests[GPU_PIECES - 1].recorded == 0)
		gpu_reap_once(session->fixture.engines[0]);
}

/* Pieces are on their way, others wait, or wait for an event. The other GPU goes on. */
static void a_gpu_is_lost_in_the_middle(void **state)
{
	struct test_copy tests[COPIES];
	struct session session;
	struct gpu_memory other;
	const char *problem;
	struct gpu_engine *engine;

	open_session(&session);
	engine = session.fixture.engines[0];
	for (enum request request = 0; request < COPY; request++)
		assert_int_equal(do_request(&session, request, &problem), 0);
	standin_tell("STANDIN_FAILURES", "copy#2=719");
	standin_hold(true);
	submit_copies(&session, tests);
	standin_hold(false);
	for (unsigned i = 1; i < COPIES; i++) {
		assert_int_equal(test_copy_wait(engine, &tests[i]), -ENODEV);
		assert_int_equal(session.fixture.failures, 1);
		assert_non_null(strstr(tests[i].copy.request.problem.text, "is lost: cu"));
	}
	(void)test_copy_wait(engine, &tests[0]);
	assert_int_equal(gpu_memory_create_now(session.fixture.engines[1], &other, 1), 0);
	assert_int_equal(
		gpu_copy_now(session.fixture.engines[1], GPU_FROM_HOST, other.address, host_address(host), 1),
		0);
	assert_int_equal(gpu_memory_destroy_now(session.fixture.engines[1], &other), 0);
	for (enum request request = UNLOAD; request < REQUESTS; request++)
		assert_int_equal(do_request(&session, request, &problem), 0);
	assert_int_equal(session.fixture.failures, 1);
	gpu_fixture_close(&session.fixture);
	standin_tell("STANDIN_FAILURES", NULL);
}

static void note_loss(void *context, const char *problem)
{
	snprintf(context, sizeof(((struct gpu_problem *)NULL)->text), "%s", problem);
}

static struct gpu_engine *open_impatient(const struct gpu_fixture *fixture, struct gpu_problem *loss)
{
	const struct gpu_engine_config config = {
		.gpus = &fixture->gpus, .failed = note_loss, .context = loss->text, .patience_ms = 1
	};
	struct gpu_problem problem;
	struct gpu_engine *engine;

	assert_int_equal(gpu_engine_new(&config, &problem, &engine), 0);
	return engine;
}

static void note_end(struct gpu_request *request, int status)
{
	container_of(request, struct gpu_program, request)->is_cancelled = true;
	assert_int_equal(status, -ENODEV);
}

/* Nothing moves there any more. */
static void a_gpu_that_hangs_is_lost(void **state)
{
	static unsigned char page[4096] __attribute__((aligned(4096)));
	struct gpu_program program = { .request.done = note_end };
	struct gpu_pin pin;
	struct gpu_fixture fixture;
	struct gpu_problem loss;
	struct gpu_memory memory;
	struct gpu_engine *engine;
	struct test_copy test;

	gpu_fixture_open(&fixture);
	engine = open_impatient(&fixture, &loss);
	assert_int_equal(gpu_memory_create_now(engine, &memory, 1), 0);
	assert_int_equal(gpu_pin_add_now(engine, &pin, page, sizeof(page)), 0);
	standin_hold(true);
	test_copy_init(&test, GPU_FROM_HOST, memory.address, host_address(page), 1);
	gpu_copy_submit(engine, &test.copy);
	assert_int_equal(test_copy_wait(engine, &test), -ENODEV);
	assert_string_equal(loss.text, "GPU 0 (stand-in) is lost: a copy has not ended for 0.001 s");
	standin_hold(false);
	assert_int_equal(gpu_pin_remove_now(engine, &pin), 0);
	assert_int_equal(gpu_memory_destroy_now(engine, &memory), 0);
	engine = gpu_engine_free(engine);

	engine = open_impatient(&fixture, &loss);
	standin_hold(true);
	gpu_program_submit(engine, &program);
	while (!program.is_cancelled)
		gpu_reap_once(engine);
	assert_string_equal(loss.text, "GPU 0 (stand-in) is lost: a kernel has not ended for 0.001 s");
	standin_hold(false);
	gpu_engine_free(engine);
	gpu_fixture_close(&fixture);
}

/* One piece is under way already. */
static void a_gpu_that_is_hurried_is_lost_sooner(void **state)
{
	struct session session;
	struct test_copy test;
	const char *problem;

	open_session(&session);
	for (enum request request = 0; request < COPY; request++)
		assert_int_equal(do_request(&session, request, &problem), 0);
	standin_hold(true);
	test_copy_init(&test, GPU_FROM_HOST, session.memory.address, host_address(session.wide), BYTES);
	test.copy.behind = &session.event;
	gpu_copy_submit(session.fixture.engines[0], &test.copy);
	while (test.recorded == 0)
		gpu_reap_once(session.fixture.engines[0]);
	gpu_engine_hurry(session.fixture.engines[0], 1);
	assert_int_equal(test_copy_wait(session.fixture.engines[0], &test), -ENODEV);
	assert_string_equal(session.fixture.failure,
			    "GPU 0 (stand-in) is lost: a copy has not ended for 0.001 s");
	standin_hold(false);
	for (enum request request = UNLOAD; request < REQUESTS; request++)
		assert_int_equal(do_request(&session, request, &problem), 0);
	gpu_fixture_close(&session.fixture);
}

static void a_driver_that_does_not_come_back_is_found(void **state)
{
	struct gpu_fixture fixture;
	struct gpu_problem problem;

	gpu_fixture_open(&fixture);
	assert_false(gpu_engine_hangs(fixture.engines[0], &problem));
	/* The thread may only just begin to pause. */
	while (!gpu_engine_hangs(fixture.engines[0], &problem))
		atomic_store(&fixture.engines[0]->at_work_since_ns, 1);
	assert_string_equal(problem.text,
			    "GPU 0 (stand-in) is lost: its driver has not come back from a call for 60 s");
	gpu_fixture_close(&fixture);
}

static void expect_no_engine(const struct gpu_engine_config *config, int status, const char *text)
{
	struct gpu_engine *engine = NULL;
	struct gpu_problem problem;

	assert_int_equal(gpu_engine_new(config, &problem, &engine), status);
	assert_null(engine);
	assert_non_null(strstr(problem.text, text));
}

static void an_engine_is_not_opened(void **state)
{
	static const struct {
		const char *script, *text;
		int status;
	} cases[] = {
		{ "cuInit=999", "there is no GPU driver: it does not start", -ENODEV },
		{ "cuDevicePrimaryCtxSetFlags_v2=999", "(stand-in): cuDevicePrimaryCtxSetFlags: ", -EIO },
		{ "cuDevicePrimaryCtxRetain=2", "(stand-in): cuDevicePrimaryCtxRetain: ", -ENOMEM },
		{ "cuCtxSetCurrent=201", "(stand-in): cuCtxSetCurrent: ", -EINVAL },
		{ "cuStreamCreate#2=2", "(stand-in): cuStreamCreate: ", -ENOMEM },
		{ "cuStreamCreate#5=2", "(stand-in): cuStreamCreate: ", -ENOMEM },
		{ "cuEventCreate#16=2", "(stand-in): cuEventCreate: ", -ENOMEM },
		{ "cuEventCreate#7=2", "(stand-in): cuEventCreate: ", -ENOMEM },
		{ "cuEventCreate#7=719!", "(stand-in) is lost: cuEventCreate: ", -ENODEV },
	};
	struct gpus gpus;
	struct gpu_engine_config config = { .gpus = &gpus, .gpu = 1 };
	struct gpu_engine *engine;
	struct gpu_problem problem;

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		gpus_find(&gpus);
		standin_tell("STANDIN_FAILURES", cases[i].script);
		expect_no_engine(&config, cases[i].status, cases[i].text);
		standin_tell("STANDIN_FAILURES", NULL);
		assert_int_equal(gpu_engine_new(&config, &problem, &engine), 0);
		engine = gpu_engine_free(engine);
	}
}

static void descriptors_have_run_out(void **state)
{
	struct gpus gpus;
	const struct gpu_engine_config config = { .gpus = &gpus, .gpu = 1 };
	struct rlimit limit, none;

	gpus_find(&gpus);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	expect_no_engine(&config, -EMFILE, "GPU 1 (stand-in): Too many open files");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void a_gpu_is_refused(void **state)
{
	struct gpus gpus;
	struct gpu_engine_config config = { .gpus = &gpus, .gpu = 1 };

	gpus_find(&gpus);
	gpus.gpus[1].shares_memory = false;
	expect_no_engine(&config, -EOPNOTSUPP, "GPU 1 (stand-in): processes cannot share its memory");
	gpus.gpus[1].is_prohibited = true;
	expect_no_engine(&config, -EACCES, "GPU 1 (stand-in) lets nobody use it: nvidia-smi");
	config.gpu = 2;
	expect_no_engine(&config, -ENODEV, "there is no GPU 2: the driver shows 2");
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	gpus_find(&gpus);
	unsetenv("CUDA_VISIBLE_DEVICES");
	expect_no_engine(&config, -ENODEV, "there is no GPU driver: it shows no GPU: $CUDA_VISIBLE_DEVICES");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_fails_and_all_goes_on),
		cmocka_unit_test(a_gpu_is_lost_in_each_call),
		cmocka_unit_test(a_piece_is_waited_for_if_it_cannot_be_asked_for),
		cmocka_unit_test(a_copy_that_has_failed_moves_nothing_any_more),
		cmocka_unit_test(what_a_lost_gpu_may_use_is_kept_until_its_context_has_gone),
		cmocka_unit_test(a_gpu_is_lost_in_the_middle),
		cmocka_unit_test(an_engine_is_not_opened),
		cmocka_unit_test(descriptors_have_run_out),
		cmocka_unit_test(a_gpu_is_refused),
		cmocka_unit_test(a_driver_that_does_not_come_back_is_found),
		cmocka_unit_test(a_gpu_that_hangs_is_lost),
		cmocka_unit_test(a_gpu_that_is_hurried_is_lost_sooner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
