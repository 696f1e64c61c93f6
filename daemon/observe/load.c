#include "daemon/observe/load.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "daemon/model/model.h"
#include "daemon/observe/own.h"
#include "daemon/observe/statistics.h"

/* ---- The loop ---- */

/* Nanoseconds that the thread has run, and that it could have run and had no processor: others had it, or the
 * quota of its control group was used up. What is left of a second it has slept. Zeros of a kernel that does
 * not count. */
static uint64_t read_turns(int fd)
{
	char text[96];
	uint64_t ran, waited;
	ssize_t length = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

	if (length <= 0)
		return 0;
	text[length] = '\0';
	return sscanf(text, "%" SCNu64 " %" SCNu64, &ran, &waited) == 2 ? ran + waited : 0;
}

void load_open(struct load *load)
{
	load->turns_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	if (read_turns(load->turns_fd) > 0)
		return;
	fd_close(load->turns_fd);
	load->turns_fd = -1;
}

void load_close(struct load *load)
{
	fd_close(load->turns_fd);
	load->turns_fd = -1;
}

uint64_t load_loop_ns(const struct load *load)
{
	struct timespec ran;

	if (load->turns_fd >= 0)
		return read_turns(load->turns_fd);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
	return (uint64_t)ran.tv_sec * UINT64_C(1000000000) + (uint64_t)ran.tv_nsec;
}

/* ---- Looks ---- */

void load_note(struct load *load, const struct statistics_node *look)
{
	load->looks[load->look_count++ % LOAD_LOOKS] = *look;
}

static const struct statistics_node *oldest(const struct load *load)
{
	return &load->looks[load->look_count < LOAD_LOOKS ? 0 : load->look_count % LOAD_LOOKS];
}

void load_report(struct node *node, struct report_load *load, Tierd__Wire__NodeReply *body)
{
	const struct statistics_node *before = oldest(&node->observe->load);
	struct statistics_node now;

	if (node->observe->load.look_count == 0)
		return;
	statistics_look(node, &now);
	tierd__wire__load__init(&load->wire);
	load->wire.interval_ns = now.heartbeat_ns - before->heartbeat_ns;
	load->wire.worker_ns = now.worker_busy_ns - before->worker_busy_ns;
	load->wire.loop_ns = now.loop_busy_ns - before->loop_busy_ns;
	for (unsigned cause = 0; cause < STATISTICS_CAUSES; cause++)
		load->stall_ns[cause] = now.figures.stall_ns[cause] - before->figures.stall_ns[cause];
	load->wire.n_stall_ns = STATISTICS_CAUSES;
	load->wire.stall_ns = load->stall_ns;
	for (size_t i = 0; i < body->n_paths; i++)
		body->paths[i]->busy_ns = now.paths[i].busy_ns - before->paths[i].busy_ns;
	body->load = &load->wire;
}
