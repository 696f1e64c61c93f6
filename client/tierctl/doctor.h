/* The doctor: what tierd needs of this machine, whether it is there, and what would help. */
#ifndef TIERD_CLIENT_TIERCTL_DOCTOR_H
#define TIERD_CLIENT_TIERCTL_DOCTOR_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/tierctl/command.h"
#include "client/tierctl/mounts.h"
#include "client/tierctl/service.h"
#include "proto/frame.h"

/* POOR: tierd works without it, only worse. MISSING: what it is there for suffers. */
enum finding { FINDING_FOUND, FINDING_POOR, FINDING_MISSING, FINDING_UNKNOWN };
extern const char *const doctor_finding_names[];

/* What is known before the first look; a running daemon's word counts more than a configuration. */
struct doctor {
	const Tierd__Wire__NodeReply *node; /* NULL: no daemon answers */
	pid_t daemon;			    /* its process, where it can be looked at here; else 0 */
	struct service service;
	const cJSON *configuration; /* NULL: not known */
	uint64_t host_budget;	    /* 0: not known */
	uint64_t connections;	    /* 0: not known */
	bool is_quick;		    /* the disks' speed is not measured */
	cJSON *findings;
};

/* ---- doctor_finding.c ---- */
/* Adds one. remedy: NULL where nothing is to be done. Returns it, for numbers beside the text. */
cJSON *doctor_add(struct doctor *doctor, enum finding finding, const char *what, const char *remedy,
		  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* What the configuration says; "": nothing. */
const char *doctor_find_value(const struct doctor *doctor, const char *section, const char *key);

/* ---- doctor_daemon.c ---- */
/* ret_ask: stays open for what the daemon has said. An exit code, after a message. */
int doctor_look_for_daemon(struct doctor *doctor, const struct command_context *context,
			   struct ask **ret_ask);
/* The process, or, if it is 0, one that was started now, is systemd's: a daemon that somebody has started by
 * hand needs other remedies. */
bool doctor_is_service(const struct doctor *doctor, pid_t process);
/* The name of who runs it, or words for it. */
const char *doctor_user(const struct doctor *doctor, char text[TEXT_SIZE]);

/* ---- doctor_machine.c ---- */
void doctor_look_at_io_uring(struct doctor *doctor);
void doctor_look_at_huge_pages(struct doctor *doctor);

/* ---- doctor_gpu.c ---- */
void doctor_look_at_gpus(struct doctor *doctor);

/* ---- doctor_limits.c ---- */
void doctor_look_at_limits(struct doctor *doctor);

/* ---- doctor_path.c, doctor_disk.c ---- */
void doctor_look_at_path(struct doctor *doctor, const char *path);
/* O_DIRECT, and how fast it is; folder: where tierd keeps its files, or will. */
void doctor_look_at_disk(struct doctor *doctor, const char *path, const char *folder);

#endif
