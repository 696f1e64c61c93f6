#include "common/dynamic_library.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool dynamic_library_refuse(struct dynamic_library *library, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(library->problem, sizeof(library->problem), format, arguments);
	va_end(arguments);
	library->is_found = false;
	return false;
}

bool dynamic_library_open(struct dynamic_library *library, const char *file,
			  const struct dynamic_symbol *symbols, size_t count)
{
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		return dynamic_library_refuse(library, "%s", dlerror());
	for (size_t i = 0; i < count; i++) {
		void *function = dlsym(handle, symbols[i].name);

		if (!function)
			return dynamic_library_refuse(
				library, "%s has no %s: it is too old, or another library of that name", file,
				symbols[i].name);
		memcpy(symbols[i].place, &function, sizeof(function));
	}
	library->is_found = true;
	return true;
}
