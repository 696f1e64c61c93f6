/* A plan says what jobs would take of a node. The code that prepares jobs finds it, on a node that has
 * budgets, but no memory and no disks. */
#ifndef TIERD_DAEMON_PLAN_H
#define TIERD_DAEMON_PLAN_H

#include <stdio.h>

#include "proto/frame.h"

/* Answers a request. The caller frees the answer with tierd__wire__job_plans__free_unpacked(). -ENOMEM. */
int plan_answer(const Tierd__Wire__PlanRequest *request, Tierd__Wire__JobPlans **ret_plans);

/* Reads a request until the stream ends, and prints its answer. Errors are logged: -EPROTO, -ENOMEM, and
 * those of the streams. */
int plan_serve(FILE *input, FILE *output);

#endif
