/* Log lines on stderr, with the priority prefix that journald understands. */
#ifndef TIERD_COMMON_LOG_H
#define TIERD_COMMON_LOG_H

enum log_level { LOG_LEVEL_ERROR = 3, LOG_LEVEL_WARNING = 4, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };

/* Lines above this level are dropped. The prefix "<N>" appears only where stderr is the journal. */
void log_open(enum log_level level);

/* Reads "error", "warning", "info" or "debug"; -EINVAL for anything else. */
int log_level_parse(const char *text, enum log_level *ret_level);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
