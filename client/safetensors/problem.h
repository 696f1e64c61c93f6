/* A problem with a file of tensors: a sentence for a person that names the thing, the cause and the remedy.
 */
#ifndef TIERD_CLIENT_SAFETENSORS_PROBLEM_H
#define TIERD_CLIENT_SAFETENSORS_PROBLEM_H

struct safetensors_problem {
	char text[640];
};

/* Sets the text, in which what a file says has become printable, and returns r. */
int safetensors_fail(struct safetensors_problem *problem, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int safetensors_fail_memory(struct safetensors_problem *problem);

#endif
