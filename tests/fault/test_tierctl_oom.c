/* Each allocation of an export and of an import fails in turn: it is said, nothing is leaked, and neither a
 * file nor a job is left that is not complete. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tierctl/export_copy.h"
#include "client/tierctl/import_copy.h"
#include "client/tierctl/import_job.h"
#include "tests/fault/alloc_fault.h"
#include "tests/fault/fake_tierd.h"
#include "tests/unit/test.h"

/* ---- What the C library allocates itself, names of files among it ---- */

char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t length);
int __wrap_asprintf(char **ret_text, const char *format, ...) __attribute__((format(printf, 2, 3)));

char *__wrap_strndup(const char *text, size_t most)
{
	size_t length = strnlen(text, most);
	char *copy = malloc(length + 1);

	if (!copy)
		return NULL;
	memcpy(copy, text, length);
	copy[length] = '\0';
	return copy;
}

char *__wrap_strdup(const char *text)
{
	return __wrap_strndup(text, strlen(text));
}

int __wrap_asprintf(char **ret_text, const char *format, ...)
{
	char *probe = malloc(1);
	va_list arguments;
	int length;

	if (!probe)
		return -1;
	free(probe);
	va_start(arguments, format);
	length = vasprintf(ret_text, format, arguments);
	va_end(arguments);
	return length;
}

static char folder[] = "/tmp/test-tierctl-XXXXXX";

static char *name(const char *file)
{
	static char path[300];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return path;
}

/* ---- What is said ---- */

static int former_stderr = -1;

static void listen(void)
{
	int fd = open(name("said"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	fflush(stderr);
	former_stderr = dup(STDERR_FILENO);
	dup2(fd, STDERR_FILENO);
	close(fd);
}

static void expect_said(bool is_of_memory)
{
	char said[1000] = "";
	ssize_t length;

	fflush(stderr);
	length = pread(STDERR_FILENO, said, sizeof(said) - 1, 0);
	dup2(former_stderr, STDERR_FILENO);
	close(former_stderr);
	unlink(name("said"));
	assert_true(length >= 0);
	if (is_of_memory)
		assert_true(strstr(said, "out of memory") || strstr(said, "Cannot allocate memory"));
	else
		assert_string_equal(said, "");
}

/* ---- Files ---- */

static void write_text(const char *file, const char *text, size_t length)
{
	FILE *stream = fopen(name(file), "w");

	assert_non_null(stream);
	assert_int_equal(fwrite(text, 1, length, stream), length);
	assert_int_equal(fclose(stream), 0);
}

static unsigned count_files(void)
{
	DIR *stream = opendir(folder);
	unsigned count = 0;

	assert_non_null(stream);
	for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream))
		count += entry->d_name[0] != '.';
	closedir(stream);
	return count;
}

static void remove_all(void)
{
	DIR *stream = opendir(folder);

	assert_non_null(stream);
	for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream))
		if (entry->d_name[0] != '.')
			unlink(name(entry->d_name));
	closedir(stream);
}

static int make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	return rmdir(folder);
}

/* ---- Export ---- */

static void tell_nobody(struct export_copy *copy, uint64_t bytes)
{
}

static int export_all(uint64_t shard_bytes, bool may_replace)
{
	const struct export_options options = { .is_fp32 = true, .with_optimizer = true };
	struct tierd_reader *reader = fake_tierd_reader();
	struct export_list list = { NULL };
	struct export_files files = { NULL };
	struct export_copy copy = { .reader = reader,
				    .list = &list,
				    .files = &files,
				    .may_replace = may_replace,
				    .progress = tell_nobody };
	int code = export_list_read(&list, reader, &options);

	if (code == COMMAND_DONE)
		code = export_files_plan(&files, &list, name("model.safetensors"), shard_bytes);
	if (code == COMMAND_DONE)
		code = export_copy_check(&copy);
	if (code == COMMAND_DONE && export_list_keep(&list, reader) < 0)
		code = command_fail_memory();
	if (code == COMMAND_DONE)
		code = export_files_begin(&files, &list, "job", 5);
	if (code == COMMAND_DONE)
		code = export_copy_run(&copy);
	export_files_clear(&files);
	export_list_clear(&list);
	return code;
}

static void an_export_is_complete_or_leaves_nothing(void **state)
{
	unsigned nth = 1;

	for (bool tripped = true; tripped; nth++) {
		int code;

		listen();
		alloc_fault_arm(nth);
		code = export_all(20, false);
		tripped = alloc_fault_tripped();
		expect_said(tripped);
		assert_int_equal(code, tripped ? COMMAND_FAILED : COMMAND_DONE);
		/* Four tensors, and the index. */
		assert_int_equal(count_files(), tripped ? 0 : 5);
		remove_all();
	}
	assert_true(nth > 20);
}

static const char former_index[] = "{\"weight_map\":{\"a\":\"model-00001-of-00001.safetensors\"}}";

static void expect_former(void)
{
	char text[16] = "";
	FILE *stream = fopen(name("model.safetensors"), "r");

	assert_non_null(stream);
	assert_int_equal(fread(text, 1, sizeof(text), stream), 6);
	fclose(stream);
	assert_memory_equal(text, "former", 6);
}

static void an_export_replaces_a_file_or_leaves_it(void **state)
{
	unsigned nth = 1;

	for (bool tripped = true; tripped; nth++) {
		int code;

		write_text("model.safetensors", "former", 6);
		write_text("model.safetensors.index.json", former_index, sizeof(former_index) - 1);
		write_text("model-00001-of-00001.safetensors", "shard", 5);
		listen();
		alloc_fault_arm(nth);
		code = export_all(0, true);
		tripped = alloc_fault_tripped();
		expect_said(tripped);
		assert_int_equal(code, tripped ? COMMAND_FAILED : COMMAND_DONE);
		/* What is older goes with it. */
		assert_int_equal(count_files(), tripped ? 3 : 1);
		if (tripped)
			expect_former();
	}
	remove_all();
}

/* ---- Import ---- */

static const char header[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
			     "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[6,10]},"
			     "\"b.exp_avg\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[10,14]},"
			     "\"b.exp_avg_sq\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[14,18]}}";

static void make_model(void)
{
	char bytes[8 + sizeof(header) + 17] = { (char)(sizeof(header) - 1),
						(char)((sizeof(header) - 1) >> 8) };

	memcpy(bytes + 8, header, sizeof(header) - 1);
	write_text("model", bytes, 8 + sizeof(header) - 1 + 18);
}

static int import_into(struct import_job *job, const struct safetensors_model *model,
		       const struct import_list *list)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct import_copy copy = { .model = model, .list = list };
	struct progress progress;
	int code;

	options.name = "job";
	options.world_size = 2;
	progress_begin(&progress, false);
	copy.progress = &progress;
	code = import_job_open(job, NULL, &options);
	if (code == COMMAND_DONE)
		code = import_job_define(job, list);
	if (code == COMMAND_DONE) {
		copy.job = job->ranks[0];
		code = import_copy_run(&copy);
	}
	if (code == COMMAND_DONE)
		code = import_job_ready(job);
	return code == COMMAND_DONE ? import_job_close(job) : code;
}

static void an_import_ends_with_a_job_or_without_a_trace(void **state)
{
	const struct import_options options = { .is_trainable = true, .optimizer = TIERD_ADAMW, .step = "5" };
	struct safetensors_model *model = NULL;
	struct safetensors_problem problem;
	struct import_list list = { NULL };
	unsigned nth = 1;

	make_model();
	assert_int_equal(safetensors_model_open(name("model"), &model, &problem), 0);
	assert_int_equal(import_list_read(&list, model, &options), COMMAND_DONE);
	for (bool tripped = true; tripped; nth++) {
		struct import_job job = { NULL };
		int code;

		fake_tierd = (struct fake_tierd){ 0 };
		listen();
		alloc_fault_arm(nth);
		code = import_into(&job, model, &list);
		tripped = alloc_fault_tripped();
		import_job_clear(&job);
		expect_said(tripped);
		if (tripped)
			assert_true(code == COMMAND_FAILED || code == COMMAND_UNREACHABLE);
		else
			assert_int_equal(code, COMMAND_DONE);
		assert_int_equal(fake_tierd.ready, tripped ? 0 : 2);
		assert_int_equal(fake_tierd.nodes + fake_tierd.jobs + fake_tierd.tickets, 0);
	}
	assert_true(nth > 12);
	import_list_clear(&list);
	safetensors_model_free(model);
	remove_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_export_is_complete_or_leaves_nothing),
		cmocka_unit_test(an_export_replaces_a_file_or_leaves_it),
		cmocka_unit_test(an_import_ends_with_a_job_or_without_a_trace),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
