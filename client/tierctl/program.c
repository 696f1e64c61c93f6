#include "client/tierctl/program.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/cleanup.h"

static _Noreturn void become(const char *const arguments[], const char *otherwise, int input, int output,
			     int errors)
{
	if (input >= 0)
		dup2(input, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(errors, STDERR_FILENO);
	/* Lines for people, not for a journal. */
	unsetenv("JOURNAL_STREAM");
	execvp(arguments[0], (char *const *)arguments);
	if (otherwise)
		execv(otherwise, (char *const *)arguments);
	_exit(PROGRAM_NOT_FOUND);
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int read_all(int fd, char **ret_text, size_t *ret_length)
{
	_cleanup_free_ char *text = NULL;
	struct stat status;
	ssize_t length;

	if (fstat(fd, &status) < 0)
		return -errno;
	text = malloc((size_t)status.st_size + 1);
	if (!text)
		return -ENOMEM;
	length = pread(fd, text, (size_t)status.st_size, 0);
	if (length < 0)
		return -errno;
	text[length] = '\0';
	*ret_text = TAKE_PTR(text);
	*ret_length = (size_t)length;
	return 0;
}

static int write_all(int fd, const struct program_input *input)
{
	for (size_t written = 0; written < input->length;) {
		ssize_t r = pwrite(fd, (const char *)input->bytes + written, input->length - written,
				   (off_t)written);

		if (r < 0)
			return -errno;
		written += (size_t)r;
	}
	return 0;
}

/* *ret_fd stays -1 if there is none. */
static int open_input(const struct program_input *input, int *ret_fd)
{
	if (!input)
		return 0;
	*ret_fd = memfd_create("input", MFD_CLOEXEC);
	return *ret_fd < 0 ? -errno : write_all(*ret_fd, input);
}

/* Its output goes to memory, so that it can write as much as it likes to both streams. */
int program_run(const char *const arguments[], const char *otherwise, const struct program_input *input,
		struct program_result *ret_result)
{
	_cleanup_close_ int given = -1;
	_cleanup_close_ int output = memfd_create("output", MFD_CLOEXEC);
	_cleanup_close_ int errors = memfd_create("errors", MFD_CLOEXEC);
	struct program_result result = PROGRAM_RESULT_INIT;
	pid_t pid;
	size_t errors_length;
	int r;

	if (output < 0 || errors < 0)
		return -errno;
	r = open_input(input, &given);
	if (r < 0)
		return r;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become(arguments, otherwise, given, output, errors);
	r = result.status = wait_for(pid);
	if (r >= 0)
		r = read_all(output, &result.output, &result.output_length);
	if (r >= 0)
		r = read_all(errors, &result.errors, &errors_length);
	if (r < 0) {
		program_result_clear(&result);
		return r;
	}
	*ret_result = result;
	return 0;
}

void program_result_clear(struct program_result *result)
{
	free(result->output);
	free(result->errors);
	result->output = result->errors = NULL;
}

/* In a folder that was built and not installed, as meson.build has it; beside tierctl, as in an environment
 * of Python; else where it was installed. */
const char *program_tierd(char path[PATH_MAX])
{
	static const char *const places[] = { "/../../daemon/tierd", "/tierd" };
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - strlen(places[0]) - 1);
	char *slash;

	if (length < 0)
		return TIERD_PROGRAM;
	path[length] = '\0';
	slash = strrchr(path, '/');
	for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
		strcpy(slash ? slash : path, places[i]);
		if (access(path, X_OK) == 0)
			return path;
	}
	return TIERD_PROGRAM;
}
