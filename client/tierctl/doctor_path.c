#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/tierctl/doctor.h"
#include "common/cleanup.h"
#include "common/reservation.h"

/* ---- The file system -------------------------------------------------------------------------------------
 */

struct judgement {
	const char *name; /* a type, or an option */
	enum finding finding;
	const char *why, *remedy;
};

#define MEMORY "it is memory, and no disk: what lies there ends with the machine, and no job is durable"

static const struct judgement types[] = {
	{ "overlay", FINDING_POOR, "it is a container's layer, and ends with the container",
	  "a volume on the NVMe device" },
	{ "tmpfs", FINDING_MISSING, MEMORY, "a folder on an NVMe device" },
	{ "ramfs", FINDING_MISSING, MEMORY, "a folder on an NVMe device" },
	{ "hugetlbfs", FINDING_MISSING, MEMORY, "a folder on an NVMe device" },
	{ "nfs", FINDING_MISSING, "it is another machine's", "a folder on an NVMe device of this machine" },
	{ "nfs4", FINDING_MISSING, "it is another machine's", "a folder on an NVMe device of this machine" },
	{ "cifs", FINDING_MISSING, "it is another machine's", "a folder on an NVMe device of this machine" },
	{ "ceph", FINDING_MISSING, "it is another machine's", "a folder on an NVMe device of this machine" },
	{ "9p", FINDING_MISSING, "it is another machine's", "a folder on an NVMe device of this machine" },
};

static const struct judgement options[] = {
	{ ",ro,", FINDING_MISSING, "it is mounted read-only", "mount -o remount,rw" },
	{ ",nobarrier,", FINDING_MISSING, "a flush does not reach the device, so nothing is durable",
	  "no nobarrier in /etc/fstab" },
	{ ",barrier=0,", FINDING_MISSING, "a flush does not reach the device, so nothing is durable",
	  "no barrier=0 in /etc/fstab" },
	{ ",data=journal,", FINDING_POOR, "all that is written goes through its journal first",
	  "data=ordered in /etc/fstab" },
	{ ",sync,", FINDING_POOR, "each write waits for the device; tierd flushes where it must",
	  "no sync in /etc/fstab" },
};

static const struct judgement *judge_type(const struct mount *mount)
{
	for (size_t i = 0; i < ARRAY_LENGTH(types); i++)
		if (strcmp(types[i].name, mount->type) == 0)
			return &types[i];
	return NULL;
}

static const struct judgement *judge_options(const struct mount *mount)
{
	for (size_t i = 0; i < ARRAY_LENGTH(options); i++)
		if (strstr(mount->options, options[i].name))
			return &options[i];
	return NULL;
}

/* The most important finding comes first. */
static void look_at_file_system(struct doctor *doctor, const char *path, const char *folder)
{
	const struct judgement *judgement, *of_type;
	struct mount mount;
	int r = mounts_find(doctor->daemon, folder, &mount);

	if (r < 0 && doctor->daemon)
		r = mounts_find(0, folder, &mount);
	if (r < 0) {
		doctor_add(doctor, FINDING_UNKNOWN, "file system", NULL, "%s: %s", path, strerror(-r));
		return;
	}
	judgement = judge_options(&mount);
	of_type = judge_type(&mount);
	if (of_type && (!judgement || judgement->finding < of_type->finding))
		judgement = of_type;
	mount.options[strlen(mount.options) - 1] = '\0';
	if (judgement)
		doctor_add(doctor, judgement->finding, "file system", judgement->remedy, "%s: %s (%s): %s",
			   path, mount.type, mount.options + 1, judgement->why);
	else
		doctor_add(doctor, FINDING_FOUND, "file system", NULL, "%s: %s (%s)", path, mount.type,
			   mount.options + 1);
}

/* A daemon does not start with such a path, unless it is told to; one that runs was. */
static void look_at_reservation(struct doctor *doctor, const char *path, const char *folder)
{
	_cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct reservation_breach *breach = fd >= 0 ? reservation_look(fd) : NULL;
	const char *allowed = doctor_find_value(doctor, "nvme", "file_system");
	bool is_allowed = doctor->node || strcmp(allowed, "any") == 0 || strcmp(allowed, "memory") == 0;
	struct mount mount;

	if (fd < 0)
		doctor_add(doctor, FINDING_UNKNOWN, "reservation", NULL, "%s: %s", path, strerror(errno));
	else if (!breach || breach->is_memory ||
		 (mounts_find(0, folder, &mount) == 0 && strstr(mount.options, ",nodatacow,")))
		doctor_add(doctor, FINDING_FOUND, "reservation", NULL, "%s: what is reserved there is kept",
			   path);
	else
		doctor_add(doctor, is_allowed ? FINDING_POOR : FINDING_MISSING, "reservation", breach->remedy,
			   "%s: it is on %s, %s", path, breach->what, breach->why);
}

/* ---- The sandbox -----------------------------------------------------------------------------------------
 */

static void look_at_sandbox(struct doctor *doctor, const char *path, const char *folder)
{
	_cleanup_free_ char *remedy = NULL;
	const struct service *service = &doctor->service;

	/* Another daemon, one that somebody has started by hand. */
	if (doctor->node && !doctor_is_service(doctor, (pid_t)doctor->node->pid))
		doctor_add(doctor, FINDING_FOUND, "ReadWritePaths", NULL,
			   "%s: the running tierd is not the service, and could open it", path);
	else if (!service->is_loaded)
		doctor_add(doctor, FINDING_UNKNOWN, "ReadWritePaths", NULL,
			   "%s: systemd knows no tierd.service here", path);
	else if (service_may_write(service, folder))
		doctor_add(doctor, FINDING_FOUND, "ReadWritePaths", NULL, "%s", path);
	else if (asprintf(&remedy, "systemctl edit tierd: [Service] ReadWritePaths=\"%s\"", folder) >= 0)
		doctor_add(doctor, FINDING_MISSING, "ReadWritePaths", remedy,
			   "%s: the service may not write there", path);
}

#define FEW_DAYS 90

static void look_at_endurance(struct doctor *doctor, const char *path)
{
	for (size_t i = 0; doctor->node && i < doctor->node->n_paths; i++) {
		const Tierd__Wire__Path *its = doctor->node->paths[i];

		if (strcmp(its->path, path) != 0 || its->endurance_bytes == 0)
			continue;
		if (!its->has_days_left)
			doctor_add(doctor, FINDING_UNKNOWN, "endurance", NULL,
				   "%s: how fast it is used up shows when it has been written for an hour",
				   path);
		else
			doctor_add(doctor, its->days_left < FEW_DAYS ? FINDING_POOR : FINDING_FOUND,
				   "endurance",
				   its->days_left < FEW_DAYS
					   ? "have another device ready, or train with less on NVMe"
					   : NULL,
				   "%s: lasts %llu days at the rate of the last ones", path,
				   (unsigned long long)its->days_left);
	}
}

static void look_at_mount(struct doctor *doctor, const char *path)
{
	for (size_t i = 0; doctor->node && i < doctor->node->n_paths; i++)
		if (strcmp(doctor->node->paths[i]->path, path) == 0 && doctor->node->paths[i]->is_absent)
			doctor_add(doctor, FINDING_MISSING, "mount", "mount it, and start tierd again",
				   "%s: jobs lie on the file system that was there, and it is not mounted",
				   path);
}

/* tierd's own folder in it is where it counts; without one, the path is what it will be made in. */
void doctor_look_at_path(struct doctor *doctor, const char *path)
{
	_cleanup_free_ char *folder = NULL;
	struct stat status;

	if (asprintf(&folder, "%s/tierd", path) < 0) {
		folder = NULL;
		return;
	}
	look_at_mount(doctor, path);
	look_at_sandbox(doctor, path, folder);
	if (stat(folder, &status) < 0)
		folder[strlen(path)] = '\0';
	look_at_file_system(doctor, path, folder);
	look_at_reservation(doctor, path, folder);
	doctor_look_at_disk(doctor, path, folder);
	look_at_endurance(doctor, path);
}
