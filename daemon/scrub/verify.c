#include "daemon/scrub/scrub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/scrub/own.h"
#include "daemon/scrub/scan.h"
#include "daemon/request/request.h"

/* What one answer covers at most: a client that goes costs no more, and one that stays sees how far it is. */
#define EXTENTS_PER_REPLY 16
/* An extent more than that may be found. */
#define FINDINGS_PER_REPLY 64
#define FINDINGS_MAXIMUM (FINDINGS_PER_REPLY + STORE_EXTENT_BLOCKS)
/* What comes before an extent, of snapshots, may be more: the rest is counted. */

struct finding {
	Tierd__Wire__VerifyFinding wire;
	struct damage damage;
	char snapshots[STORE_NAMES_TEXT];
};

struct verify {
	struct queue link; /* of the node's, in the order of their coming */
	struct queue client_link;
	struct node *node;
	struct pending *pending; /* NULL: its client is gone */
	uid_t uid;		 /* whose job it is: it may go while the request waits for its turn */
	char name[WIRE_MAX_JOB_NAME + 1];
	uint64_t number, first;
	bool is_running;
	struct scan scan;
	size_t count;
	uint32_t untold;
	struct finding findings[FINDINGS_MAXIMUM];
};

static void verify_free(struct verify *verify)
{
	queue_remove(&verify->client_link);
	queue_remove(&verify->link);
	scan_clear(&verify->scan);
	free(verify);
}

static void fail(struct verify *verify, int r, const char *message)
{
	if (verify->pending)
		pending_error(verify->pending, r, "%s", message);
	verify_free(verify);
}

/* ---- The answer ---- */

static void reply(struct verify *verify)
{
	const struct job *job = verify->scan.job;
	Tierd__Wire__VerifyReply body = TIERD__WIRE__VERIFY_REPLY__INIT;
	Tierd__Wire__VerifyFinding *findings[FINDINGS_MAXIMUM];

	for (size_t i = 0; i < verify->count; i++)
		findings[i] = &verify->findings[i].wire;
	body.next = verify->scan.next;
	body.total = store_extents(job_nvme_store(job));
	body.bytes = verify->scan.bytes;
	body.step = job->step;
	body.number = job->number;
	body.n_findings = verify->count;
	body.findings = findings;
	body.untold = verify->untold;
	if (verify->pending)
		pending_reply(verify->pending, WIRE_REPLY(VERIFY, verify, &body));
	verify_free(verify);
}

static void fill(const struct job *job, const struct store_flaw *flaw, struct finding *finding)
{
	damage_find(job, flaw, &finding->damage);
	snprintf(finding->snapshots, sizeof(finding->snapshots), "%s", flaw->snapshots);
	tierd__wire__verify_finding__init(&finding->wire);
	finding->wire.unit = (char *)finding->damage.location.unit;
	finding->wire.state = (char *)finding->damage.location.state;
	finding->wire.tensors = finding->damage.location.tensors;
	finding->wire.device = (char *)(flaw->device ? flaw->device : "");
	finding->wire.device_offset = flaw->device_offset;
	finding->wire.bytes = flaw->length;
	finding->wire.error = (char *)store_error(flaw->status);
	finding->wire.snapshots = finding->snapshots;
	finding->wire.is_of_job = flaw->is_of_job;
	finding->wire.copy = flaw->part == STORE_EXTENT ? 0 : flaw->copy + 1;
	finding->wire.is_mended = flaw->is_mended;
}

static void on_found(struct scan *scan, const struct store_flaw *flaw)
{
	struct verify *verify = container_of(scan, struct verify, scan);

	damage_tell(scan->job, flaw, "verify");
	if (verify->count == FINDINGS_MAXIMUM) {
		verify->untold += !flaw->is_mended;
		return;
	}
	fill(scan->job, flaw, &verify->findings[verify->count++]);
	if (verify->count >= FINDINGS_PER_REPLY)
		scan->end = scan->next + 1;
}

static void run_waiting(struct node *node);

static const char no_job[] = "the job is gone, or comes back: ask again";

static void on_done(struct scan *scan, int status)
{
	struct verify *verify = container_of(scan, struct verify, scan);
	struct node *node = verify->node;

	if (status < 0)
		fail(verify, status, status == -ENOMEM ? "out of memory" : no_job);
	else
		reply(verify);
	run_waiting(node);
}

/* ---- Its turn ---- */

static int check(const struct verify *verify, const struct job *job, char *message, size_t size)
{
	int r = scan_check(job, message, size);

	if (r < 0)
		return r;
	if (verify->number != 0 && verify->number != job->number)
		return refuse(message, size, -ENOENT,
			      "job %s is not the one any more that was verified so far: it was replaced, or "
			      "has come back; begin again",
			      job->name);
	if (verify->first >= store_extents(job_nvme_store(job)))
		return refuse(message, size, -EINVAL, "job %s has %llu extents on NVMe, and no number %llu",
			      job->name, (unsigned long long)store_extents(job_nvme_store(job)),
			      (unsigned long long)verify->first);
	return 0;
}

static void run(struct verify *verify)
{
	struct job *job = job_find(verify->node, verify->uid, verify->name);
	char message[700];
	uint64_t rest;
	int r;

	verify->is_running = true;
	if (!job) {
		fail(verify, -EAGAIN, no_job);
		return;
	}
	r = check(verify, job, message, sizeof(message));
	if (r < 0) {
		fail(verify, r, message);
		return;
	}
	rest = store_extents(job_nvme_store(job)) - verify->first;
	r = scan_start(&verify->scan, job, verify->first,
		       verify->first + (rest < EXTENTS_PER_REPLY ? rest : EXTENTS_PER_REPLY));
	if (r < 0)
		fail(verify, r, "out of memory");
}

static struct verify *next_waiting(const struct node *node)
{
	unsigned running = 0;

	QUEUE_FOREACH (link, &node->scrub->verifies) {
		struct verify *verify = queue_entry(link, struct verify, link);

		if (running == VERIFY_MAX_RUNNING)
			return NULL;
		if (!verify->is_running)
			return verify;
		running++;
	}
	return NULL;
}

/* From the start each time: one that fails takes itself out of the queue. */
static void run_waiting(struct node *node)
{
	for (struct verify *verify = next_waiting(node); verify; verify = next_waiting(node))
		run(verify);
}

/* ---- Its client ---- */

static bool may_verify(const struct job *job, const struct port *port)
{
	return access_may_train(job, port) || access_may_drop(job, port);
}

void verify_begin(struct pending *pending, const Tierd__Wire__Verify *request, struct queue *client_verifies)
{
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	struct verify *verify;

	if (!job)
		return;
	if (!may_verify(job, pending_port(pending))) {
		pending_error(pending, -EPERM, "job %s is for its owner to verify, user %u", job->name,
			      (unsigned)job->uid);
		return;
	}
	if (!queue_is_empty(client_verifies)) {
		pending_error(pending, -EBUSY, "this connection verifies already; wait for the answer");
		return;
	}
	verify = calloc(1, sizeof(*verify));
	if (!verify) {
		pending_error(pending, -ENOMEM, "job %s: out of memory", job->name);
		return;
	}
	verify->node = job->node;
	verify->pending = pending;
	verify->uid = job->uid;
	snprintf(verify->name, sizeof(verify->name), "%s", job->name);
	verify->number = request->number;
	verify->first = request->first;
	verify->scan.found = on_found;
	verify->scan.done = on_done;
	queue_push(client_verifies, &verify->client_link);
	queue_push(&job->node->scrub->verifies, &verify->link);
	run_waiting(job->node);
}

static void forget(struct verify *verify)
{
	verify->pending = NULL;
	queue_remove(&verify->client_link);
	if (verify->is_running)
		verify->scan.is_stopped = true;
	else
		verify_free(verify);
}

void verify_forget_all(struct queue *client_verifies)
{
	QUEUE_FOREACH (link, client_verifies)
		forget(queue_entry(link, struct verify, client_link));
}

void verifies_end_denied(const struct job *job, const char *reason)
{
	QUEUE_FOREACH (link, &job->node->scrub->verifies) {
		struct verify *verify = queue_entry(link, struct verify, link);
		struct pending *pending = verify->pending;

		if (!pending || verify->uid != job->uid || strcmp(verify->name, job->name) != 0 ||
		    may_verify(job, pending_port(pending)))
			continue;
		pending_error(pending, -EPERM, "%s", reason);
		forget(verify);
	}
}
