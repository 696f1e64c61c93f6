/* A program that tierctl runs for what it says: another part of tierd, or of the system. */
#ifndef TIERD_CLIENT_TIERCTL_PROGRAM_H
#define TIERD_CLIENT_TIERCTL_PROGRAM_H

#include <limits.h>
#include <stddef.h>

/* The status where there is no such program. */
#define PROGRAM_NOT_FOUND 127

struct program_result {
	int status;	       /* that it has exited with */
	char *output, *errors; /* with a '\0' behind them */
	size_t output_length;
};

/* What it reads from its standard input. */
struct program_input {
	const void *bytes;
	size_t length;
};

#define PROGRAM_RESULT_INIT                                                                                  \
	{                                                                                                    \
		0                                                                                            \
	}

/* Looks in PATH, and then at otherwise (NULL: nowhere else), and waits for its end. arguments end with NULL;
 * input may be NULL: it reads what tierctl would. */
int program_run(const char *const arguments[], const char *otherwise, const struct program_input *input,
		struct program_result *ret_result);

/* The tierd that was built or installed with this tierctl. */
const char *program_tierd(char path[PATH_MAX]);
void program_result_clear(struct program_result *result);

#endif
