/* The journal: where stderr leads there, lines go to it with fields of their own, for journalctl to filter
 * by. */
#ifndef TIERD_DAEMON_JOURNAL_H
#define TIERD_DAEMON_JOURNAL_H

/* After log_open(). Without libsystemd, or where stderr leads elsewhere, it does nothing. */
void journal_open(void);

#endif
