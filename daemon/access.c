#include "daemon/access.h"

static bool is_member(const struct port *port, gid_t group)
{
	for (unsigned i = 0; i < port->group_count; i++)
		if (port->groups[i] == group)
			return true;
	return port->gid == group;
}

static bool is_meant(const struct port *port, const struct who *who)
{
	return who->kind == WHO_EVERYONE || (who->kind == WHO_USER && port->uid == who->id) ||
	       (who->kind == WHO_GROUP && is_member(port, who->id));
}

/* Root is none by itself: it may be root of a container only, which has the same number. */
bool access_is_administrator(const struct node *node, const struct port *port)
{
	for (unsigned i = 0; node->administrators && i < node->administrators->count; i++)
		if (is_meant(port, &node->administrators->entries[i]))
			return true;
	return false;
}

bool access_may_see(const struct job *job, const struct port *port)
{
	return access_may_drop(job, port);
}

bool access_may_drop(const struct job *job, const struct port *port)
{
	return job->uid == port->uid || access_is_administrator(job->node, port);
}
