/* An attack: a process that does to tierd the worst that a client can, for as long as it is let. */
#ifndef TIERD_TESTS_BENCH_ATTACK_H
#define TIERD_TESTS_BENCH_ATTACK_H

#include <sys/types.h>

/* If the daemon closes its connections, the attack begins again. */
struct attack {
	const char *name;
	void (*run)(const char *path);
};

#define ATTACKS 8
extern const struct attack attacks[ATTACKS];

/* Starts the process stopped; attack_go_on() lets it run. After an error there is nothing to end. */
int attack_start(const struct attack *attack, const char *path, pid_t *ret_pid);
void attack_go_on(pid_t pid);
int attack_stop(pid_t pid);
void attack_end(pid_t pid);

#endif
