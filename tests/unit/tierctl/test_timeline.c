/* The file that a trace becomes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "client/tierctl/timeline.h"
#include "proto/vocabulary.h"
#include "tests/unit/test.h"

/* The longest name that there is. */
#define STREAM "parameter.bf16.moments-int8"

static void add(struct timeline *timeline, enum wire_trace kind, uint64_t began_ns, uint64_t length_ns,
		uint32_t who)
{
	Tierd__Wire__TraceEvent event = TIERD__WIRE__TRACE_EVENT__INIT;

	event.kind = kind;
	event.began_ns = began_ns;
	event.length_ns = length_ns;
	event.who = who;
	event.has_unit = true;
	event.stream = (char *)STREAM;
	assert_int_equal(timeline_add(timeline, &event), 0);
}

static struct timeline *make(void)
{
	struct timeline *timeline;

	assert_int_equal(timeline_new("gpt", &timeline), 0);
	return timeline;
}

/* The events but those that name tracks. */
static cJSON *write_and_parse(struct timeline *timeline, cJSON **ret_events)
{
	char *text = NULL;
	size_t length;
	FILE *stream = open_memstream(&text, &length);
	cJSON *json, *events, *event;

	assert_non_null(stream);
	assert_int_equal(timeline_write(timeline, stream), 0);
	fclose(stream);
	json = cJSON_Parse(text);
	assert_non_null(json);
	free(text);
	events = cJSON_GetObjectItem(json, "traceEvents");
	assert_true(cJSON_IsArray(events));
	*ret_events = cJSON_CreateArray();
	while ((event = cJSON_DetachItemFromArray(events, 0))) {
		if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "M") != 0)
			cJSON_AddItemToArray(*ret_events, event);
		else
			cJSON_Delete(event);
	}
	timeline_free(timeline);
	return json;
}

static double number_of(const cJSON *events, int index, const char *key)
{
	return cJSON_GetObjectItem(cJSON_GetArrayItem(events, index), key)->valuedouble;
}

static const char *text_of(const cJSON *events, int index, const char *key)
{
	return cJSON_GetObjectItem(cJSON_GetArrayItem(events, index), key)->valuestring;
}

static const char *stream_of(const cJSON *events, int index)
{
	const cJSON *arguments = cJSON_GetObjectItem(cJSON_GetArrayItem(events, index), "args");

	return cJSON_GetObjectItem(arguments, "stream")->valuestring;
}

static void what_overlaps_is_on_tracks_of_its_own(void **state)
{
	struct timeline *timeline = make();
	cJSON *json, *events;

	/* In the order in which they end. */
	add(timeline, TRACE_UPDATE_READ, 2000, 1000, 0);
	add(timeline, TRACE_UPDATE_READ, 1000, 3000, 0);
	add(timeline, TRACE_UPDATE_READ, 3000, 1000, 0);
	add(timeline, TRACE_UPDATE_WRITE, 1500, 5000, 0);
	json = write_and_parse(timeline, &events);
	assert_int_equal(cJSON_GetArraySize(events), 4);
	assert_true(number_of(events, 0, "ts") == 1);
	assert_true(number_of(events, 0, "dur") == 3);
	assert_string_equal(stream_of(events, 0), STREAM);
	assert_true(number_of(events, 1, "pid") != number_of(events, 0, "pid"));
	assert_true(number_of(events, 2, "tid") != number_of(events, 0, "tid"));
	/* The one that begins as another one ends takes its track. */
	assert_true(number_of(events, 3, "tid") == number_of(events, 2, "tid"));
	cJSON_Delete(events);
	cJSON_Delete(json);
}

static void a_rank_that_waits_for_nothing_computes(void **state)
{
	struct timeline *timeline = make();
	cJSON *json, *events;

	/* It waits for two things, and the second one comes first. */
	add(timeline, TRACE_WAIT_READ, 1500, 500, 3);
	add(timeline, TRACE_WAIT_READ, 1000, 2000, 3);
	add(timeline, TRACE_CLOSE, 7000, 0, 3);
	json = write_and_parse(timeline, &events);
	assert_int_equal(cJSON_GetArraySize(events), 4);
	assert_string_equal(text_of(events, 2, "name"), "computes");
	assert_true(number_of(events, 2, "ts") == 3);
	assert_true(number_of(events, 2, "dur") == 4);
	assert_string_equal(text_of(events, 3, "ph"), "i");
	assert_true(number_of(events, 2, "tid") == number_of(events, 0, "tid"));
	assert_true(number_of(events, 1, "tid") != number_of(events, 0, "tid"));
	cJSON_Delete(events);
	cJSON_Delete(json);
}

static void names_may_have_any_bytes(void **state)
{
	struct timeline *timeline = make();
	cJSON *json, *events;

	assert_int_equal(timeline_name_unit(timeline, "a \"b\" \\ \n c"), 0);
	add(timeline, TRACE_UPDATE, 0, 1, 0);
	assert_false(timeline_lacks_names(timeline));
	json = write_and_parse(timeline, &events);
	assert_string_equal(text_of(events, 0, "name"), "update: a \"b\" \\ \n c");
	cJSON_Delete(events);
	cJSON_Delete(json);
}

static void what_it_does_not_know_is_left_out(void **state)
{
	struct timeline *timeline = make();
	cJSON *json, *events;

	add(timeline, TRACE_WAIT_GPU + 1, 0, 1, 0);
	add(timeline, UINT32_MAX, 0, 1, 0);
	add(timeline, TRACE_WAIT_READ, 0, 1, WIRE_MAX_WORLD_SIZE);
	add(timeline, TRACE_UPDATE, 0, 1, UINT32_MAX);
	add(timeline, 5, 0, 1, 0);
	assert_int_equal(timeline_events(timeline), 0);
	json = write_and_parse(timeline, &events);
	assert_int_equal(cJSON_GetArraySize(events), 0);
	cJSON_Delete(events);
	cJSON_Delete(json);
}

static void it_has_an_end(void **state)
{
	Tierd__Wire__TraceEvent event = TIERD__WIRE__TRACE_EVENT__INIT;
	struct timeline *timeline = make();

	event.kind = TRACE_EVICT;
	for (size_t i = 0; i < TIMELINE_MOST_EVENTS; i++)
		assert_int_equal(timeline_add(timeline, &event), 0);
	assert_int_equal(timeline_add(timeline, &event), -E2BIG);
	timeline_free(timeline);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_overlaps_is_on_tracks_of_its_own),
		cmocka_unit_test(a_rank_that_waits_for_nothing_computes),
		cmocka_unit_test(names_may_have_any_bytes),
		cmocka_unit_test(what_it_does_not_know_is_left_out),
		cmocka_unit_test(it_has_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
