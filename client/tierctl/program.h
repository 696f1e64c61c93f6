/* A program that tierctl runs for what it says: another part of tierd, or of the system. */
#ifndef TIERD_CLIENT_TIERCTL_PROGRAM_H
#define TIERD_CLIENT_TIERCTL_PROGRAM_H

struct program_result {
	int status; /* that it has exited with; 127: there is no such program */
	char *output, *errors;
};

#define PROGRAM_RESULT_INIT                                                                                  \
	{                                                                                                    \
		0                                                                                            \
	}

/* Looks in PATH, and then at otherwise (NULL: nowhere else), and waits for its end. arguments end with NULL.
 */
int program_run(const char *const arguments[], const char *otherwise, struct program_result *ret_result);
void program_result_clear(struct program_result *result);

#endif
