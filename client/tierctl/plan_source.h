/* Where the units of a plan come from, other than its own making. */
#ifndef TIERD_CLIENT_TIERCTL_PLAN_SOURCE_H
#define TIERD_CLIENT_TIERCTL_PLAN_SOURCE_H

#include "client/tierctl/command.h"
#include "client/tierctl/import_list.h"

/* They return an exit code, after a message. What is added is the request's. */

/* Those of a job of the daemon, of the user of --user; ret_open: what it was opened with, the caller's. */
int plan_source_job(const struct command_context *context, const char *job, Tierd__Wire__PlanRequest *request,
		    Tierd__Wire__JobOpen **ret_open);
/* Those that an import of safetensors files makes. */
int plan_source_files(const char *path, const struct import_options *options,
		      Tierd__Wire__PlanRequest *request);
/* Those of a list in JSON: [{"name": "layer.0", "tensors": [{"name": "weight", "format": "bf16", "shape": [8,
 * 4], "group": 0, "is_frozen": false, "alias": null, "dtype": null}]}]; "-" is the standard input. */
int plan_source_list(const char *path, Tierd__Wire__PlanRequest *request);

#endif
