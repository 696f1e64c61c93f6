#include "client/tierctl/service.h"

#include <string.h>

#include "client/tierctl/mounts.h"
#include "client/tierctl/program.h"
#include "common/cleanup.h"

static uint64_t read_limit(const char *text)
{
	return strcmp(text, "infinity") == 0 ? UINT64_MAX : strtoull(text, NULL, 10);
}

static void take_property(struct service *service, const char *name, const char *value)
{
	if (strcmp(name, "LoadState") == 0)
		service->is_loaded = strcmp(value, "loaded") == 0;
	else if (strcmp(name, "MainPID") == 0)
		service->pid = (pid_t)strtol(value, NULL, 10);
	else if (strcmp(name, "ProtectSystem") == 0)
		service->is_strict = strcmp(value, "strict") == 0;
	else if (strcmp(name, "ReadWritePaths") == 0 && !service->writable)
		service->writable = strdup(value);
	else if (strcmp(name, "LimitNOFILE") == 0)
		service->files = read_limit(value);
	else if (strcmp(name, "LimitMEMLOCK") == 0)
		service->locked_bytes = read_limit(value);
}

/* A machine without systemd has no service, and that is no error. */
void service_read(struct service *ret_service)
{
	static const char *const arguments[] = {
		"systemctl",
		"show",
		"--no-pager",
		"--property=LoadState,MainPID,ProtectSystem,ReadWritePaths,LimitNOFILE,LimitMEMLOCK",
		"tierd.service",
		NULL
	};
	struct program_result result = PROGRAM_RESULT_INIT;
	struct service service = { 0 };

	if (program_run(arguments, NULL, NULL, &result) == 0 && result.status == 0)
		for (char *rest, *line = strtok_r(result.output, "\n", &rest); line;
		     line = strtok_r(NULL, "\n", &rest)) {
			char *value = strchr(line, '=');

			if (!value)
				continue;
			*value = '\0';
			take_property(&service, line, value + 1);
		}
	program_result_clear(&result);
	*ret_service = service;
}

void service_clear(struct service *service)
{
	free(service->writable);
	service->writable = NULL;
}

/* The next of the names, which systemctl separates by blanks, and quotes as for a shell if they have some. It
 * is unquoted where it lies. */
static char *next_name(char **rest)
{
	char *from = *rest + strspn(*rest, " "), *name = from, *to = from;
	bool is_quoted = false;

	if (!*from)
		return NULL;
	for (; *from && (is_quoted || *from != ' '); from++) {
		if (*from == '"') {
			is_quoted = !is_quoted;
			continue;
		}
		if (*from == '\\' && from[1])
			from++;
		*to++ = *from;
	}
	*rest = *from ? from + 1 : from;
	*to = '\0';
	return name;
}

/* A name may begin with "-" (it need not exist) or "+" (as seen from the service's root). */
bool service_may_write(const struct service *service, const char *folder)
{
	_cleanup_free_ char *names = service->writable ? strdup(service->writable) : NULL;
	char *rest = names;

	if (!service->is_strict)
		return true;
	if (!names)
		return false;
	for (char *name = next_name(&rest); name; name = next_name(&rest))
		if (mounts_is_under(folder, name + strspn(name, "-+")))
			return true;
	return false;
}
