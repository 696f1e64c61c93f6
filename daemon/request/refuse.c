#include "daemon/request/refuse.h"

#include <stdarg.h>
#include <stdio.h>

int refuse(char *message, size_t size, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, size, format, arguments);
	va_end(arguments);
	return r;
}
