/* Starts a program under the restrictions of a unit file, as far as they can be had without systemd.
 *
 *   sandbox --unit FILE… [--bind SOURCE:DESTINATION]… [-- PROGRAM ARGUMENT…]
 *
 * Without a program it starts ExecStart=. A directive that it does not know is an error, so that nothing is
 * added to the unit that no test has looked at. It needs root; 77 says that this machine does not allow what
 * it needs. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/sandbox/filter.h"
#include "tests/sandbox/identity.h"
#include "tests/sandbox/mounts.h"
#include "tests/sandbox/unit.h"

/* What this program applies. */
static const char *const applied[] = {
	"User",
	"Group",
	"UMask",
	"LimitMEMLOCK",
	"LimitNOFILE",
	"OOMScoreAdjust",
	"NoNewPrivileges",
	"CapabilityBoundingSet",
	"AmbientCapabilities",
	"RuntimeDirectory",
	"RuntimeDirectoryMode",
	"StateDirectory",
	"StateDirectoryMode",
	"ConfigurationDirectory",
	"ReadWritePaths",
	"ProtectSystem",
	"ProtectHome",
	"PrivateTmp",
	"PrivateDevices",
	"PrivateNetwork",
	"ProtectHostname",
	"ProtectKernelTunables",
	"ProtectKernelModules",
	"ProtectKernelLogs",
	"ProtectControlGroups",
	"ProtectClock",
	"RestrictAddressFamilies",
	"RestrictNamespaces",
	"RestrictRealtime",
	"RestrictSUIDSGID",
	"LockPersonality",
	"MemoryDenyWriteExecute",
	"SystemCallArchitectures",
	"SystemCallFilter",
	"SystemCallErrorNumber",
	"ExecStart",
	/* Nothing to do: switched off, with a reason in the unit. */
	"PrivateUsers",
};

/* What is the service manager's, when it starts and ends a service, or needs BPF. */
static const char *const left_out[] = {
	"Type",	       "ExecReload",	  "ExecStop",	    "Restart",
	"WatchdogSec", "TimeoutStartSec", "TimeoutStopSec", "RuntimeDirectoryPreserve",
	"RemoveIPC",   "IPAddressDeny",
};

static bool contains(const char *const *names, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static void check_directives(const struct unit *unit)
{
	for (unsigned i = 0; i < unit->count; i++) {
		const char *key = unit->lines[i].key;

		if (!contains(applied, sizeof(applied) / sizeof(applied[0]), key) &&
		    !contains(left_out, sizeof(left_out) / sizeof(left_out[0]), key))
			die("%s= is in the unit, and nobody has decided how it is tested", key);
	}
	if (unit_is_on(unit, "PrivateUsers"))
		die("PrivateUsers=yes would hide who the clients are");
}

static void bind_pair(char *pair)
{
	char *colon = strchr(pair, ':');

	if (!colon)
		die("--bind takes SOURCE:DESTINATION");
	*colon = '\0';
	mounts_bind(pair, colon + 1);
}

int main(int argc, char *argv[])
{
	static const struct option options[] = {
		{ "unit", required_argument, NULL, 'u' },
		{ "bind", required_argument, NULL, 'b' },
		{ NULL, 0, NULL, 0 },
	};
	static struct unit unit;
	char *pairs[16];
	unsigned pair_count = 0;
	struct identity identity;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'u')
			unit_read(&unit, optarg);
		else if (option == 'b' && pair_count < 16)
			pairs[pair_count++] = optarg;
		else
			die("usage: sandbox --unit FILE… [--bind SOURCE:DESTINATION]… [-- PROGRAM "
			    "ARGUMENT…]");
	}
	check_directives(&unit);
	filter_learn_groups();
	mounts_begin(&unit);
	for (unsigned i = 0; i < pair_count; i++)
		bind_pair(pairs[i]);
	identity = identity_of(&unit);
	mounts_restrict(&unit, identity);
	identity_take(&unit, identity);
	if (chdir("/") < 0)
		die("/: %s", strerror(errno));
	fflush(stdout);
	filter_apply(&unit);
	if (optind < argc)
		execv(argv[optind], argv + optind);
	else
		execl(unit_get(&unit, "ExecStart"), unit_get(&unit, "ExecStart"), NULL);
	die("it cannot be started: %s", strerror(errno));
}
