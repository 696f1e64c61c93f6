/* A plan: what jobs would take of a node, found by the code that prepares them, of a node that is none: it
 * has budgets, and neither memory nor disks. */
#ifndef TIERD_DAEMON_PLAN_H
#define TIERD_DAEMON_PLAN_H

#include <stdio.h>

#include "proto/frame.h"

/* Fills what a request asks for. -ENOMEM. The answer is the caller's, to be freed with
 * tierd__wire__job_plans__free_unpacked(). */
int plan_answer(const Tierd__Wire__PlanRequest *request, Tierd__Wire__JobPlans **ret_plans);

/* Reads a request until the stream ends, and prints its answer. Errors are logged: -EPROTO, -ENOMEM, and
 * those of the streams. */
int plan_serve(FILE *input, FILE *output);

#endif
