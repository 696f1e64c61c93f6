/* What clients have open or mapped is taken back from them, so that nothing of it stays when it has left the
 * account. What cannot be taken back now is withheld: it stays in the account of the job's owner, and is
 * looked at again after a while. So is what stays registered with a GPU, which would copy to its pages,
 * whoever has them then; it stays in the account of the node. */
#include "daemon/resources/disposal.h"

#include <event2/event.h>
#include <malloc.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/model/model.h"
#include "daemon/resources/own.h"
#include "offload/cuda/gpu_engine.h"
#include "offload/store/store.h"

/* Who has just left unmaps within a moment; who does not may never. */
#define FIRST_LOOK_MS 10
#define LAST_LOOK_MS 16000

struct disposal {
	struct work work;
	struct node *node;
	struct made made;
	bool is_trim;
	bool is_stopping;    /* who outlives the daemon reads on, and nobody keeps an account */
	struct queue link;   /* of the node's, if clients or GPUs could have some of it */
	struct event *timer; /* to the next look */
	unsigned delay_ms;   /* 0: nobody has looked yet */
	/* By clients, and by GPUs; the second as the last look has found it. */
	uint64_t withheld, found;
	uint64_t kept, registered;
};

/* ---- On the worker ---- */

/* Those that are read are left alone until nobody has them any more: whoever lives may have leases there. */
static void take_back(const struct disposal *disposal, struct memory *memory)
{
	if (disposal->made.is_read && !memory_is_alone(memory))
		return;
	if (memory_take_back(memory) == 0)
		memory_free(memory);
}

static bool is_registered(const struct memory *memory)
{
	return memory->base && gpu_pin_keeps(memory->base, memory->length);
}

static uint64_t unmake_memory(struct disposal *disposal, struct memory *memory)
{
	if (memory->base)
		engine_buffer_remove(disposal->node->engine, memory->base, memory->length);
	if (is_registered(memory)) {
		disposal->registered += memory->fd >= 0 ? memory_resident(memory) : memory->length;
		return 0;
	}
	if (memory->fd >= 0 && !disposal->is_stopping)
		take_back(disposal, memory);
	else
		memory_free(memory);
	return memory->fd >= 0 ? memory_resident(memory) : 0;
}

static void unmake(struct disposal *disposal)
{
	struct made *made = &disposal->made;
	struct memory *memories[] = { &made->arena, &made->cache, &made->sums, &made->directory };

	store_free(made->gradient_store);
	if (made->optimizer_store != made->parameter_store)
		store_free(made->optimizer_store);
	store_free(made->parameter_store);
	made->gradient_store = made->optimizer_store = made->parameter_store = NULL;
	disposal->found = disposal->registered = 0;
	for (unsigned i = 0; i < ARRAY_LENGTH(memories); i++)
		disposal->found += unmake_memory(disposal, memories[i]);
	for (unsigned i = 0; i < NODE_MAX_PATHS; i++)
		made->draft[i] = tier_free(made->draft[i]);
}

static void run_disposal(struct work *work)
{
	struct disposal *disposal = container_of(work, struct disposal, work);

	unmake(disposal);
	if (disposal->made.uses_staging)
		staging_leave(disposal->node->staging, disposal->node->engine);
	disposal->made.uses_staging = false;
	if (disposal->is_trim)
		(void)malloc_trim(0);
}

/* ---- What is withheld, or kept ---- */

/* What a GPU still has goes with the process. */
static void free_or_leave(struct memory *memory)
{
	if (is_registered(memory))
		fd_close(memory->fd);
	else
		memory_free(memory);
	*memory = (struct memory)MEMORY_INIT;
}

static void free_memory(struct made *made)
{
	free_or_leave(&made->arena);
	free_or_leave(&made->cache);
	free_or_leave(&made->sums);
	free_or_leave(&made->directory);
}

static void disposal_free(struct disposal *disposal)
{
	free_memory(&disposal->made);
	queue_remove(&disposal->link);
	if (disposal->timer)
		event_free(disposal->timer);
	free(disposal);
}

static void submit(struct disposal *disposal)
{
	node_begin_work(disposal->node);
	disposal->is_stopping = disposal->node->is_stopping;
	workers_submit(disposal->node->slow_workers, &disposal->work);
}

static void on_look(evutil_socket_t fd, short events, void *argument)
{
	submit(argument);
}

static void tell(const struct disposal *disposal)
{
	uid_t user = disposal->made.uid;

	if (disposal->kept > 0)
		log_warning("%llu MiB of host memory are registered with a GPU that is lost, or that has not "
			    "let go of them: tierd keeps them until that GPU is closed",
			    (unsigned long long)size_divide_up(disposal->kept, MIB));
	if (disposal->withheld < MIB)
		return;
	events_of_node(disposal->node, EVENT_WITHHELD, &(struct log_fields){ .user = &user },
		       "%llu MiB of a job that has ended are still open or mapped in processes, and count as "
		       "user %u's until those end or let go of them",
		       (unsigned long long)(disposal->withheld / MIB), (unsigned)user);
}

/* True: others may have waited for it. */
static bool account(struct disposal *disposal)
{
	bool has_news = disposal->delay_ms == 0 || disposal->found != disposal->withheld ||
			disposal->registered != disposal->kept;

	disposal->node->resources->host_used +=
		disposal->found + disposal->registered - disposal->withheld - disposal->kept;
	disposal->withheld = disposal->found;
	disposal->kept = disposal->registered;
	return has_news && !queue_is_empty(&disposal->link);
}

/* Without a timer it stays as it is. */
static void look_again_later(struct disposal *disposal)
{
	struct timeval delay;

	if (disposal->delay_ms == 0)
		tell(disposal);
	disposal->delay_ms = disposal->delay_ms == 0 ? FIRST_LOOK_MS : disposal->delay_ms * 2;
	if (disposal->delay_ms > LAST_LOOK_MS)
		disposal->delay_ms = LAST_LOOK_MS;
	if (!disposal->timer)
		disposal->timer = event_new(disposal->node->loop, -1, 0, on_look, disposal);
	delay = (struct timeval){ .tv_sec = disposal->delay_ms / 1000,
				  .tv_usec = disposal->delay_ms % 1000 * 1000 };
	if (disposal->timer)
		event_add(disposal->timer, &delay);
}

static void on_disposed(struct work *work)
{
	struct disposal *disposal = container_of(work, struct disposal, work);
	struct node *node = disposal->node;
	bool has_news = account(disposal);

	node_end_work(node);
	if (disposal->kept > 0 && queue_is_empty(&disposal->link))
		queue_push(&node->resources->withheld, &disposal->link);
	if (disposal->withheld > 0 || disposal->kept > 0)
		look_again_later(disposal);
	else
		disposal_free(disposal);
	if (has_news)
		job_settle_all(node);
}

struct withheld disposal_withheld(const struct node *node, uid_t uid)
{
	struct withheld withheld = { .is_known = true };

	QUEUE_FOREACH (link, &node->resources->withheld) {
		const struct disposal *disposal = queue_entry(link, struct disposal, link);

		if (disposal->made.uid != uid) {
			withheld.others_bytes += disposal->withheld;
			continue;
		}
		withheld.bytes += disposal->withheld;
		withheld.count += disposal->withheld > 0;
		withheld.is_known &= disposal->delay_ms > 0;
	}
	return withheld;
}

uint64_t disposal_withheld_by_all(const struct node *node)
{
	struct withheld withheld = disposal_withheld(node, 0);

	return withheld.bytes + withheld.others_bytes;
}

void disposal_forget_all(struct node *node)
{
	for (struct queue *link = queue_first(&node->resources->withheld); link;
	     link = queue_first(&node->resources->withheld))
		disposal_free(queue_entry(link, struct disposal, link));
}

/* ---- Starting ---- */

static bool is_shared(const struct made *made)
{
	return made->arena.fd >= 0 || made->cache.fd >= 0 || made->sums.fd >= 0 || made->directory.fd >= 0;
}

/* False: out of memory. */
static bool start(struct node *node, const struct made *made, bool is_trim)
{
	struct disposal *disposal = calloc(1, sizeof(*disposal));

	if (!disposal)
		return false;
	*disposal = (struct disposal){
		.work = { .run = run_disposal, .done = on_disposed, .urgency = WORK_NORMAL },
		.node = node,
		.made = *made,
		.is_trim = is_trim,
	};
	queue_init(&disposal->link);
	if (is_shared(made)) {
		disposal->made.is_read &= disposal_withheld(node, made->uid).count < DISPOSAL_WITHHELD_MOST;
		queue_push(&node->resources->withheld, &disposal->link);
	}
	submit(disposal);
	return true;
}

void disposal_start(struct node *node, struct made *made)
{
	if (!start(node, made, false)) {
		struct disposal disposal = { .node = node, .made = *made, .is_stopping = node->is_stopping };

		/* The staging buffers are another thread's to leave: they stay. */
		unmake(&disposal);
		free_memory(&disposal.made);
	}
	*made = (struct made)MADE_INIT;
}

void disposal_start_shared(struct node *node, uid_t uid, bool is_read, struct memory *memory)
{
	struct made made = MADE_INIT;

	if (!memory->base)
		return;
	made.sums = *memory;
	made.uid = uid;
	made.is_read = is_read;
	*memory = (struct memory)MEMORY_INIT;
	disposal_start(node, &made);
}

void disposal_start_memory(struct node *node, struct memory *memory)
{
	disposal_start_shared(node, 0, false, memory);
}

void disposal_start_trim(struct node *node)
{
	(void)start(node, &(struct made)MADE_INIT, true);
}
