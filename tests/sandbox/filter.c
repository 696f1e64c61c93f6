#include "tests/sandbox/filter.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <fcntl.h>

#define MAX_MEMBERS 2048
#define MAX_CALLS 1024

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

struct member {
	char group[32], name[48];
};

static struct member members[MAX_MEMBERS];
static unsigned member_count;

/* ---- Groups ---- */

void filter_learn_groups(void)
{
	FILE *list = popen("systemd-analyze --no-pager syscall-filter 2>&1", "re");
	char line[256], group[32] = "", name[48];

	while (list && fgets(line, sizeof(line), list)) {
		if (sscanf(line, "%47s", name) != 1 || name[0] == '#')
			continue;
		if (line[0] == '@')
			snprintf(group, sizeof(group), "%.31s", name);
		else if (line[0] == ' ' && member_count < MAX_MEMBERS) {
			struct member *member = &members[member_count++];

			snprintf(member->group, sizeof(member->group), "%s", group);
			snprintf(member->name, sizeof(member->name), "%s", name);
		}
	}
	if (!list || pclose(list) != 0 || member_count == 0)
		skip("systemd-analyze, which knows the groups of system calls, does not work here");
}

struct call_set {
	int numbers[MAX_CALLS];
	unsigned count;
	bool is_on[MAX_CALLS];
};

static void set_call(struct call_set *set, int number, bool is_on)
{
	unsigned i = 0;

	while (i < set->count && set->numbers[i] != number)
		i++;
	if (i == MAX_CALLS)
		die("more than %d system calls", MAX_CALLS);
	set->numbers[i] = number;
	set->is_on[i] = is_on;
	if (i == set->count)
		set->count++;
}

/* Names of other architectures have negative numbers, as in systemd they are passed over. */
static void set_name(struct call_set *set, const char *name, bool is_on)
{
	bool is_known = false;
	int number;

	if (name[0] != '@') {
		number = seccomp_syscall_resolve_name(name);
		if (number >= 0)
			set_call(set, number, is_on);
		return;
	}
	for (unsigned i = 0; i < member_count; i++)
		if (strcmp(members[i].group, name) == 0) {
			set_name(set, members[i].name, is_on);
			is_known = true;
		}
	if (!is_known)
		die("no group of system calls is called %s", name);
}

/* ---- Filters ---- */

static scmp_filter_ctx begin(uint32_t action)
{
	scmp_filter_ctx filter = seccomp_init(action);

	if (!filter)
		die("no memory for a filter");
	return filter;
}

static void load(scmp_filter_ctx filter)
{
	int r = seccomp_load(filter);

	if (r < 0)
		skip("the kernel takes no filter of system calls: %s", strerror(-r));
	seccomp_release(filter);
}

static void refuse_if(scmp_filter_ctx filter, int error, const char *name, const struct scmp_arg_cmp *when)
{
	int number = seccomp_syscall_resolve_name(name);
	int r = number < 0 ? 0
			   : seccomp_rule_add_array(filter, SCMP_ACT_ERRNO((uint32_t)error), number,
						    when ? 1 : 0, when);

	if (r < 0)
		die("no rule for %s: %s", name, strerror(-r));
}

static void refuse(scmp_filter_ctx filter, const char *name)
{
	refuse_if(filter, EPERM, name, NULL);
}

static void refuse_bits(scmp_filter_ctx filter, const char *name, unsigned argument, uint64_t bits)
{
	refuse_if(filter, EPERM, name, &SCMP_CMP64(argument, SCMP_CMP_MASKED_EQ, bits, bits));
}

static void restrict_namespaces(scmp_filter_ctx filter)
{
	static const int kinds[] = { CLONE_NEWNS,  CLONE_NEWNET, CLONE_NEWUSER,	  CLONE_NEWPID,
				     CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP, CLONE_NEWTIME };

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		refuse_bits(filter, "clone", 0, (uint64_t)kinds[i]);
		refuse_bits(filter, "unshare", 0, (uint64_t)kinds[i]);
	}
	refuse(filter, "setns");
	/* Its flags lie in memory, where a filter cannot look; libraries fall back to clone. */
	refuse_if(filter, ENOSYS, "clone3", NULL);
}

static void deny_write_execute(scmp_filter_ctx filter)
{
	refuse_bits(filter, "mmap", 2, PROT_WRITE | PROT_EXEC);
	refuse_bits(filter, "mprotect", 2, PROT_EXEC);
	refuse_bits(filter, "pkey_mprotect", 2, PROT_EXEC);
	refuse_bits(filter, "shmat", 2, SHM_EXEC);
}

static void restrict_set_id(scmp_filter_ctx filter)
{
	static const struct {
		const char *name;
		unsigned mode;
	} calls[] = { { "chmod", 1 }, { "fchmod", 1 }, { "fchmodat", 2 }, { "mkdir", 1 }, { "mkdirat", 2 },
		      { "mknod", 1 }, { "open", 2 },   { "openat", 3 },	  { "creat", 1 }, { "mknodat", 2 } };

	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		refuse_bits(filter, calls[i].name, calls[i].mode, S_ISUID);
		refuse_bits(filter, calls[i].name, calls[i].mode, S_ISGID);
	}
	refuse_if(filter, ENOSYS, "openat2", NULL);
}

static void restrict_realtime(scmp_filter_ctx filter)
{
	refuse_if(filter, EPERM, "sched_setscheduler", &SCMP_A1(SCMP_CMP_EQ, SCHED_FIFO));
	refuse_if(filter, EPERM, "sched_setscheduler", &SCMP_A1(SCMP_CMP_EQ, SCHED_RR));
	refuse(filter, "sched_setattr");
}

static void lock_personality(scmp_filter_ctx filter)
{
	uint64_t present = (uint64_t)personality(0xffffffff);

	refuse_if(filter, EPERM, "personality", &SCMP_A0_64(SCMP_CMP_NE, present));
}

static void refuse_group(scmp_filter_ctx filter, const char *group)
{
	static struct call_set set;

	set.count = 0;
	set_name(&set, group, true);
	for (unsigned i = 0; i < set.count; i++)
		if (seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), set.numbers[i], 0) < 0)
			die("no rule for %s", group);
}

static void allow_family(const char *word, void *argument)
{
	if (strcmp(word, "AF_UNIX") != 0)
		die("RestrictAddressFamilies=%s: only AF_UNIX is understood", word);
	*(bool *)argument = true;
}

static void restrict_families(const struct unit *unit, scmp_filter_ctx filter)
{
	bool is_unix = false;

	unit_each(unit, "RestrictAddressFamilies", allow_family, &is_unix);
	if (is_unix)
		refuse_if(filter, EAFNOSUPPORT, "socket", &SCMP_A0(SCMP_CMP_NE, AF_UNIX));
}

static void refuse_by_directives(const struct unit *unit)
{
	static const struct {
		const char *key;
		void (*add)(scmp_filter_ctx filter);
	} simple[] = {
		{ "RestrictNamespaces", restrict_namespaces },
		{ "MemoryDenyWriteExecute", deny_write_execute },
		{ "RestrictSUIDSGID", restrict_set_id },
		{ "RestrictRealtime", restrict_realtime },
		{ "LockPersonality", lock_personality },
	};
	static const struct {
		const char *key, *group;
	} groups[] = { { "ProtectClock", "@clock" },
		       { "ProtectKernelModules", "@module" },
		       { "PrivateDevices", "@raw-io" } };
	scmp_filter_ctx filter = begin(SCMP_ACT_ALLOW);

	for (unsigned i = 0; i < sizeof(simple) / sizeof(simple[0]); i++)
		if (unit_is_on(unit, simple[i].key))
			simple[i].add(filter);
	for (unsigned i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (unit_is_on(unit, groups[i].key))
			refuse_group(filter, groups[i].group);
	if (unit_is_on(unit, "ProtectKernelLogs"))
		refuse(filter, "syslog");
	if (unit_is_on(unit, "ProtectHostname")) {
		refuse(filter, "sethostname");
		refuse(filter, "setdomainname");
	}
	restrict_families(unit, filter);
	load(filter);
}

static void change_set(const char *word, void *argument)
{
	struct call_set *set = argument;
	bool is_inverse = word[0] == '~';

	if (set->count == 0 && is_inverse)
		die("SystemCallFilter= must begin with what it allows");
	if (set->count == 0)
		set_name(set, "@default", true);
	set_name(set, word + is_inverse, !is_inverse);
}

static void allow_calls(const struct unit *unit)
{
	static struct call_set set;
	scmp_filter_ctx filter;

	unit_each(unit, "SystemCallFilter", change_set, &set);
	if (set.count == 0)
		return;
	filter = begin(SCMP_ACT_ERRNO(EPERM));
	for (unsigned i = 0; i < set.count; i++)
		if (set.is_on[i] && seccomp_rule_add(filter, SCMP_ACT_ALLOW, set.numbers[i], 0) < 0)
			die("no rule for system call %d", set.numbers[i]);
	load(filter);
}

/* The list of what is allowed comes last: loading a filter is not in it. Each filter knows the native
 * architecture only, as SystemCallArchitectures=native says. */
void filter_apply(const struct unit *unit)
{
	const char *architectures = unit_get(unit, "SystemCallArchitectures");
	const char *error = unit_get(unit, "SystemCallErrorNumber");

	if (!architectures || strcmp(architectures, "native") != 0 || !error || strcmp(error, "EPERM") != 0)
		die("SystemCallArchitectures=native and SystemCallErrorNumber=EPERM are the only ones "
		    "understood");
	refuse_by_directives(unit);
	allow_calls(unit);
}
