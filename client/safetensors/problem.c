#include "client/safetensors/problem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "proto/name.h"

int safetensors_fail(struct safetensors_problem *problem, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(problem->text, sizeof(problem->text), format, arguments);
	va_end(arguments);
	name_make_printable(problem->text);
	return r;
}

int safetensors_fail_memory(struct safetensors_problem *problem)
{
	return safetensors_fail(problem, -ENOMEM, "out of memory");
}
