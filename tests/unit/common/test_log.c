#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/unit/test.h"

static struct {
	unsigned count;
	enum log_level level;
	char line[4096];
	struct log_fields fields;
	bool is_taken;
} taken;

static bool take(enum log_level level, const char *line, const struct log_fields *fields)
{
	taken.count++;
	taken.level = level;
	snprintf(taken.line, sizeof(taken.line), "%s", line);
	taken.fields = *fields;
	return taken.is_taken;
}

static int setup(void **state)
{
	memset(&taken, 0, sizeof(taken));
	taken.is_taken = true;
	log_open(LOG_LEVEL_INFO);
	log_divert(take);
	return 0;
}

static int teardown(void **state)
{
	log_divert(NULL);
	return 0;
}

/* What a call prints on stderr, which is a file meanwhile; JOURNAL_STREAM names that file, or another one. */
static void catch_stderr(char text[512], bool is_journal, enum log_level level, const char *line)
{
	FILE *file = tmpfile();
	int before = dup(STDERR_FILENO);
	char stream[64];
	struct stat status;

	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &status), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev,
		 (unsigned long long)status.st_ino + !is_journal);
	setenv("JOURNAL_STREAM", stream, true);
	dup2(fileno(file), STDERR_FILENO);
	log_open(LOG_LEVEL_INFO);
	log_line(level, "%s", line);
	dup2(before, STDERR_FILENO);
	close(before);
	unsetenv("JOURNAL_STREAM");
	text[pread(fileno(file), text, 511, 0)] = '\0';
	fclose(file);
}

static void a_line_comes_with_its_fields(void **state)
{
	uid_t user = 1001;
	uint64_t step = 7;

	log_about(LOG_LEVEL_WARNING, &(struct log_fields){ .job = "gpt", .user = &user, .step = &step },
		  "job %s", "gpt");
	assert_int_equal(taken.count, 1);
	assert_int_equal(taken.level, LOG_LEVEL_WARNING);
	assert_string_equal(taken.line, "job gpt");
	assert_string_equal(taken.fields.job, "gpt");
	assert_int_equal(*taken.fields.user, 1001);
	assert_int_equal(*taken.fields.step, 7);
	assert_null(taken.fields.unit);
}

static void a_plain_line_has_no_fields(void **state)
{
	log_error("alas");
	assert_string_equal(taken.line, "alas");
	assert_null(taken.fields.job);
	assert_null(taken.fields.id);
}

static void lines_above_the_level_are_dropped(void **state)
{
	log_debug("nobody wants to know");
	assert_int_equal(taken.count, 0);
	assert_false(log_takes(LOG_LEVEL_DEBUG));
	log_open(LOG_LEVEL_DEBUG);
	log_debug("somebody does");
	assert_int_equal(taken.count, 1);
}

static void names_cannot_begin_lines_or_steer_a_terminal(void **state)
{
	log_info("job %s", "x\ntierd: error: all is lost\x1b[2J\r\x7f\xc2\x9b");
	assert_string_equal(taken.line, "job x\\x0atierd: error: all is lost\\x1b[2J\\x0d\\x7f\\xc2\\x9b");
	log_info("unit %s", "exe\xe2\x80\xaegpj\xe2\x80\xa8\xff");
	assert_string_equal(taken.line, "unit exe\\xe2\\x80\\xaegpj\\xe2\\x80\\xa8\\xff");
	log_info("unit %s", "Übung 一");
	assert_string_equal(taken.line, "unit Übung 一");
}

static void a_line_of_any_length_is_cut_whole(void **state)
{
	char text[4000];

	memset(text, '\n', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	log_info("%s", text);
	assert_in_range(strlen(taken.line), 1000, 1535);
	assert_int_equal(strlen(taken.line) % 4, 0);
	assert_null(strchr(taken.line, '\n'));
}

static void a_line_that_is_not_taken_goes_to_stderr(void **state)
{
	char text[512];

	taken.is_taken = false;
	catch_stderr(text, false, LOG_LEVEL_ERROR, "alas");
	assert_int_equal(taken.count, 1);
	assert_string_equal(text, "tierd: error: alas\n");
}

static void priorities_are_for_the_journal_alone(void **state)
{
	char text[512];

	log_divert(NULL);
	catch_stderr(text, true, LOG_LEVEL_WARNING, "hm");
	assert_true(log_is_journal());
	assert_string_equal(text, "<4>hm\n");
	catch_stderr(text, false, LOG_LEVEL_WARNING, "hm");
	assert_false(log_is_journal());
	assert_string_equal(text, "tierd: warning: hm\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_line_comes_with_its_fields, setup, teardown),
		cmocka_unit_test_setup_teardown(a_plain_line_has_no_fields, setup, teardown),
		cmocka_unit_test_setup_teardown(lines_above_the_level_are_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(names_cannot_begin_lines_or_steer_a_terminal, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_line_of_any_length_is_cut_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(a_line_that_is_not_taken_goes_to_stderr, setup, teardown),
		cmocka_unit_test_setup_teardown(priorities_are_for_the_journal_alone, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
