#include "tests/sandbox/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void set_read_only(const char *path, bool is_read_only, bool is_recursive)
{
	struct mount_attr attributes = {
		.attr_set = is_read_only ? MOUNT_ATTR_RDONLY : 0,
		.attr_clr = is_read_only ? 0 : MOUNT_ATTR_RDONLY,
	};

	if (syscall(SYS_mount_setattr, AT_FDCWD, path, is_recursive ? AT_RECURSIVE : 0, &attributes,
		    sizeof(attributes)) < 0)
		die("%s cannot be made %s: %s", path, is_read_only ? "read-only" : "writable",
		    strerror(errno));
}

void mounts_bind(const char *source, const char *destination)
{
	if (mount(source, destination, NULL, MS_BIND | MS_REC, NULL) < 0)
		die("%s cannot be bound to %s: %s", source, destination, strerror(errno));
}

void mounts_begin(const struct unit *unit)
{
	int flags = CLONE_NEWNS;

	if (unit_is_on(unit, "PrivateNetwork"))
		flags |= CLONE_NEWNET;
	if (unit_is_on(unit, "ProtectHostname"))
		flags |= CLONE_NEWUTS;
	if (unshare(flags) < 0)
		skip("this machine does not allow us namespaces of our own: %s", strerror(errno));
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip("this machine does not allow us mounts: %s", strerror(errno));
}

static void mount_fresh(const char *path, const char *options)
{
	if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
		die("nothing can be mounted at %s: %s", path, strerror(errno));
}

static void hide_folder(const char *path)
{
	if (access(path, F_OK) < 0)
		return;
	mount_fresh(path, "mode=000,nr_inodes=1");
	set_read_only(path, true, false);
}

/* Another file, which nobody may read, is seen in its place. */
static void hide_file(const char *path)
{
	char hidden[] = "/tmp/tierd-hidden-XXXXXX";
	int fd = access(path, F_OK) == 0 ? mkstemp(hidden) : -1;

	if (fd < 0)
		return;
	fchmod(fd, 0);
	close(fd);
	mounts_bind(hidden, path);
	unlink(hidden);
}

/* ---- Devices ---- */

/* Nodes are bound, because containers may not make any. */
static void add_device(const char *folder, const char *name)
{
	char from[128], to[128];
	int fd;

	snprintf(from, sizeof(from), "/dev/%s", name);
	snprintf(to, sizeof(to), "%s/%s", folder, name);
	fd = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
	if (fd < 0)
		die("%s: %s", to, strerror(errno));
	close(fd);
	mounts_bind(from, to);
}

static void make_devices(void)
{
	static const char *const names[] = { "null", "zero", "full", "random", "urandom" };
	char folder[] = "/tmp/tierd-dev-XXXXXX";

	if (!mkdtemp(folder))
		die("no folder for devices: %s", strerror(errno));
	mount_fresh(folder, "mode=755");
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		add_device(folder, names[i]);
	if (mount(folder, "/dev", NULL, MS_MOVE, NULL) < 0)
		die("/dev cannot be replaced: %s", strerror(errno));
	rmdir(folder);
	set_read_only("/dev", true, false);
}

/* ---- The unit's directives ---- */

static bool is_below(const char *path, const char *folder)
{
	size_t length = strlen(folder);

	return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* A blank in a path is \040 in the list of mounts. */
static void decode(char *path)
{
	char *to = path;
	unsigned character;

	for (const char *from = path; *from; from++)
		if (*from == '\\' && sscanf(from + 1, "%3o", &character) == 1) {
			*to++ = (char)character;
			from += 3;
		} else {
			*to++ = *from;
		}
	*to = '\0';
}

/* All but the kernel's own file systems, which have directives of their own. What lies below another mount is
 * out of reach already. */
static void protect_system(void)
{
	struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY };
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char path[4096];

	while (mounts && fscanf(mounts, "%*s %*s %*s %*s %4095s %*[^\n]", path) == 1) {
		decode(path);
		if (is_below(path, "/proc") || is_below(path, "/sys") || is_below(path, "/dev"))
			continue;
		if (syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &attributes, sizeof(attributes)) < 0 &&
		    errno != ENOENT && errno != EINVAL)
			die("%s cannot be made read-only: %s", path, strerror(errno));
	}
	fclose(mounts);
}

static void protect_kernel(const struct unit *unit)
{
	static const char *const tunables[] = { "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus",
						"/proc/fs" };

	for (unsigned i = 0; i < sizeof(tunables) / sizeof(tunables[0]); i++)
		if (unit_is_on(unit, "ProtectKernelTunables") && access(tunables[i], F_OK) == 0) {
			mounts_bind(tunables[i], tunables[i]);
			set_read_only(tunables[i], true, true);
		}
	if (unit_is_on(unit, "ProtectKernelTunables"))
		set_read_only("/sys", true, true);
	else if (unit_is_on(unit, "ProtectControlGroups"))
		set_read_only("/sys/fs/cgroup", true, true);
	if (unit_is_on(unit, "ProtectKernelModules"))
		hide_folder("/usr/lib/modules");
	if (unit_is_on(unit, "ProtectKernelLogs"))
		hide_file("/proc/kmsg");
}

static void make_writable(const char *path)
{
	mounts_bind(path, path);
	set_read_only(path, false, false);
}

static void make_writable_path(const char *path, void *argument)
{
	make_writable(path);
}

static const struct {
	const char *key, *mode_key, *parent;
} folders[] = { { "RuntimeDirectory", "RuntimeDirectoryMode", "/run" },
		{ "StateDirectory", "StateDirectoryMode", "/var/lib" } };

/* What the service manager makes; before anything is read-only. */
static void make_folders(const struct unit *unit, struct identity identity)
{
	for (unsigned i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		const char *name = unit_get(unit, folders[i].key),
			   *mode = unit_get(unit, folders[i].mode_key);
		char path[256];

		snprintf(path, sizeof(path), "%s/%s", folders[i].parent, name ?: "");
		if (!name)
			continue;
		if ((mkdir(path, 0755) < 0 && errno != EEXIST) ||
		    chown(path, identity.uid, identity.gid) < 0 ||
		    chmod(path, mode ? (mode_t)strtoul(mode, NULL, 8) : 0755) < 0)
			die("%s: %s", path, strerror(errno));
	}
}

static void open_folders(const struct unit *unit)
{
	for (unsigned i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		const char *name = unit_get(unit, folders[i].key);
		char path[256];

		snprintf(path, sizeof(path), "%s/%s", folders[i].parent, name ?: "");
		if (name)
			make_writable(path);
	}
}

static void hide_homes(void)
{
	hide_folder("/home");
	hide_folder("/root");
	hide_folder("/run/user");
}

void mounts_restrict(const struct unit *unit, struct identity identity)
{
	const char *system = unit_get(unit, "ProtectSystem");

	if (!system || (strcmp(system, "strict") != 0 && strcmp(system, "no") != 0))
		die("ProtectSystem=%s: only strict is understood", system ?: "");
	make_folders(unit, identity);
	if (unit_is_on(unit, "PrivateDevices"))
		make_devices();
	protect_kernel(unit);
	if (strcmp(system, "strict") == 0)
		protect_system();
	if (unit_is_on(unit, "ProtectHome"))
		hide_homes();
	if (unit_is_on(unit, "PrivateTmp")) {
		mount_fresh("/tmp", "mode=1777");
		mount_fresh("/var/tmp", "mode=1777");
	}
	open_folders(unit);
	unit_each(unit, "ReadWritePaths", make_writable_path, NULL);
}
