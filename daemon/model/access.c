#include "daemon/model/access.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include "common/plural.h"
#include "daemon/request/request.h"
#include "offload/device/schedule.h"
#include "proto/name.h"

#define MAX_GROUPS 1024

static bool is_member(const struct port *port, gid_t group)
{
	for (unsigned i = 0; i < port->group_count; i++)
		if (port->groups[i] == group)
			return true;
	return port->gid == group;
}

static bool is_meant(const struct port *port, const struct principal *principal)
{
	return principal->kind == PRINCIPAL_EVERYONE ||
	       (principal->kind == PRINCIPAL_USER && port->uid == principal->id) ||
	       (principal->kind == PRINCIPAL_GROUP && is_member(port, principal->id));
}

/* Root is none by itself: it may be root of a container only, which has the same number. */
static bool access_is_administrator(const struct node *node, const struct port *port)
{
	for (unsigned i = 0; node->settings.administrators && i < node->settings.administrators->count; i++)
		if (is_meant(port, &node->settings.administrators->entries[i]))
			return true;
	return false;
}

bool access_may_rule(const struct node *node, const struct port *port)
{
	return port->uid == geteuid() || access_is_administrator(node, port);
}

/* What is said of kind after kind, until one has a word to say. */
static uint64_t find_word(const struct node *node, const struct port *port, size_t index)
{
	uint64_t most = 0;

	for (enum principal_kind kind = PRINCIPAL_USER; kind <= PRINCIPAL_EVERYONE && most == 0; kind++)
		for (unsigned i = 0; node->settings.limits && i < node->settings.limits->count; i++) {
			const struct limit *limit = &node->settings.limits->entries[i];
			uint64_t word = ((const uint64_t *)&limit->quota)[index];

			if (limit->principal.kind == kind && is_meant(port, &limit->principal) && word > most)
				most = word;
		}
	return most;
}

struct quota access_quota(const struct node *node, const struct port *port)
{
	struct quota quota;

	for (size_t i = 0; i < sizeof(quota) / sizeof(uint64_t); i++)
		((uint64_t *)&quota)[i] = find_word(node, port, i);
	return quota;
}

struct quota access_quota_of_user(const struct node *node, uid_t uid)
{
	const struct passwd *user = getpwuid(uid);
	gid_t groups[MAX_GROUPS];
	int count = MAX_GROUPS;
	/* Nobody's: the kernel takes it for "no change". */
	struct port absent = { .uid = uid, .gid = (gid_t)-1, .groups = groups };

	if (!user)
		return access_quota(node, &absent);
	absent.gid = user->pw_gid;
	/* Of one who is in more of them, the first. */
	absent.group_count =
		getgrouplist(user->pw_name, user->pw_gid, groups, &count) < 0 ? MAX_GROUPS : (unsigned)count;
	return access_quota(node, &absent);
}

static uint32_t access_snapshots_maximum(const struct quota *quota)
{
	return quota->snapshots_maximum > 0 ? (uint32_t)quota->snapshots_maximum - 1 : WIRE_MAX_SNAPSHOTS;
}

uint32_t access_snapshots_default(const struct quota *quota)
{
	uint32_t number = quota->snapshots_default > 0 ? (uint32_t)quota->snapshots_default - 1 : 0;
	uint32_t most = access_snapshots_maximum(quota);

	return number < most ? number : most;
}

int access_check_snapshots(const struct quota *quota, uint32_t snapshots, char *message, size_t size)
{
	uint32_t most = access_snapshots_maximum(quota);

	if (quota->snapshots_maximum == 0 || snapshots <= most)
		return 0;
	return refuse(message, size, -EPERM,
		      "room for %u snapshot%s is more than a job of this user may have, %u "
		      "(snapshots_maximum); ask for less, or have an administrator make the room (tierctl "
		      "reserve --user), or raise that limit",
		      snapshots, PLURAL(snapshots), most);
}

static bool may_see(const struct node *node, const struct port *port, uid_t owner, uint32_t sharing,
		    gid_t share_group)
{
	return port->uid == owner || access_is_administrator(node, port) ||
	       (sharing != SHARING_NONE && is_member(port, share_group));
}

uint32_t access_io_weight_default(const struct quota *quota)
{
	bool is_less = quota->io_weight_maximum > 0 && quota->io_weight_maximum < SCHEDULE_DEFAULT_WEIGHT;

	return is_less ? (uint32_t)quota->io_weight_maximum : SCHEDULE_DEFAULT_WEIGHT;
}

int access_check_io_weight(const struct quota *quota, uint32_t weight, char *message, size_t size)
{
	if (quota->io_weight_maximum == 0 || weight <= quota->io_weight_maximum)
		return 0;
	return refuse(message, size, -EPERM,
		      "io_weight %u is more than a job of this user may have, %u (io_weight_maximum); ask "
		      "for less, or have an administrator raise that limit",
		      weight, (unsigned)quota->io_weight_maximum);
}

bool access_may_see(const struct job *job, const struct port *port)
{
	return may_see(job->node, port, job->uid, job->options.sharing, job->options.share_group);
}

bool access_may_train(const struct job *job, const struct port *port)
{
	return job->uid == port->uid ||
	       (job->options.sharing == SHARING_TRAIN && is_member(port, job->options.share_group));
}

bool access_may_drop(const struct job *job, const struct port *port)
{
	return job->uid == port->uid || access_is_administrator(job->node, port);
}

bool access_refuse_returning(struct pending *pending, const char *name, uid_t owner)
{
	const struct node *node = pending_node(pending);
	uint32_t sharing, share_group;

	if (!node->parts->comes_back(node, owner, name, &sharing, &share_group) ||
	    !may_see(node, pending_port(pending), owner, sharing, share_group))
		return false;
	pending_error(pending, -EAGAIN, "job %.*s comes back from its store; try again", name_fit(name, 80),
		      name);
	return true;
}

struct job *access_find(struct pending *pending, const char *name, bool has_owner, uid_t owner)
{
	const struct port *port = pending_port(pending);
	uid_t uid = has_owner ? owner : port->uid;
	struct job *job = job_find(pending_node(pending), uid, name);

	if (job && access_may_see(job, port))
		return job;
	if (!job && access_refuse_returning(pending, name, uid))
		return NULL;
	pending_error(pending, -ENOENT, "there is no job %.*s%s", name_fit(name, 80), name,
		      has_owner ? " of that user" : "");
	return NULL;
}
