#include "client/library/connection/message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/tierd.h"

/* The TLS model initial-exec would be faster, but dlopen() may lack memory for it, and failures need not be
 * fast. */
static _Thread_local char text[1024] = "nothing has failed in this thread";

int message_fail(int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return r;
}

/* names: "first, second, …". */
int message_check_given(const char *call, const char *names, const void *const *pointers, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!pointers[i])
			return message_fail(-EINVAL, "%s: %.*s is NULL", call, (int)strcspn(names, ","),
					    names);
		names += strcspn(names, ",") + 2;
	}
	return 0;
}

int message_fail_text(int r, const char *words)
{
	return message_fail(r, "%s", words && *words ? words : strerror(-r));
}

int message_fail_memory(void)
{
	return message_fail(-ENOMEM, "this process is out of memory");
}

int message_fail_child(void)
{
	return message_fail(
		-ECHILD, "this process was forked from the one that connected to tierd, and has none of its "
			 "mappings; call tierd_connect here");
}

const char *tierd_message(void)
{
	return text;
}

const char *tierd_version(void)
{
	return TIERD_VERSION;
}
