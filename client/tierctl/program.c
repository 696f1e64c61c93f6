#include "client/tierctl/program.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/cleanup.h"

#define NOT_FOUND 127

static _Noreturn void become(const char *const arguments[], const char *otherwise, int output, int errors)
{
	dup2(output, STDOUT_FILENO);
	dup2(errors, STDERR_FILENO);
	/* Lines for people, not for a journal. */
	unsetenv("JOURNAL_STREAM");
	execvp(arguments[0], (char *const *)arguments);
	if (otherwise)
		execv(otherwise, (char *const *)arguments);
	_exit(NOT_FOUND);
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int read_all(int fd, char **ret_text)
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
	return 0;
}

/* What it says goes to memory, so that it can say as much as it likes on both. */
int program_run(const char *const arguments[], const char *otherwise, struct program_result *ret_result)
{
	_cleanup_close_ int output = memfd_create("output", MFD_CLOEXEC);
	_cleanup_close_ int errors = memfd_create("errors", MFD_CLOEXEC);
	struct program_result result = PROGRAM_RESULT_INIT;
	pid_t pid;
	int r;

	if (output < 0 || errors < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become(arguments, otherwise, output, errors);
	r = result.status = wait_for(pid);
	if (r >= 0)
		r = read_all(output, &result.output);
	if (r >= 0)
		r = read_all(errors, &result.errors);
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
