/* Every function of tierd.h, called with each of its pointers NULL, and with structures whose size was never
 * set: what may be NULL is what the header says. The calls are written by null_calls.py. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/library/calls/reader.h"
#include "client/tierd.h"
#include "tests/unit/fake_peer.h"

/* What stands for the arguments that are not NULL. */
struct given {
	struct tierd_node *node, **ret_node;
	struct tierd_job *job, **ret_job;
	struct tierd_ticket *ticket, **ret_ticket;
	struct tierd_reader *reader, **ret_reader;
	struct tierd_connect_options *struct_connect_options;
	struct tierd_job_options *struct_job_options;
	struct tierd_job_state *struct_job_state;
	struct tierd_mappings *struct_mappings;
	struct tierd_piece *struct_piece;
	struct tierd_rates *struct_rates;
	struct tierd_read *struct_read;
	struct tierd_reader_options *struct_reader_options;
	struct tierd_reader_state *struct_reader_state;
	struct tierd_statistics *struct_statistics;
	struct tierd_step_result *struct_step_result;
	struct tierd_tensor *struct_tensor;
	struct tierd_view *struct_view;
	const char *name, *key, *state, *socket_path;
	const uint32_t *units;
	uint32_t unit, tensor, flags, micro_batches, *ret_unit, *ret_tensor, *ret_tensor_count;
	uint64_t first, step, *ret_first, *ret_count, *ret_step, *ret_leases;
	size_t count, size, capacity, tensor_count, bad_size, *ret_size;
	const char **ret_name;
	void *buffer, *ret_data, **memory, *stream;
	const void *data, *bytes;
	enum tierd_event event;
	int timeout_ms;
	bool is_master;
	const bool *absent;
	const uint32_t *groups;
	uint32_t *ret_groups;
};

enum null_kind {
	NULL_IS_REFUSED, /* -EINVAL, and the message names it */
	NULL_OF_NONE,	 /* with a count of 0 */
	MAY_BE_NULL,
	SIZE_IS_REFUSED,
};

struct null_call {
	const char *function, *argument;
	enum null_kind kind;
	int (*call)(const struct given *given);
};

#include "null_calls.h"
#include "tests/unit/test.h"

/* ---- The scene ---- */

struct scene {
	struct fake_peer peer;
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_reader reader;
	struct reader_unit unit;
	struct tierd_tensor tensor;
};

static void define_unit(struct tierd_job *job, uint32_t *ret_unit)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;

	tensor.name = "tensor";
	tensor.dimensions = 1;
	tensor.shape[0] = 100;
	assert_int_equal(tierd_unit_define(job, "unit", &tensor, 1, ret_unit), 0);
}

static void open_job(struct scene *scene)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	*scene = (struct scene){ 0 };
	fake_peer_start(&scene->peer);
	assert_int_equal(tierd_connect(scene->peer.path, &scene->node), 0);
	options.name = "test";
	assert_int_equal(tierd_job_open(scene->node, &options, &scene->job), 0);
}

/* A reader needs no daemon to know its units. */
static void begin(struct scene *scene)
{
	open_job(scene);
	define_unit(scene->job, NULL);
	assert_int_equal(tierd_job_ready(scene->job, -1, NULL), 0);
	scene->tensor = (struct tierd_tensor)TIERD_TENSOR_INIT;
	scene->tensor.name = "tensor";
	scene->tensor.dimensions = 1;
	scene->tensor.shape[0] = 100;
	scene->unit = (struct reader_unit){ (char *)"unit", 1, 1, &scene->tensor };
	scene->reader = (struct tierd_reader){ .node = scene->node,
					       .generation = scene->node->generation,
					       .connections = scene->node->connections,
					       .units = &scene->unit,
					       .unit_count = 1 };
}

static void end(struct scene *scene)
{
	tierd_disconnect(scene->node);
	fake_peer_stop(&scene->peer);
}

/* ---- The calls ---- */

static void require(const struct null_call *call, int r, bool is_good)
{
	if (!is_good)
		fail_msg("%s with %s NULL, or of a wrong size: %d, \"%s\"", call->function, call->argument, r,
			 tierd_message());
}

static void check_sizes(const struct null_call *call, struct given *given)
{
	static const size_t sizes[] = { 0, sizeof(size_t), SIZE_MAX / 2, SIZE_MAX };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		given->bad_size = sizes[i];
		int r = call->call(given);

		require(call, r, r == -EINVAL && strstr(tierd_message(), "wrong size"));
	}
}

static void check(const struct null_call *call, struct given *given)
{
	int r = call->kind == SIZE_IS_REFUSED ? 0 : call->call(given);

	if (call->kind == SIZE_IS_REFUSED)
		check_sizes(call, given);
	else if (call->kind == NULL_OF_NONE)
		require(call, r, r != -EINVAL);
	else
		require(call, r,
			r == -EINVAL &&
				strncmp(tierd_message(), call->function, strlen(call->function)) == 0 &&
				strstr(tierd_message(), call->argument) &&
				strstr(tierd_message(), "is NULL"));
}

static void try_call(const struct null_call *call)
{
	static const uint32_t units[1];
	static const bool absent;
	struct scene scene = { 0 };
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket, *other;
	struct tierd_reader *reader;
	struct tierd_connect_options connect = TIERD_CONNECT_OPTIONS_INIT;
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_job_state state;
	struct tierd_piece piece = TIERD_PIECE_INIT;
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_read read = TIERD_READ_INIT;
	struct tierd_reader_options reader_options = TIERD_READER_OPTIONS_INIT;
	struct tierd_reader_state reader_state = TIERD_READER_STATE_INIT;
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	struct tierd_mappings mappings = TIERD_MAPPINGS_INIT;
	struct tierd_step_result result;
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_view view;
	uint32_t number[3];
	uint64_t large[4];
	size_t size;
	const char *name;
	char bytes[64] = "";
	void *memory = NULL;

	begin(&scene);
	assert_int_equal(tierd_gather_begin(scene.job, 0, &ticket), 0);
	options.name = reader_options.name = "test";
	tensor.name = "name";
	check(call, &(struct given){ .node = scene.node,
				     .ret_node = &node,
				     .job = scene.job,
				     .ret_job = &job,
				     .ticket = ticket,
				     .ret_ticket = &other,
				     .reader = &scene.reader,
				     .ret_reader = &reader,
				     .struct_connect_options = &connect,
				     .struct_job_options = &options,
				     .struct_job_state = &state,
				     .struct_mappings = &mappings,
				     .struct_piece = &piece,
				     .struct_rates = &rates,
				     .struct_read = &read,
				     .struct_reader_options = &reader_options,
				     .struct_reader_state = &reader_state,
				     .struct_statistics = &statistics,
				     .struct_step_result = &result,
				     .struct_tensor = &tensor,
				     .struct_view = &view,
				     .name = "name",
				     .key = "key",
				     .state = "parameter",
				     .socket_path = scene.peer.path,
				     .units = units,
				     .ret_unit = &number[0],
				     .ret_tensor = &number[1],
				     .ret_tensor_count = &number[2],
				     .ret_first = &large[0],
				     .ret_count = &large[1],
				     .ret_step = &large[2],
				     .ret_leases = &large[3],
				     .count = 1,
				     .size = 1,
				     .capacity = 1,
				     .tensor_count = 1,
				     .ret_size = &size,
				     .ret_name = &name,
				     .buffer = bytes,
				     .ret_data = bytes,
				     .memory = &memory,
				     .data = bytes,
				     .bytes = bytes,
				     .absent = &absent,
				     .groups = units,
				     .ret_groups = &number[0],
				     .micro_batches = 1,
				     .timeout_ms = -1 });
	tierd_ticket_free(ticket);
	end(&scene);
}

static void what_has_to_be_there_is_asked_for(void **state)
{
	for (size_t i = 0; i < sizeof(null_calls) / sizeof(null_calls[0]); i++)
		if (null_calls[i].kind != MAY_BE_NULL)
			try_call(&null_calls[i]);
}

/* ---- What may be NULL ---- */

static void expect_optional(const char *function, const char *argument, unsigned *count)
{
	for (size_t i = 0; i < sizeof(null_calls) / sizeof(null_calls[0]); i++)
		if (null_calls[i].kind == MAY_BE_NULL && strcmp(null_calls[i].function, function) == 0 &&
		    strcmp(null_calls[i].argument, argument) == 0)
			++*count;
}

static void what_may_be_null_is_what_the_header_says(void **state)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct scene scene = { 0 };
	unsigned expected = 0, said = 0;

	for (size_t i = 0; i < sizeof(null_calls) / sizeof(null_calls[0]); i++)
		said += null_calls[i].kind == MAY_BE_NULL;
	fake_peer_start(&scene.peer);
	setenv("TIERD_SOCKET", scene.peer.path, 1);
	assert_int_equal(tierd_connect(NULL, &scene.node), 0);
	expect_optional("tierd_connect", "socket_path", &expected);
	assert_null(tierd_disconnect(NULL));
	expect_optional("tierd_disconnect", "node", &expected);
	assert_null(tierd_ticket_free(NULL));
	expect_optional("tierd_ticket_free", "ticket", &expected);
	end(&scene);
	begin(&scene);
	expect_optional("tierd_unit_define", "ret_unit", &expected);
	expect_optional("tierd_job_ready", "ret_state", &expected);
	assert_int_equal(tierd_step(scene.job, &rates, NULL), 0);
	expect_optional("tierd_step", "ret_ticket", &expected);
	/* It gets that far. */
	assert_int_equal(tierd_push_with(scene.job, 0, NULL, 1, NULL), -EINVAL);
	assert_non_null(strstr(tierd_message(), "call tierd_gradients first"));
	expect_optional("tierd_push_with", "absent", &expected);
	expect_optional("tierd_push_with", "ret_ticket", &expected);
	assert_int_equal(tierd_write_end(scene.job, NULL), -EBUSY);
	expect_optional("tierd_write_end", "ret_ticket", &expected);
	/* They get as far as that the job has no GPU. */
	assert_int_equal(tierd_gather_on(scene.job, 0, NULL, &(struct tierd_view){ 0 }), -EOPNOTSUPP);
	expect_optional("tierd_gather_on", "stream", &expected);
	assert_int_equal(tierd_gradients_on(scene.job, 0, 0, NULL, &(struct tierd_view){ 0 }), -EOPNOTSUPP);
	expect_optional("tierd_gradients_on", "stream", &expected);
	assert_int_equal(tierd_push_on(scene.job, 0, NULL, 1, NULL, NULL), -EOPNOTSUPP);
	expect_optional("tierd_push_on", "absent", &expected);
	expect_optional("tierd_push_on", "stream", &expected);
	expect_optional("tierd_push_on", "ret_ticket", &expected);
	assert_int_equal(tierd_release_on(scene.job, 0, NULL), -EINVAL);
	assert_non_null(strstr(tierd_message(), "without having been gathered"));
	expect_optional("tierd_release_on", "stream", &expected);
	/* The fake peer has no readers; the call gets that far. */
	assert_int_not_equal(tierd_reader_refresh(&scene.reader, NULL, 0, NULL), -EINVAL);
	expect_optional("tierd_reader_refresh", "pieces", &expected);
	expect_optional("tierd_reader_refresh", "ret_step", &expected);
	end(&scene);
	assert_int_equal(expected, said);
}

/* ---- What structures point to ---- */

static void names_and_groups_have_to_be_there(void **state)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_reader_options reader_options = TIERD_READER_OPTIONS_INIT;
	struct tierd_group groups[2] = { TIERD_GROUP_INIT, TIERD_GROUP_INIT };
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_piece piece = TIERD_PIECE_INIT;
	struct tierd_read read = TIERD_READ_INIT;
	struct tierd_reader *reader;
	struct scene scene = { 0 };
	struct tierd_job *job;

	open_job(&scene);
	assert_int_equal(tierd_job_open(scene.node, &options, &job), -EINVAL);
	options.name = "other";
	options.group_count = 2;
	assert_int_equal(tierd_job_open(scene.node, &options, &job), -EINVAL);
	options.groups = groups;
	groups[1].size = SIZE_MAX / 2;
	assert_int_equal(tierd_job_open(scene.node, &options, &job), -EINVAL);
	groups[0].size = 0;
	assert_int_equal(tierd_job_open(scene.node, &options, &job), -EINVAL);
	assert_int_equal(tierd_reader_open(scene.node, &reader_options, &reader), -EINVAL);
	assert_int_equal(tierd_unit_define(scene.job, "unit", &tensor, 1, NULL), -EINVAL);
	end(&scene);
	begin(&scene);
	rates.group_count = 1;
	assert_int_equal(tierd_step_begin(scene.job, &rates, 1), -EINVAL);
	rates.groups = groups;
	assert_int_equal(tierd_step_begin(scene.job, &rates, 1), -EINVAL);
	piece.state = NULL;
	assert_int_equal(tierd_reader_refresh(&scene.reader, &piece, 1, NULL), -EINVAL);
	read.count = 1;
	assert_int_equal(tierd_read_many(scene.job, &read, 1), -EINVAL);
	assert_non_null(strstr(tierd_message(), "ret_data is NULL"));
	read.ret_data = &read;
	read.state = NULL;
	assert_int_equal(tierd_reader_read_many(&scene.reader, &read, 1), -EINVAL);
	assert_non_null(strstr(tierd_message(), "names no state"));
	end(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_has_to_be_there_is_asked_for),
		cmocka_unit_test(what_may_be_null_is_what_the_header_says),
		cmocka_unit_test(names_and_groups_have_to_be_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
