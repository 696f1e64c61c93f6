/* A rank that trains twice over: by calls that block, and by tickets alone, in a loop around poll(). */
#ifndef TIERD_TESTS_POLL_TRAIN_H
#define TIERD_TESTS_POLL_TRAIN_H

#include "crash_support.h"

#define TRAIN_RANKS 2
#define TRAIN_STEPS 5

/* What a training ends with, in the space of a crowd's board. */
size_t train_space_bytes(void);

/* For crowd_start(); argument is the name of the job. */
void train_blocking(struct crowd_board *board, unsigned rank, void *argument);
void train_polling(struct crowd_board *board, unsigned rank, void *argument);

/* Until the descriptor of the ticket's node is readable. */
void poll_wait(const struct tierd_ticket *ticket);

/* What poll() says now. */
bool poll_is_readable(int fd);

/* Waits for the ticket with poll() and looks only; returns its status. */
int poll_for(struct tierd_ticket *ticket, enum tierd_event event);

#endif
