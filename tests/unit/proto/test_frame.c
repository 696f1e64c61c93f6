#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"
#include "tests/unit/test.h"

static void a_frame_comes_back_as_it_went(void **state)
{
	Tierd__Wire__Phase phase = TIERD__WIRE__PHASE__INIT;
	struct frame_header header;
	struct frame_arena *arena;
	ProtobufCMessage *message;
	uint8_t *frame;
	size_t length;

	phase.job = 5;
	phase.name = (char *)"train";
	assert_int_equal(frame_encode(1, FRAME_REQUEST, 0x12345678, &WIRE_REQUEST(PHASE, phase, &phase)->base,
				      &frame, &length),
			 0);
	assert_memory_equal(frame, "tir1\1\0\3\0", 8);
	assert_memory_equal(frame + 12, "\x78\x56\x34\x12", 4);
	assert_int_equal(frame_header_decode(frame, &header), 0);
	assert_int_equal(header.version, 1);
	assert_int_equal(header.type, FRAME_REQUEST);
	assert_int_equal(header.length, length - FRAME_HEADER_BYTES);
	assert_int_equal(header.request, 0x12345678);
	assert_int_equal(frame_arena_new(&arena), 0);
	assert_int_equal(frame_decode(arena, &tierd__wire__request__descriptor, frame + FRAME_HEADER_BYTES,
				      header.length, &message),
			 0);
	assert_string_equal(((Tierd__Wire__Request *)message)->phase->name, "train");
	assert_null(frame_arena_free(arena));
	free(frame);
}

static void a_header_with_another_magic_or_type_is_refused(void **state)
{
	struct frame_header header;

	assert_int_equal(frame_header_decode((const uint8_t *)"tir2\1\0\1\0\0\0\0\0\0\0\0\0", &header),
			 -EPROTO);
	assert_int_equal(frame_header_decode((const uint8_t *)"tir1\1\0\0\0\0\0\0\0\0\0\0\0", &header),
			 -EPROTO);
	assert_int_equal(frame_header_decode((const uint8_t *)"tir1\1\0\6\0\0\0\0\0\0\0\0\0", &header),
			 -EPROTO);
	assert_int_equal(frame_header_decode((const uint8_t *)"tir1\1\0\1\1\0\0\0\0\0\0\0\0", &header),
			 -EPROTO);
	assert_int_equal(frame_header_decode((const uint8_t *)"tir1\1\0\5\0\0\0\0\0\0\0\0\0", &header), 0);
}

static void the_limit_is_exact(void **state)
{
	struct frame_header header;

	/* 2^20 - 16, and one more. */
	assert_int_equal(frame_header_decode((const uint8_t *)"tir1\1\0\3\0\xf0\xff\x0f\0\0\0\0\0", &header),
			 0);
	assert_int_equal(frame_header_decode((const uint8_t *)"tir1\1\0\3\0\xf1\xff\x0f\0\0\0\0\0", &header),
			 -EMSGSIZE);
}

/* A Status of which the text has this many bytes, packed: 2 for each tag and length, up to 4 for the length
 * itself. */
static int encode_text(size_t bytes, uint8_t **ret_frame, size_t *ret_length)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	char *text = malloc(bytes + 1);
	int r;

	memset(text, 'x', bytes);
	text[bytes] = '\0';
	status.message = text;
	r = frame_encode(1, FRAME_REPLY, 1, &status.base, ret_frame, ret_length);
	free(text);
	return r;
}

static void a_message_over_the_limit_is_not_encoded(void **state)
{
	size_t largest = FRAME_MAX_BYTES - FRAME_HEADER_BYTES - 4;
	uint8_t *frame = NULL;
	size_t length;

	assert_int_equal(encode_text(largest + 1, &frame, &length), -EMSGSIZE);
	assert_null(frame);
	assert_int_equal(encode_text(largest, &frame, &length), 0);
	assert_int_equal(length, FRAME_MAX_BYTES);
	free(frame);
}

static void malformed_bytes_are_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
	} cases[] = {
		{ "\12\377\1", 3 },    /* longer than the message */
		{ "\12", 1 },	       /* a tag alone */
		{ "\13\14", 2 },       /* groups */
		{ "\12\2\10\200", 4 }, /* a number that does not end */
		{ "\0", 1 },	       /* field 0 */
	};
	struct frame_arena *arena;
	ProtobufCMessage *message = NULL;

	assert_int_equal(frame_arena_new(&arena), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(frame_decode(arena, &tierd__wire__reply__descriptor,
					      (const uint8_t *)cases[i].bytes, cases[i].length, &message),
				 -EPROTO);
	assert_null(message);
	frame_arena_free(arena);
}

/* Empty submessages: 2 bytes each on the wire, some hundred in memory. */
static void what_unpacks_to_too_much_is_refused(void **state)
{
	struct frame_arena *arena;
	ProtobufCMessage *message;
	size_t length = FRAME_MAX_BYTES - FRAME_HEADER_BYTES;
	uint8_t *bytes = malloc(length);

	for (size_t i = 0; i < length; i += 2) {
		bytes[i] = 1 << 3 | 2;
		bytes[i + 1] = 0;
	}
	assert_int_equal(frame_arena_new(&arena), 0);
	assert_int_equal(frame_decode(arena, &tierd__wire__jobs_reply__descriptor, bytes, length, &message),
			 -ENOMEM);
	/* The arena is as good as new. */
	assert_int_equal(frame_decode(arena, &tierd__wire__jobs_reply__descriptor, bytes, 200, &message), 0);
	assert_int_equal(((Tierd__Wire__JobsReply *)message)->n_jobs, 100);
	frame_arena_free(arena);
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_comes_back_as_it_went),
		cmocka_unit_test(a_header_with_another_magic_or_type_is_refused),
		cmocka_unit_test(the_limit_is_exact),
		cmocka_unit_test(a_message_over_the_limit_is_not_encoded),
		cmocka_unit_test(malformed_bytes_are_refused),
		cmocka_unit_test(what_unpacks_to_too_much_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
