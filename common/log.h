/* Log lines on stderr, with the priority prefix that journald understands, or wherever they are diverted to.
 */
#ifndef TIERD_COMMON_LOG_H
#define TIERD_COMMON_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum log_level { LOG_LEVEL_ERROR = 3, LOG_LEVEL_WARNING = 4, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };

/* What a line is about, for whoever filters by it; NULL where it is not about one. The line says it, too. */
struct log_fields {
	const char *id; /* of all lines that report the same: 32 hexadecimal digits */
	const char *job, *unit, *tier, *device;
	const uid_t *user;
	const uint32_t *rank;
	const uint64_t *step;
};

/* Lines above this level are dropped. The prefix "<N>" appears only where stderr is the journal. */
void log_open(enum log_level level);
/* Lines go to take() from now on, and to stderr only where it returns false. */
void log_divert(bool (*take)(enum log_level level, const char *line, const struct log_fields *fields));

bool log_is_journal(void); /* stderr is */
bool log_takes(enum log_level level);

/* Control characters, which a name from a user could have, are written as "\x0a". fields: NULL, or of the
 * call. */
void log_about(enum log_level level, const struct log_fields *fields, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define log_line(level, ...) log_about(level, NULL, __VA_ARGS__)
#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
