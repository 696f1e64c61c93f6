#include "daemon/service/systemd.h"

#ifdef HAVE_SYSTEMD
/* It is the daemon's own, not that of whoever called it. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-journal.h>

#include "common/log.h"

#define MAX_FIELDS 12

struct entry {
	struct iovec parts[MAX_FIELDS];
	int count;
	size_t used;
	char bytes[8192];
};

static void add(struct entry *entry, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What has no room any more is left out: the line says it, too. */
static void add(struct entry *entry, const char *format, ...)
{
	char *field = entry->bytes + entry->used;
	size_t room = sizeof(entry->bytes) - entry->used;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(field, room, format, arguments);
	va_end(arguments);
	if (length < 0 || (size_t)length >= room || entry->count == MAX_FIELDS)
		return;
	entry->parts[entry->count++] = (struct iovec){ field, (size_t)length };
	entry->used += (size_t)length;
}

static void add_text(struct entry *entry, const char *key, const char *value)
{
	if (value)
		add(entry, "%s=%s", key, value);
}

static bool take(enum log_level level, const char *line, const struct log_fields *fields)
{
	struct entry entry = { .count = 0 };

	add(&entry, "MESSAGE=%s", line);
	add(&entry, "PRIORITY=%d", level);
	add(&entry, "SYSLOG_IDENTIFIER=tierd");
	add_text(&entry, "MESSAGE_ID", fields->id);
	add_text(&entry, "TIERD_JOB", fields->job);
	if (fields->user)
		add(&entry, "TIERD_USER=%u", (unsigned)*fields->user);
	add_text(&entry, "TIERD_UNIT", fields->unit);
	if (fields->rank)
		add(&entry, "TIERD_RANK=%" PRIu32, *fields->rank);
	if (fields->step)
		add(&entry, "TIERD_STEP=%" PRIu64, *fields->step);
	add_text(&entry, "TIERD_TIER", fields->tier);
	add_text(&entry, "TIERD_DEVICE", fields->device);
	return sd_journal_sendv(entry.parts, entry.count) == 0;
}

void journal_open(void)
{
	log_divert(log_is_journal() ? take : NULL);
}
#else
void journal_open(void)
{
}
#endif
