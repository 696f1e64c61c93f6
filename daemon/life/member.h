/* How a member is made, gets its pages once its job is planned, and is let go of. */
#ifndef TIERD_DAEMON_LIFE_MEMBER_H
#define TIERD_DAEMON_LIFE_MEMBER_H

#include "daemon/model/model.h"

int member_new(struct job *job, struct memberships *client, struct port *port, uint32_t rank,
	       struct member **ret_member);
/* 0, too, if it has them. */
int member_make_pages(struct member *member);
void member_free(struct member *member);
/* As struct job_callbacks says. */
void member_let_go(struct member *member);
/* What it takes of host memory beside its pages and its phases. */
uint64_t member_bytes(const struct job *job);

#endif
