#include "daemon/disposal.h"

#include <malloc.h>
#include <stdlib.h>

#include "offload/store.h"

struct disposal {
	struct work work;
	struct node *node;
	struct made made;
	bool is_trim;
};

static void free_pinned(struct node *node, struct memory *memory)
{
	if (memory->base)
		engine_buffer_remove(node->engine, memory->base, memory->length);
	memory_free(memory);
}

static void unmake(struct node *node, struct made *made)
{
	store_free(made->gradient_store);
	if (made->optimizer_store != made->parameter_store)
		store_free(made->optimizer_store);
	store_free(made->parameter_store);
	free_pinned(node, &made->arena);
	free_pinned(node, &made->cache);
	free_pinned(node, &made->sums);
	memory_free(&made->directory);
	for (unsigned i = 0; i < NODE_MAX_PATHS; i++)
		tier_free(made->draft[i]);
}

static void run_disposal(struct work *work)
{
	struct disposal *disposal = container_of(work, struct disposal, work);

	unmake(disposal->node, &disposal->made);
	if (disposal->made.uses_staging)
		staging_leave(&disposal->node->staging, disposal->node->engine);
	if (disposal->is_trim)
		(void)malloc_trim(0);
}

static void on_disposed(struct work *work)
{
	struct disposal *disposal = container_of(work, struct disposal, work);

	disposal->node->disposals--;
	free(disposal);
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
	node->disposals++;
	workers_submit(node->slow_workers, &disposal->work);
	return true;
}

void disposal_start(struct node *node, struct made *made)
{
	if (!start(node, made, false)) {
		/* The staging buffers are another thread's to leave: they stay. */
		unmake(node, made);
	}
	*made = (struct made)MADE_INIT;
}

void disposal_start_memory(struct node *node, struct memory *memory)
{
	struct made made = MADE_INIT;

	if (!memory->base)
		return;
	made.sums = *memory;
	*memory = (struct memory)MEMORY_INIT;
	disposal_start(node, &made);
}

void disposal_start_trim(struct node *node)
{
	(void)start(node, &(struct made)MADE_INIT, true);
}
