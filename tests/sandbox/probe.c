/* Tries what a sandboxed tierd may do, and what it may not: one line for each act that does not end as it
 * should.
 *
 *   probe FILE     FILE exists outside, in /tmp
 *   probe --ring   is there an io_uring? */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *outside;

/* 0, or the errno of the last call; descriptors go with the process. */
static int errno_of(long result)
{
	return result < 0 ? errno : 0;
}

static int create(const char *path)
{
	int r = errno_of(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));

	unlink(path);
	return r;
}

static int read_only(const char *path)
{
	struct statvfs system;

	if (statvfs(path, &system) < 0)
		return errno;
	return system.f_flag & ST_RDONLY ? EROFS : 0;
}

static int list(const char *path)
{
	return opendir(path) ? 0 : errno;
}

static int look(const char *path)
{
	return errno_of(access(path, F_OK));
}

static int look_outside(const char *unused)
{
	return look(outside);
}

static int open_device(const char *path)
{
	return errno_of(open(path, O_RDWR | O_CLOEXEC));
}

/* ENODEV: there is no device but the loopback. */
static int find_network(const char *path)
{
	FILE *devices = fopen(path, "re");
	unsigned lines = 0;
	char line[512];

	while (devices && fgets(line, sizeof(line), devices))
		lines++;
	return lines > 3 ? 0 : ENODEV;
}

static int find_line(const char *line)
{
	FILE *status = fopen("/proc/self/status", "re");
	char text[512];

	while (status && fgets(text, sizeof(text), status))
		if (strncmp(text, line, strlen(line)) == 0)
			return 0;
	return ENOENT;
}

static int make_internet_socket(const char *unused)
{
	return errno_of(socket(AF_INET, SOCK_STREAM, 0));
}

static int make_netlink_socket(const char *unused)
{
	return errno_of(socket(AF_NETLINK, SOCK_RAW, 0));
}

static int make_unix_socket(const char *unused)
{
	return errno_of(socket(AF_UNIX, SOCK_STREAM, 0));
}

static int make_namespace(const char *unused)
{
	return errno_of(unshare(CLONE_NEWUSER));
}

static int map_writable_code(const char *unused)
{
	void *page = mmap(NULL, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page == MAP_FAILED ? errno : 0;
}

static int make_code(const char *unused)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return errno_of(mprotect(page, 4096, PROT_READ | PROT_EXEC));
}

static int set_user_bit(const char *path)
{
	int r = errno_of(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));

	if (r == 0)
		r = errno_of(chmod(path, 04700));
	unlink(path);
	return r;
}

/* Nobody's process: the kernel itself would say EINVAL. */
static int become_realtime(const char *unused)
{
	struct sched_param parameters = { .sched_priority = 1 };

	return errno_of(sched_setscheduler(-1, SCHED_FIFO, &parameters));
}

static int change_personality(const char *unused)
{
	return errno_of(personality(ADDR_NO_RANDOMIZE));
}

static int be_traced(const char *unused)
{
	return errno_of(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}

/* With arguments that the kernel itself refuses otherwise. */
static int set_clock(const char *unused)
{
	return errno_of(syscall(SYS_clock_settime, 12345, NULL));
}

static int make_ring(const char *unused)
{
	struct io_uring_params parameters = { 0 };

	return errno_of(syscall(SYS_io_uring_setup, 4, &parameters));
}

static int make_memory_file(const char *unused)
{
	return errno_of(memfd_create("probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

static int lock_memory(const char *unused)
{
	static char page[4096];

	return errno_of(mlock(page, sizeof(page)));
}

static int look_at_process(const char *unused)
{
	return errno_of(syscall(SYS_pidfd_open, getppid(), 0));
}

static int keep_to_oneself(const char *path)
{
	struct stat file = { .st_mode = 0777 };
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);

	fstat(fd, &file);
	unlink(path);
	return file.st_mode & 077 ? 0 : EACCES;
}

static const struct {
	const char *what;
	int (*act)(const char *path);
	const char *path;
	int expected;
} acts[] = {
	{ "write to /etc", create, "/etc/probe", EROFS },
	{ "write to /usr", create, "/usr/probe", EROFS },
	{ "write beside the NVMe path", create, "/mnt/probe", EROFS },
	{ "write to /sys", read_only, "/sys", EROFS },
	{ "write to /proc/sys", read_only, "/proc/sys", EROFS },
	{ "list /home", list, "/home", EACCES },
	{ "see the machine's /tmp", look_outside, NULL, ENOENT },
	{ "open the kernel's log", open_device, "/dev/kmsg", ENOENT },
	{ "see disks", look, "/dev/block", ENOENT },
	{ "see the network", find_network, "/proc/self/net/dev", ENODEV },
	{ "open an internet socket", make_internet_socket, NULL, EAFNOSUPPORT },
	{ "open a netlink socket", make_netlink_socket, NULL, EAFNOSUPPORT },
	{ "make a namespace", make_namespace, NULL, EPERM },
	{ "map writable code", map_writable_code, NULL, EPERM },
	{ "turn data into code", make_code, NULL, EPERM },
	{ "make a set-user-id file", set_user_bit, "/tmp/probe", EPERM },
	{ "become realtime", become_realtime, NULL, EPERM },
	{ "change the personality", change_personality, NULL, EPERM },
	{ "be traced", be_traced, NULL, EPERM },
	{ "set the clock", set_clock, NULL, EPERM },
	{ "let others read a new file", keep_to_oneself, "/tmp/probe", EACCES },

	{ "write to its state directory", create, "/var/lib/tierd/probe", 0 },
	{ "write to its runtime directory", create, "/run/tierd/probe", 0 },
	{ "write to the NVMe path", create, "/mnt/nvme0/tierd/probe", 0 },
	{ "write to its own /tmp", create, "/tmp/probe", 0 },
	{ "open /dev/null", open_device, "/dev/null", 0 },
	{ "open a Unix socket", make_unix_socket, NULL, 0 },
	{ "make an io_uring", make_ring, NULL, 0 },
	{ "make a memfd", make_memory_file, NULL, 0 },
	{ "lock memory", lock_memory, NULL, 0 },
	{ "watch another process", look_at_process, NULL, 0 },
	{ "be without capabilities", find_line, "CapBnd:\t0000000000000000", 0 },
	{ "be without new privileges", find_line, "NoNewPrivs:\t1", 0 },
};

int main(int argc, char *argv[])
{
	unsigned surprises = 0;

	if (argc == 2 && strcmp(argv[1], "--ring") == 0)
		return make_ring(NULL) != 0;
	outside = argc == 2 ? argv[1] : "/nowhere";
	for (unsigned i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		int r = acts[i].act(acts[i].path);

		if (r == acts[i].expected)
			continue;
		printf("to %s: %s, where %s was expected\n", acts[i].what, r ? strerror(r) : "done",
		       acts[i].expected ? strerror(acts[i].expected) : "no error");
		surprises++;
	}
	return surprises ? 1 : 0;
}
