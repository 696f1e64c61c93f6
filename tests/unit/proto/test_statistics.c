/* Pages of statistics: whole copies, whatever their writer is doing. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "proto/statistics.h"
#include "tests/unit/test.h"

enum { READS = 20000 };

static _Alignas(64) unsigned char page[STATISTICS_PAGE_BYTES];

static struct statistics_job body_of(uint64_t number)
{
	struct statistics_job body;
	uint64_t *words = (uint64_t *)&body;

	for (size_t i = 0; i < sizeof(body) / sizeof(*words); i++)
		words[i] = number;
	return body;
}

static int setup(void **state)
{
	memset(page, 0, sizeof(page));
	statistics_page_init(page, STATISTICS_OF_JOB, sizeof(struct statistics_job));
	return 0;
}

static void the_last_body_written_is_read(void **state)
{
	struct statistics_job body;

	assert_int_equal(statistics_page_read(page, STATISTICS_OF_JOB, &body, sizeof(body)), -EAGAIN);
	for (uint64_t i = 1; i < 5; i++) {
		struct statistics_job written = body_of(i);

		statistics_page_write(page, &written);
		assert_int_equal(statistics_page_read(page, STATISTICS_OF_JOB, &body, sizeof(body)), 0);
		assert_memory_equal(&body, &written, sizeof(body));
	}
}

static void a_writer_that_stops_in_the_middle_leaves_the_last_body(void **state)
{
	struct statistics_job written = body_of(7), body;
	unsigned char before[STATISTICS_PAGE_BYTES];

	statistics_page_write(page, &written);
	memcpy(before, page, sizeof(page));
	written = body_of(8);
	statistics_page_write(page, &written);
	/* As after its last word, before it is shown: only the sequence is still the old one. */
	memcpy(page, before, 64);
	assert_int_equal(statistics_page_read(page, STATISTICS_OF_JOB, &body, sizeof(body)), 0);
	assert_int_equal(body.step, 7);
}

static void pages_of_another_subject_or_version_are_refused(void **state)
{
	struct statistics_job written = body_of(1), body;
	struct statistics_node node;

	statistics_page_write(page, &written);
	assert_int_equal(statistics_page_read(page, STATISTICS_OF_NODE, &node, sizeof(node)), -EPROTO);
	page[4]++;
	assert_int_equal(statistics_page_read(page, STATISTICS_OF_JOB, &body, sizeof(body)),
			 -EPROTONOSUPPORT);
	assert_int_equal(statistics_page_version(page), STATISTICS_VERSION + 1);
	page[4]--;
	memset(page + 12, 0xf8, 4);
	assert_int_equal(statistics_page_read(page, STATISTICS_OF_JOB, &body, sizeof(body)), -EPROTO);
	page[0]++;
	assert_int_equal(statistics_page_read(page, STATISTICS_OF_JOB, &body, sizeof(body)), -EPROTO);
}

/* The other side's body of the same version is shorter (it is older) or longer (newer) than the reader's. */
static void a_body_may_have_grown_at_its_end(void **state)
{
	struct statistics_job written = body_of(5), body;
	struct longer {
		struct statistics_job body;
		uint64_t more[3];
	} longer;

	statistics_page_write(page, &written);
	memset(&longer, 1, sizeof(longer));
	assert_int_equal(statistics_page_read(page, STATISTICS_OF_JOB, &longer, sizeof(longer)), 0);
	assert_memory_equal(&longer.body, &written, sizeof(written));
	assert_int_equal(longer.more[0] | longer.more[1] | longer.more[2], 0);
	memset(&body, 0, sizeof(body));
	assert_int_equal(statistics_page_read(page, STATISTICS_OF_JOB, &body, sizeof(body) - 16), 0);
	assert_memory_equal(&body, &written, sizeof(body) - 16);
	assert_int_equal(((uint64_t *)&body)[sizeof(body) / 8 - 1], 0);
}

static _Atomic int is_over;

static void *write_on(void *argument)
{
	for (uint64_t i = 2; !is_over; i++) {
		struct statistics_job written = body_of(i);

		statistics_page_write(page, &written);
	}
	return NULL;
}

static void a_reader_beside_a_writer_gets_whole_bodies(void **state)
{
	struct statistics_job written = body_of(1), body;
	uint64_t last = 0;
	pthread_t writer;

	is_over = 0;
	statistics_page_write(page, &written);
	assert_int_equal(pthread_create(&writer, NULL, write_on, NULL), 0);
	for (unsigned i = 0; i < READS; i++) {
		if (statistics_page_read(page, STATISTICS_OF_JOB, &body, sizeof(body)) < 0)
			continue;
		written = body_of(body.step);
		if (memcmp(&body, &written, sizeof(body)) != 0 || body.step < last)
			break;
		last = body.step;
	}
	is_over = 1;
	pthread_join(writer, NULL);
	assert_memory_equal(&body, &written, sizeof(body));
	assert_true(body.step >= last);
}

static void the_file_lies_beside_the_socket(void **state)
{
	char path[STATISTICS_FILE_SIZE], socket[STATISTICS_FILE_SIZE + 1];

	assert_int_equal(statistics_file("/run/tierd/tierd.sock", path), 0);
	assert_string_equal(path, "/run/tierd/tierd.sock.statistics");
	memset(socket, 'x', sizeof(socket));
	socket[STATISTICS_FILE_SIZE] = '\0';
	assert_int_equal(statistics_file(socket, path), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_last_body_written_is_read, setup),
		cmocka_unit_test_setup(a_writer_that_stops_in_the_middle_leaves_the_last_body, setup),
		cmocka_unit_test_setup(pages_of_another_subject_or_version_are_refused, setup),
		cmocka_unit_test_setup(a_body_may_have_grown_at_its_end, setup),
		cmocka_unit_test_setup(a_reader_beside_a_writer_gets_whole_bodies, setup),
		cmocka_unit_test(the_file_lies_beside_the_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
