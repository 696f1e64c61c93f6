#include "daemon/observe/endurance.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/telemetry/telemetry.h"
#include "daemon/resources/resources.h"
#include "daemon/observe/wear_file.h"

/* What a daemon that is killed forgets. */
#define WRITE_S 60

struct endurance {
	struct node *node;
	const char *directory;
	uint64_t bytes; /* of paths that have none of their own */
	struct event *timer;
	struct wear_file file;
	struct {
		struct wear *wear; /* in the file; NULL: there is no room for it */
		uint64_t counted;  /* of what the node says */
		uint64_t warned_day;
	} paths[NODE_MAX_PATHS];
	/* On its way to the file. */
	struct work work;
	bool is_writing, has_failed;
	void *image;
	size_t image_length;
	int status;
};

static uint64_t now_s(void)
{
	return (uint64_t)time(NULL);
}

static uint64_t bytes_of(const struct endurance *endurance, unsigned path)
{
	uint64_t own = endurance->node->paths[path].endurance;

	return own ? own : endurance->bytes;
}

/* ---- Counting ---- */

static bool count(struct endurance *endurance, unsigned path, uint64_t now)
{
	uint64_t moved = endurance->node->paths[path].moved[TIER_WRITE];
	uint64_t bytes = moved - endurance->paths[path].counted;
	struct wear *wear = endurance->paths[path].wear;

	endurance->paths[path].counted = moved;
	if (!wear)
		return false;
	wear_add(wear, bytes, now);
	return bytes > 0;
}

/* Once a day. */
static void warn(struct endurance *endurance, unsigned path, uint64_t now)
{
	struct node *node = endurance->node;
	const struct wear *wear = endurance->paths[path].wear;
	uint64_t days, today = now / WEAR_DAY_S;

	if (!wear || !wear_days_left(wear, bytes_of(endurance, path), now, &days) ||
	    days >= ENDURANCE_WARN_DAYS || endurance->paths[path].warned_day == today)
		return;
	endurance->paths[path].warned_day = today;
	events_of_node(
		node, EVENT_WORN, &(struct log_fields){ .tier = "nvme", .device = node->paths[path].path },
		"NVMe path %s: %llu GiB of the %llu GiB of its endurance are written; at the rate of the "
		"last days it lasts %llu days: have another device ready, or train with less on NVMe",
		node->paths[path].path, (unsigned long long)(wear->total >> 30),
		(unsigned long long)(bytes_of(endurance, path) >> 30), (unsigned long long)days);
}

static bool count_all(struct endurance *endurance)
{
	uint64_t now = now_s();
	bool has_changed = false;

	for (unsigned path = 0; path < endurance->node->path_count; path++) {
		has_changed |= count(endurance, path, now);
		warn(endurance, path, now);
	}
	return has_changed;
}

void endurance_read(struct endurance *endurance, unsigned path, struct endurance_account *ret_account)
{
	const struct wear *wear = endurance->paths[path].wear;
	uint64_t now = now_s();

	(void)count(endurance, path, now);
	*ret_account = (struct endurance_account){ .bytes = bytes_of(endurance, path) };
	if (!wear)
		return;
	ret_account->today = wear_today(wear, now);
	ret_account->total = wear->total;
	ret_account->has_days = wear_days_left(wear, bytes_of(endurance, path), now, &ret_account->days);
}

void endurance_set(struct endurance *endurance, uint64_t bytes)
{
	endurance->bytes = bytes;
	(void)count_all(endurance);
}

/* ---- The file ---- */

static void run_write(struct work *work)
{
	struct endurance *endurance = container_of(work, struct endurance, work);

	endurance->status = wear_file_write(endurance->directory, endurance->image, endurance->image_length);
}

/* Each time it begins, not each minute. */
static void tell_failure(struct endurance *endurance, int r)
{
	if (r < 0 && !endurance->has_failed)
		log_warning(
			"what is written to the NVMe paths cannot be kept in %s/written: %s; a restart will "
			"forget it: make room there",
			endurance->directory, strerror(-r));
	endurance->has_failed = r < 0;
}

static void on_written(struct work *work)
{
	struct endurance *endurance = container_of(work, struct endurance, work);

	endurance->is_writing = false;
	free(endurance->image);
	node_end_work(endurance->node);
	tell_failure(endurance, endurance->status);
}

static void write_file(struct endurance *endurance)
{
	int r = wear_file_encode(&endurance->file, &endurance->image, &endurance->image_length);

	if (r < 0) {
		tell_failure(endurance, r);
		return;
	}
	endurance->is_writing = true;
	/* The daemon does not end before. */
	node_begin_work(endurance->node);
	endurance->work = (struct work){ .run = run_write, .done = on_written, .urgency = WORK_NORMAL };
	workers_submit(endurance->node->slow_workers, &endurance->work);
}

static void arm(struct endurance *endurance)
{
	static const struct timeval delay = { .tv_sec = WRITE_S };

	event_add(endurance->timer, &delay);
}

static void on_timer(evutil_socket_t fd, short events, void *argument)
{
	struct endurance *endurance = argument;

	if (count_all(endurance) && endurance->directory && !endurance->is_writing)
		write_file(endurance);
	arm(endurance);
}

/* ---- Life ---- */

static void read_file(struct endurance *endurance)
{
	int r = endurance->directory ? wear_file_read(&endurance->file, endurance->directory) : -ENOENT;

	if (r == -EBADMSG)
		log_warning(
			"%s/written is damaged, and called written.damaged now: what was written to the NVMe "
			"paths so far is forgotten, and is counted from 0",
			endurance->directory);
	else if (r < 0 && r != -ENOENT)
		log_warning(
			"%s/written cannot be read: %s; what is written to the NVMe paths is counted from 0",
			endurance->directory, strerror(-r));
}

int endurance_new(struct node *node, const char *directory, uint64_t bytes, struct endurance **ret_endurance)
{
	struct endurance *endurance = calloc(1, sizeof(*endurance));

	if (!endurance)
		return -ENOMEM;
	endurance->node = node;
	endurance->directory = directory;
	endurance->bytes = bytes;
	endurance->timer = event_new(node->loop, -1, 0, on_timer, endurance);
	if (!endurance->timer) {
		free(endurance);
		return -ENOMEM;
	}
	read_file(endurance);
	for (unsigned path = 0; path < node->path_count; path++)
		endurance->paths[path].wear = wear_file_find(&endurance->file, node->paths[path].path);
	(void)count_all(endurance);
	arm(endurance);
	*ret_endurance = endurance;
	return 0;
}

struct endurance *endurance_free(struct endurance *endurance)
{
	void *image;
	size_t length;

	if (!endurance)
		return NULL;
	(void)count_all(endurance);
	if (endurance->directory && endurance->node->path_count > 0 &&
	    wear_file_encode(&endurance->file, &image, &length) == 0) {
		tell_failure(endurance, wear_file_write(endurance->directory, image, length));
		free(image);
	}
	event_free(endurance->timer);
	wear_file_clear(&endurance->file);
	free(endurance);
	return NULL;
}
