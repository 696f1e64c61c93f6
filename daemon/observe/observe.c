#include "daemon/observe/observe.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/observe/own.h"
#include "daemon/resources/resources.h"

int observe_new(struct node *node, const struct node_config *config)
{
	node->observe = calloc(1, sizeof(*node->observe));
	if (!node->observe)
		return -ENOMEM;
	node->observe->page = (struct memory)MEMORY_INIT;
	load_open(&node->observe->load);
	return endurance_new(node, config->state_directory, config->endurance, &node->observe->endurance);
}

void observe_free(struct node *node)
{
	if (!node->observe)
		return;
	load_close(&node->observe->load);
	endurance_free(node->observe->endurance);
	memory_free(&node->observe->page);
	free(node->observe);
	node->observe = NULL;
}

void observe_set_endurance(struct node *node, uint64_t bytes)
{
	endurance_set(node->observe->endurance, bytes);
}
