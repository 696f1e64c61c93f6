#include "client/library/calls/reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/connection/structure.h"

#define MAX_PIECES 10000

/* ---- The step ---- */

static void refresh_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	if (answer->status == 0 && !ticket->is_orphan)
		ticket->reader->step = answer->reply->reader_refresh->step;
	ticket_complete_answer(ticket, answer);
}

static const struct ticket_kind refresh_kind = {
	.name = "tierd_reader_refresh",
	.body = TIERD__WIRE__REPLY__BODY_READER_REFRESH,
	.answer = refresh_answer,
	.is_jobless = true,
};

static int refresh(struct tierd_reader *reader, Tierd__Wire__ReaderRefresh *body, uint64_t deadline)
{
	body->reader = reader->number;
	return reader_call(reader, &refresh_kind, WIRE_REQUEST(READER_REFRESH, reader_refresh, body),
			   deadline);
}

/* ---- Open ---- */

static void post_close(struct tierd_node *node, uint32_t number)
{
	Tierd__Wire__ReaderClose body = TIERD__WIRE__READER_CLOSE__INIT;

	body.reader = number;
	connection_post(node, connection_number(node), WIRE_REQUEST(READER_CLOSE, reader_close, &body));
}

static void open_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_node *node = ticket->node;
	bool is_orphan = ticket->is_orphan;

	if (answer->status == 0)
		ticket->reader_open = *answer->reply->reader_open;
	ticket_complete_answer(ticket, answer);
	/* No thread waits for the reply: the daemon must not keep the reader. */
	if (is_orphan && answer->status == 0)
		post_close(node, answer->reply->reader_open->reader);
}

static const struct ticket_kind open_kind = {
	.name = "tierd_reader_open",
	.body = TIERD__WIRE__REPLY__BODY_READER_OPEN,
	.fd_count = 1,
	.answer = open_answer,
	.is_jobless = true,
};

struct tierd_reader *reader_free(struct tierd_reader *reader)
{
	if (!reader)
		return NULL;
	queue_remove(&reader->link);
	/* A child has no mapping there, but may have mapped something else. */
	if (reader->generation == connection_generation)
		mapping_free(&reader->window);
	reader_forget(reader);
	free(reader);
	return NULL;
}

static int adopt(struct tierd_reader *reader, struct tierd_ticket *ticket)
{
	const Tierd__Wire__ReaderOpenReply *reply = &ticket->reader_open;
	int r = -EPROTO;

	if (reply->unit_count <= JOB_MAX_UNITS)
		r = mapping_new_window(ticket->fd, reply->window_bytes, &reader->window);
	if (r < 0) {
		post_close(reader->node, reply->reader);
		return message_fail(r, "mapping the window of a reader of job \"%s\": %s", reader->name,
				    strerror(-r));
	}
	reader->connections = reader->node->connections;
	reader->number = reply->reader;
	reader->step = reply->step;
	reader->unit_count = reply->unit_count;
	return 0;
}

static int open_locked(struct tierd_reader *reader, const Tierd__Wire__Request *request, uint64_t deadline)
{
	struct tierd_ticket *ticket = NULL;
	int r = reconnect(reader->node);

	if (r == 0)
		r = ticket_new(reader->node, NULL, &open_kind, &ticket);
	if (r == 0)
		r = ticket_ask(ticket, request, deadline);
	if (r < 0)
		return r;
	r = adopt(reader, ticket);
	ticket_abandon(ticket);
	return r;
}

/* Asks for the units, and for the step. */
static int complete(struct tierd_reader *reader, uint64_t deadline)
{
	Tierd__Wire__ReaderRefresh body = TIERD__WIRE__READER_REFRESH__INIT;
	int r = reader_learn(reader, deadline);

	if (r == 0)
		r = refresh(reader, &body, deadline);
	if (r < 0)
		post_close(reader->node, reader->number);
	return r;
}

static int reader_new(struct tierd_node *node, const char *name, struct tierd_reader **ret_reader)
{
	struct tierd_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return message_fail_memory();
	reader->node = node;
	reader->generation = node->generation;
	queue_init(&reader->link);
	snprintf(reader->name, sizeof(reader->name), "%s", name);
	*ret_reader = reader;
	return 0;
}

int tierd_reader_open(struct tierd_node *node, const struct tierd_reader_options *options,
		      struct tierd_reader **ret_reader)
{
	struct tierd_reader_options own = TIERD_READER_OPTIONS_INIT;
	_cleanup_(reader_freep) struct tierd_reader *reader = NULL;
	Tierd__Wire__ReaderOpen open = TIERD__WIRE__READER_OPEN__INIT;
	int r = CHECK_GIVEN(node, options, ret_reader);

	if (r < 0)
		return r;
	r = STRUCTURE_TAKE(&own, options, "the reader's options have", TIERD_READER_OPTIONS_INIT);
	if (r < 0)
		return r;
	if (!own.name || strlen(own.name) > TIERD_MAX_JOB_NAME || own.owner > UINT32_MAX)
		return message_fail(-EINVAL, "a reader names a job, in at most %d bytes, and its owner",
				    TIERD_MAX_JOB_NAME);
	if (own.snapshot && (!own.snapshot[0] || strlen(own.snapshot) > TIERD_MAX_SNAPSHOT_NAME))
		return message_fail(-EINVAL, "a snapshot has a name, of 1 to %d bytes",
				    TIERD_MAX_SNAPSHOT_NAME);
	if (own.snapshot && own.as_snapshot)
		return message_fail(-EINVAL, "a reader reads a snapshot, or as if there were one: not both");
	r = reader_new(node, own.name, &reader);
	if (r == 0)
		r = connection_enter(node);
	if (r < 0)
		return r;
	uint64_t deadline = connection_deadline(node, -1);

	open.name = (char *)own.name;
	open.has_owner = own.owner >= 0;
	open.owner = own.owner >= 0 ? (uint32_t)own.owner : 0;
	if (own.snapshot)
		open.snapshot = (char *)own.snapshot;
	open.as_snapshot = own.as_snapshot;
	r = open_locked(reader, WIRE_REQUEST(READER_OPEN, reader_open, &open), deadline);
	if (r == 0)
		r = complete(reader, deadline);
	if (r == 0)
		queue_push(&node->readers, &reader->link);
	connection_exit(node);
	if (r == 0)
		*ret_reader = TAKE_PTR(reader);
	return r;
}

int tierd_reader_close(struct tierd_reader *reader)
{
	static const struct ticket_kind kind = { .name = "tierd_reader_close", .is_jobless = true };
	struct tierd_node *node;
	Tierd__Wire__ReaderClose body = TIERD__WIRE__READER_CLOSE__INIT;
	int r = CHECK_GIVEN(reader);

	if (r < 0)
		return r;
	node = reader->node;
	r = connection_enter(node);
	if (r < 0) {
		reader_free(reader);
		return r;
	}
	body.reader = reader->number;
	r = reader_call(reader, &kind, WIRE_REQUEST(READER_CLOSE, reader_close, &body),
			connection_deadline(node, -1));
	reader_free(reader);
	connection_exit(node);
	return r;
}

int tierd_reader_state(struct tierd_reader *reader, struct tierd_reader_state *ret_state)
{
	struct tierd_reader_state own = TIERD_READER_STATE_INIT;
	int r = CHECK_GIVEN(reader, ret_state);

	if (r == 0)
		r = reader_enter(reader);
	if (r < 0)
		return r;
	own.step = reader->step;
	own.unit_count = reader->unit_count;
	connection_exit(reader->node);
	return STRUCTURE_GIVE(ret_state, &own, "the state has", TIERD_READER_STATE_INIT);
}

/* ---- Refresh ---- */

static int encode_piece(const struct tierd_piece *piece, Tierd__Wire__ReaderPiece *ret_wire)
{
	if (!piece->state)
		return message_fail(-EINVAL,
				    "a piece names no state; it is \"parameter\", \"master\" or a slot of "
				    "the optimizer, such as \"m\"");
	tierd__wire__reader_piece__init(ret_wire);
	ret_wire->state = (char *)piece->state;
	ret_wire->all_units = piece->unit == TIERD_ALL;
	ret_wire->all_tensors = piece->tensor == TIERD_ALL || ret_wire->all_units;
	ret_wire->unit = ret_wire->all_units ? 0 : piece->unit;
	ret_wire->tensor = ret_wire->all_tensors ? 0 : piece->tensor;
	ret_wire->first = ret_wire->all_tensors ? 0 : piece->first;
	ret_wire->count = ret_wire->all_tensors ? 0 : piece->count;
	return 0;
}

/* Encodes pieces, which are larger if the program was built for a later version. */
static int encode_pieces(const struct tierd_piece *pieces, size_t count, Tierd__Wire__ReaderPiece *wire,
			 Tierd__Wire__ReaderPiece **pointers)
{
	for (size_t i = 0; i < count; i++) {
		struct tierd_piece piece = TIERD_PIECE_INIT;
		int r = STRUCTURE_TAKE_NTH(&piece, pieces, i, "piece", TIERD_PIECE_INIT);

		if (r == 0)
			r = encode_piece(&piece, &wire[i]);
		if (r < 0)
			return r;
		pointers[i] = &wire[i];
	}
	return 0;
}

static int refresh_alone(struct tierd_reader *reader, Tierd__Wire__ReaderRefresh *body, uint64_t *ret_step)
{
	uint64_t deadline;
	int r = reader_take(reader, &deadline);

	if (r < 0)
		return r;
	r = refresh(reader, body, deadline);
	if (r == 0 && ret_step)
		*ret_step = reader->step;
	reader_give(reader);
	return r;
}

int tierd_reader_refresh(struct tierd_reader *reader, const struct tierd_piece *pieces, size_t count,
			 uint64_t *ret_step)
{
	Tierd__Wire__ReaderRefresh body = TIERD__WIRE__READER_REFRESH__INIT;
	_cleanup_free_ Tierd__Wire__ReaderPiece *wire = NULL;
	_cleanup_free_ Tierd__Wire__ReaderPiece **pointers = NULL;
	int r = CHECK_GIVEN(reader);

	if (r < 0)
		return r;
	if (!pieces)
		return refresh_alone(reader, &body, ret_step);
	if (count > MAX_PIECES)
		return message_fail(-E2BIG, "%zu pieces are more than %d; TIERD_ALL chooses many at once",
				    count, MAX_PIECES);
	wire = calloc(count + 1, sizeof(*wire));
	pointers = calloc(count + 1, sizeof(*pointers));
	if (!wire || !pointers)
		return message_fail_memory();
	r = encode_pieces(pieces, count, wire, pointers);
	if (r < 0)
		return r;
	body.has_pieces = true;
	body.n_pieces = count;
	body.pieces = pointers;
	return refresh_alone(reader, &body, ret_step);
}

/* ---- Read ---- */

/* Asks for as much as fits into the window at a time. The values are copied without the lock, unless tierd
 * writes them to their place itself. */
static int read_all(struct tierd_reader *reader, Tierd__Wire__ReaderRead *read, uint64_t bytes, char *data,
		    uint64_t deadline)
{
	uint64_t fits = reader->window.bytes / bytes, left = read->count;
	int r = 0;

	read->to_memory = mapping_has(&reader->memory, data, left * bytes);
	for (; left > 0; left -= read->count) {
		read->count = left < fits ? left : fits;
		read->at = read->to_memory ? (uint64_t)(data - (char *)reader->memory.address) : 0;
		r = reader_call(reader, &reader_read_kind, WIRE_REQUEST(READER_READ, reader_read, read),
				deadline);
		if (r < 0)
			break;
		if (!read->to_memory)
			connection_copy(reader->node, data, reader->window.address, read->count * bytes);
		data += read->count * bytes;
		read->first += read->count;
	}
	return r < 0 ? r : reader_check_copied(reader);
}

int tierd_reader_read(struct tierd_reader *reader, uint32_t unit, uint32_t tensor, const char *state,
		      uint64_t first, uint64_t count, void *ret_data)
{
	Tierd__Wire__ReaderRead read = TIERD__WIRE__READER_READ__INIT;
	uint64_t deadline;
	int r = CHECK_GIVEN(reader, state);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(ret_data);
	if (r == 0)
		r = reader_check_range(reader, unit, tensor, first, count);
	if (r == 0)
		r = reader_take(reader, &deadline);
	if (r < 0)
		return r;
	read.reader = reader->number;
	read.unit = unit;
	read.tensor = tensor;
	read.state = (char *)state;
	read.first = first;
	read.count = count;
	read.step = reader->step;
	r = read_all(reader, &read, reader_element_bytes(&reader->units[unit].tensors[tensor], state),
		     ret_data, deadline);
	reader_give(reader);
	return r;
}
