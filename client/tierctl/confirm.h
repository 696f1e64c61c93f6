/* Confirmation: a person says at the terminal that state may be destroyed. What is refused anyway is said
 * before that. */
#ifndef TIERD_CLIENT_TIERCTL_CONFIRM_H
#define TIERD_CLIENT_TIERCTL_CONFIRM_H

#include "client/tierctl/command.h"

/* COMMAND_DONE: no rank is attached, or --force is given. destroyed: "its state". */
int confirm_unused(const struct command_context *context, const Tierd__Wire__JobEntry *job,
		   const char *destroyed);

/* Asks the question, which ends with what is discarded. COMMAND_DONE: yes. */
int confirm(const char *job, const char *destroyed, const char *question, ...)
	__attribute__((format(printf, 3, 4)));

#endif
