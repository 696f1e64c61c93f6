#include "tests/sandbox/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct identity identity_of(const struct unit *unit)
{
	const char *user = unit_get(unit, "User"), *group = unit_get(unit, "Group");
	struct passwd *passwd = user ? getpwnam(user) : NULL;
	struct group *entry = group ? getgrnam(group) : NULL;

	if (!passwd || !entry)
		die("no user '%s' or no group '%s'", user ?: "", group ?: "");
	return (struct identity){ passwd->pw_uid, entry->gr_gid };
}

static void limit(const struct unit *unit, const char *key, int resource)
{
	const char *text = unit_get(unit, key);
	struct rlimit wanted, present;

	if (!text)
		return;
	wanted.rlim_cur = strcmp(text, "infinity") == 0 ? RLIM_INFINITY : strtoull(text, NULL, 10);
	wanted.rlim_max = wanted.rlim_cur;
	if (setrlimit(resource, &wanted) == 0)
		return;
	getrlimit(resource, &present);
	printf("not applied: %s=%s: beyond the hard limit here, %llu\n", key, text,
	       (unsigned long long)present.rlim_max);
}

static void adjust_oom_score(const struct unit *unit)
{
	const char *score = unit_get(unit, "OOMScoreAdjust");
	int fd = score ? open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC) : -1;

	if (score && (fd < 0 || write(fd, score, strlen(score)) < 0))
		printf("not applied: OOMScoreAdjust=%s: %s\n", score, strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* Nothing, or '~' alone: everything. Lists are not needed. */
static void bound_capabilities(const struct unit *unit)
{
	const char *set = unit_get(unit, "CapabilityBoundingSet");

	if (!set || strcmp(set, "~") == 0)
		return;
	if (*set != '\0')
		die("CapabilityBoundingSet=%s: only an empty one is understood", set);
	for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++)
		if (prctl(PR_CAPBSET_DROP, capability) < 0)
			die("capability %d cannot be dropped: %s", capability, strerror(errno));
}

void identity_take(const struct unit *unit, struct identity identity)
{
	const char *mask = unit_get(unit, "UMask"), *ambient = unit_get(unit, "AmbientCapabilities");

	if (ambient && *ambient)
		die("AmbientCapabilities=%s: only an empty one is understood", ambient);
	limit(unit, "LimitMEMLOCK", RLIMIT_MEMLOCK);
	limit(unit, "LimitNOFILE", RLIMIT_NOFILE);
	adjust_oom_score(unit);
	if (mask)
		umask((mode_t)strtoul(mask, NULL, 8));
	bound_capabilities(unit);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (setgroups(0, NULL) < 0 || setresgid(identity.gid, identity.gid, identity.gid) < 0 ||
	    setresuid(identity.uid, identity.uid, identity.uid) < 0)
		die("cannot become the user %u: %s", identity.uid, strerror(errno));
	/* Filters need it, too. */
	if (!unit_is_on(unit, "NoNewPrivileges") || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		die("NoNewPrivileges= is not on");
}
